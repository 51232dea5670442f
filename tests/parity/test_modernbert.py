"""ModernBERT against transformers: what test_families.py does not have. Long inputs, our recipe, configs."""

import dataclasses
import json
import re

import pytest
import tokenizers
import torch

from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.folder import load_model, load_tokenizer, read_config, save_folder
from bertworks.config import RECIPES, load_recipe
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.model.fast.attention import BlockAttention
from bertworks.model.forward import ForwardOptions
from bertworks.model.layout import Layout
from bertworks.pretraining.recipe import PretrainConfig

transformers = pytest.importorskip("transformers")
V = 97


def peer(cls: str = "ModernBertForMaskedLM", **more):
    shape = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    shape |= {"intermediate_size": 50, "initializer_range": 0.2, "local_attention": 12}
    shape |= dict.fromkeys(("pad_token_id", "cls_token_id", "bos_token_id"), 0)
    shape |= dict.fromkeys(("sep_token_id", "eos_token_id"), 1)
    torch.manual_seed(0)
    return getattr(transformers, cls)(transformers.ModernBertConfig(**shape | more)).eval()


def modern():
    return load_recipe(RECIPES / "pretrain" / "modern.toml", PretrainConfig).model


def batch(L: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(2, V, (3, L), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(L) < torch.tensor([[L], [L - 70], [7]])


def same_logits(ours, theirs, L: int) -> None:
    ids, mask = batch(L)
    expected = theirs(input_ids=ids, attention_mask=mask.long()).logits[mask]
    found = ours.masked_lm_logits(ours.encoder(ids, mask).last_hidden_state[mask])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max().item()))


@torch.no_grad()
def test_local_layers_in_blocks_and_a_converted_folder(tmp_path):
    """From 512 tokens on local layers are computed in blocks."""
    theirs = peer()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    layout, device = Layout.of(None, 1, 530), torch.device("cpu")
    attentions = ours.encoder.backend.make_plan(ours.encoder, layout, ForwardOptions(), device).layer_attentions
    assert [isinstance(attention, BlockAttention) for attention in attentions] == [False, True, True, False]
    same_logits(ours, theirs, 530)
    done = convert(tmp_path / "theirs", tmp_path / "converted")
    assert not done.ignored


@torch.no_grad()
def test_the_recipe_modern_writes_a_modernbert(tmp_path):
    small = {"vocab_size": V, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = dataclasses.replace(modern(), **small, num_hidden_layers=4, attention_window=5)
    model = build_model(config, ("mlm",), seed=1).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
    save_folder(tmp_path, model, None)
    back, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(back).__name__ == "ModernBertForMaskedLM" and not any(info.values()), info
    same_logits(model, back.eval(), 90)
    assert load_model(tmp_path).config == config


def modernbert_tokenizer(folder) -> tokenizers.Tokenizer:
    """One of the published kind: bytes of NFC, BERT's special tokens and frames, no segments."""
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    vocab = [*special, *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "he", "th", "the"]
    model = tokenizers.models.BPE({token: i for i, token in enumerate(vocab)}, [("h", "e"), ("t", "he")])
    theirs = tokenizers.Tokenizer(model)
    theirs.normalizer = tokenizers.normalizers.NFC()
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    theirs.add_special_tokens(special)
    theirs.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")}
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=theirs, model_input_names=["input_ids", "attention_mask"], **names
    )
    fast.save_pretrained(folder)
    return theirs


def test_a_folder_with_its_tokenizer_predicts_as_the_pipeline_of_transformers(tmp_path):
    theirs = modernbert_tokenizer(tmp_path / "1")
    peer(vocab_size=theirs.get_vocab_size(), pad_token_id=3).save_pretrained(tmp_path / "1")
    ours = load_tokenizer(tmp_path / "1")
    for text in ("the cat", "wörld of the thé", "  한국어 "):
        assert list(ours.encode(text).ids) == theirs.encode(text).ids
        assert list(ours.encode(text, "he").ids) == theirs.encode(text, "he").ids
    save_folder(tmp_path / "2", load_model(tmp_path / "1"), tmp_path / "1")
    for folder in (tmp_path / "1", tmp_path / "2"):
        expected = transformers.pipeline("fill-mask", str(folder), device="cpu")("the [MASK] cat", top_k=3)
        [[found]] = Predictor(folder, device="cpu").fill_mask(["the [MASK] cat"], top_k=3)
        assert [one["id"] for one in found] == [one["token"] for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one["score"] for one in expected], abs=1e-5)


def settings_with(tmp_path, **changes):
    peer("ModernBertModel").save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v != "absent"}))
    return read_config(tmp_path)[0]


def test_old_and_new_keys_say_the_same(tmp_path):
    """Published folders name every how many layers one is global; transformers 5 lists the layers."""
    new = settings_with(tmp_path)
    assert (new.global_every, new.attention_window, new.rope_theta, new.local_rope_theta) == (3, 6, 160000.0, 10000.0)
    gone = dict.fromkeys(("layer_types", "rope_parameters"), "absent")
    old = settings_with(tmp_path, **gone, global_attn_every_n_layers=2, global_rope_theta=500.0, local_rope_theta=20.0)
    assert (old.global_every, old.rope_theta, old.local_rope_theta) == (2, 500.0, 20.0)
    types = ["full_attention", "sliding_attention"] * 2
    assert settings_with(tmp_path, layer_types=types).global_every == 2
    whole = settings_with(tmp_path, layer_types=["full_attention"] * 4)
    assert whole.attention_window == 0 and whole.local_rope_theta == 0.0
    same = {"rope_type": "default", "rope_theta": 10000.0}
    assert settings_with(tmp_path, rope_parameters=dict.fromkeys(("full_attention", "sliding_attention"), same))
    span = settings_with(tmp_path, local_attention="absent", sliding_window=3).attention_window
    assert span == 3 == transformers.ModernBertConfig.from_pretrained(tmp_path).sliding_window
    assert settings_with(tmp_path, local_attention=7, sliding_window=3).attention_window == 3


FULL, LOCAL = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_bias": True}, "norm_bias = True.*; expected one value"),
        ({"decoder_bias": False}, "decoder_bias = False; expected True"),
        ({"mlp_dropout": 0.3}, "mlp_dropout = 0.3; expected one value"),
        ({"layer_types": [LOCAL, FULL, LOCAL, FULL]}, "layer_types = .*; expected 4, of which layers 0, n, 2 n"),
        ({"sliding_window": 3}, "sliding_window = 3, local_attention = 12; expected at least 1, and twice"),
        ({"rope_parameters": {FULL: {"rope_type": "yarn", "factor": 4.0}}}, "full_attention = .*rope_theta alone"),
        ({"rope_parameters": {LOCAL: {"type": "dynamic"}}}, "sliding_attention: rope_type = 'dynamic'; expected"),
        ({"rope_parameters": {"rope_theta": 50.0, "rope_type": "default"}}, "rope_theta.*; expected a table for each"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling = .*linear"),
        ({"hidden_activation": "swiglu", "classifier_activation": "swiglu"}, "hidden_act = 'swiglu'"),
    ],
)
def test_what_is_computed_otherwise_is_refused(changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        settings_with(tmp_path, **changes)


def test_what_no_key_can_say_is_read_by_bertworks_alone(tmp_path):
    small = {"vocab_size": V, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = dataclasses.replace(modern(), **small, num_hidden_layers=2, local_rope_theta=0.0)
    config = dataclasses.replace(config, position_embedding_type="sinusoidal")
    save_folder(tmp_path, build_model(config, ("mlm",), seed=1).eval(), None)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bertworks"
    assert load_model(tmp_path).config == config


@pytest.mark.parametrize(
    ("cls", "given"),
    [("TokenClassification", ["ModernBertForMaskedLM"]), ("MaskedLM", ["ModernBertForSequenceClassification"])],
)
def test_a_class_that_does_not_fit_is_named(cls, given, tmp_path):
    peer(f"ModernBertFor{cls}").save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"architectures": given}))
    with pytest.raises(InputError, match=re.escape(f"architectures in config.json says: {given}")):
        load_model(tmp_path)

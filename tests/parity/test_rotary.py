"""Rotary BERT and RoBERTa against the class of transformers that computes the same, folders both ways."""

import json

import pytest
import safetensors.torch
import torch

from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.families import BERT
from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.heads import Model
from support.parity import BERT_KEYS, same_scores, shaken

transformers = pytest.importorskip("transformers")
SHAPE = {**BERT_KEYS, "max_position_embeddings": 24}
OURS = ModelConfig(**SHAPE, position_embedding_type="rotary")
CLASSES = {  # our heads: the end of their class
    (): "Model",
    ("mlm",): "ForMaskedLM",
    ("mlm", "nsp"): "ForMaskedLM",
    ("mlm", "sop"): "ForMaskedLM",
    ("nsp",): "Model",
    ("classifier",): "ForSequenceClassification",
    ("tagger",): "ForTokenClassification",
    ("span",): "ForQuestionAnswering",
}
BESIDE = {"nsp": "cls.seq_relationship", "sop": "sop_classifier.classifier"}
ENDS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def peer(end: str, **more):
    labels = 2 if end == "ForQuestionAnswering" else 3
    config = transformers.JinaEmbeddingsV3Config(**{**SHAPE, "type_vocab_size": 2, "num_labels": labels, **more})
    torch.manual_seed(0)
    return shaken(getattr(transformers, f"JinaEmbeddingsV3{end}")(config))


def settings_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


def same_tensors(one: Model, other: Model) -> None:
    assert one.config == other.config and one.state_dict().keys() == other.state_dict().keys()
    assert all(tensor.equal(other.state_dict()[name]) for name, tensor in one.state_dict().items())


# ---- ours


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("heads", CLASSES, ids="+".join)
@torch.no_grad()
def test_ours_open_there(heads, tied, tmp_path):
    if not tied and "mlm" not in heads:
        pytest.skip("a decoder of its own is the masked-LM head's")
    model = shaken(build_model(ModelConfig(**vars(OURS) | {"tie_word_embeddings": tied}), heads, labels=3, seed=1))
    save_folder(tmp_path, model, None)
    settings, cls = settings_of(tmp_path), f"JinaEmbeddingsV3{CLASSES[heads]}"
    assert settings["model_type"] == "jina_embeddings_v3" and settings["architectures"] == [cls]
    auto = getattr(transformers, f"Auto{CLASSES[heads] if heads in ((), ('nsp',)) else 'Model' + CLASSES[heads]}")
    theirs, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs).__name__ == cls
    beside = {f"{BESIDE[head]}.{kind}" for head in heads if head in BESIDE for kind in ("weight", "bias")}
    pooler = {f"roberta.pooler.dense.{kind}" for kind in ("weight", "bias")} if beside and "mlm" in heads else set()
    assert info.pop("unexpected_keys") == beside | pooler and not any(info.values()), info
    same_scores(model, theirs.eval())
    same_tensors(load_model(tmp_path), model)
    card = (tmp_path / "README.md").read_text()
    assert f"`{cls}` in transformers 5.4 and newer" in card
    assert [f"head `{head}` is read by bertworks alone" in card for head in BESIDE] == [h in heads for h in BESIDE]


@pytest.mark.parametrize(
    "more",
    [
        {"rope_theta": 500.0},
        {"family": "roberta", "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "relu"},
        {"type_vocab_size": 4, "hidden_dropout_prob": 0.0, "classifier_dropout": 0.3, "pad_token_id": 3},
    ],
    ids=["theta", "roberta", "others"],
)
@torch.no_grad()
def test_settings_that_fit(more, tmp_path):
    model = shaken(build_model(ModelConfig(**vars(OURS) | more), ("mlm",), seed=1))
    save_folder(tmp_path, model, None)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    same_scores(model, theirs)
    same_tensors(load_model(tmp_path), model)


@pytest.mark.parametrize(
    ("more", "heads"),
    [
        ({"hidden_act": "relu"}, ("mlm",)),
        ({"direction": "left"}, ("mlm",)),
        ({"norm": "pre"}, ()),
        ({"feed_forward": "geglu"}, ()),
        ({"attention_window": 2}, ()),
        ({"shared_layers": "all"}, ()),
        ({"embedding_size": 8}, ()),
        ({"type_vocab_size": 0}, ()),
        ({"family": "albert"}, ()),
        ({}, ("choice",)),
    ],
    ids=lambda value: "+".join(value),
)
def test_what_does_not_fit_is_read_by_bertworks_alone(more, heads, tmp_path):
    model = build_model(ModelConfig(**vars(OURS) | more), heads, seed=1)
    save_folder(tmp_path, model.eval(), None)
    assert settings_of(tmp_path)["model_type"] == "bertworks"
    same_tensors(load_model(tmp_path), model)


def test_folders_from_before(tmp_path):
    """They have BERT's names and are for bertworks alone; `convert` makes them readable to all."""
    model = shaken(build_model(OURS, ("mlm", "nsp"), seed=1))
    save_folder(tmp_path / "new", model, None)
    old = tmp_path / "old"
    old.mkdir()
    tensors = {BERT.hf_name(name): tensor for name, tensor in model.state_dict().items()}
    safetensors.torch.save_file(tensors, old / "model.safetensors")
    settings = {**SHAPE, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "architectures": ["BertForPreTraining"]}
    settings |= {"model_type": "bertworks", "bertworks_format": 1, "bertworks_positions": "rotary"}
    settings |= {"hidden_dropout_prob": "0.1 (bertworks alone computes this model)"}
    (old / "config.json").write_text(json.dumps(settings))
    same_tensors(load_model(old), model)
    convert(old, tmp_path / "converted")
    assert (tmp_path / "converted/config.json").read_bytes() == (tmp_path / "new/config.json").read_bytes()


# ---- theirs


@pytest.mark.parametrize("end", ENDS)
@torch.no_grad()
def test_theirs_open_here_and_go_back(end, tmp_path):
    theirs = peer(end, rope_parameters={"rope_type": "default", "rope_theta": 700.0}, hidden_act="silu")
    theirs.save_pretrained(tmp_path / "theirs")
    assert any("mixer.Wqkv" in name for name in safetensors.torch.load_file(tmp_path / "theirs/model.safetensors"))
    ours = load_model(tmp_path / "theirs")
    assert ours.config.family == "roberta" and ours.config.rope_theta == 700.0
    same_scores(ours, theirs)
    save_folder(tmp_path / "ours", ours, None)
    back, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    same_scores(load_model(tmp_path / "ours"), back.eval())
    convert(tmp_path / "theirs", tmp_path / "converted")


@torch.no_grad()
def test_their_names_of_today_and_their_default_rates(tmp_path):
    theirs = peer("ForMaskedLM")
    theirs.save_pretrained(tmp_path)
    whole = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    safetensors.torch.save_file(whole, tmp_path / "model.safetensors")
    same_scores(load_model(tmp_path), theirs)
    settings = settings_of(tmp_path)
    del settings["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert read_config(tmp_path)[0].rope_theta == theirs.config.rope_parameters["rope_theta"] == 20000.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "rope_parameters = {"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_type = 'yarn'; expected default"),
        ({"head_dim": 16}, "head_dim = 16"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'; expected rotary"),
        ({"bertworks_rope_theta": 500.0}, "bertworks_rope_theta = 500.0; expected 20000.0, as jina_embeddings_v3's"),
        (
            {"architectures": ["RobertaForMaskedLM"], "type_vocab_size": 3},
            "architectures in config.json says: ['Roberta",
        ),
        ({"num_hidden_layers": 2}, "roberta.layers.2.self_attn.k_proj.bias: left over"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_computed_differently_is_refused(settings, message, tmp_path):
    peer("ForMaskedLM").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings_of(tmp_path) | settings))
    with pytest.raises(InputError) as caught:
        load_model(tmp_path)
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_adapters_are_refused(tmp_path):
    peer("Model").save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"LoRA adapters \(adapter_config.json\), which are not computed here"):
        load_model(tmp_path)

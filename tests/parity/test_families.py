"""All families against transformers on random tiny models: every class, folders both ways."""

import json

import pytest
import safetensors.torch
import torch

from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.checkpoint.start import initial_model
from bertworks.files import InputError
from bertworks.model.dropout import DropoutKey
from bertworks.model.heads import TOKEN_HEADS
from support.parity import BERT_KEYS, TOLERANCE, B, L, V, batches, head_of, same_scores, shaken

transformers = pytest.importorskip("transformers")
LABELS = ["no", "yes", "perhaps"]
SHAPES = {
    "bert": {"Bert": {**BERT_KEYS, "max_position_embeddings": 24, "type_vocab_size": 3}},
    "roberta": {"Roberta": {**BERT_KEYS, "max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5}},
    "albert": {
        "Albert": {**BERT_KEYS, "embedding_size": 12, "max_position_embeddings": 24, "type_vocab_size": 3},
        "unshared": {"num_hidden_groups": 3, "embedding_size": 32, "hidden_act": "relu"},
    },
    "distilbert": {
        "DistilBert": {
            **{"vocab_size": V, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 50},
            **{"max_position_embeddings": 24, "initializer_range": 0.2},
        },
        "unshared": {"activation": "relu", "sinusoidal_pos_embds": True},
    },
    "modernbert": {
        "ModernBert": {
            **BERT_KEYS,
            **{"max_position_embeddings": 24, "local_attention": 6, "global_attn_every_n_layers": 2},
            **{"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
        },
        "biased": {
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True),
            "hidden_activation": "relu",
            "classifier_activation": "relu",
            "classifier_pooling": "mean",
            "layer_types": ["full_attention"] * 3,
            "local_attention": 128,
        },
    },
}
KINDS = ["ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification"]
KINDS += ["ForQuestionAnswering", "Model"]
FAMILIES = ("Bert", "Roberta", "Albert", "DistilBert", "ModernBert")
CLASSES = [f"{name}{kind}" for name in FAMILIES for kind in KINDS]
CLASSES += [
    "BertForPreTraining",
    "BertForNextSentencePrediction",
    "BertLMHeadModel",
    "AlbertForPreTraining",
    "RobertaForCausalLM",
]


def family_of(cls: str) -> str:
    return next(name for name in SHAPES if cls.lower().startswith(name))


def peer(cls: str, **more):
    family = family_of(cls)
    name, shape = next(iter(SHAPES[family].items()))
    more |= {"is_decoder": True} if cls.endswith(("CausalLM", "LMHeadModel")) else {}
    labels = {"num_labels": 2} if cls.endswith(("PreTraining", "Prediction", "Answering")) else {"num_labels": 3}
    config = getattr(transformers, f"{name}Config")(**{**shape, **labels, **more})
    torch.manual_seed(0)
    return shaken(getattr(transformers, cls)(config))


def tensors(folder) -> dict[str, bytes]:
    file = safetensors.torch.load_file(folder / "model.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in file.items()}


def variants(cls: str) -> list[dict]:
    return [{}, *list(SHAPES[family_of(cls)].values())[1:]]


@pytest.mark.parametrize(("cls", "more"), [(cls, more) for cls in CLASSES for more in variants(cls)])
@torch.no_grad()
def test_outputs_and_folders_both_ways(cls, more, tmp_path):
    """Theirs, ours, theirs, ours, and theirs converted: equal outputs, and equal tensors in all five folders."""
    theirs = peer(cls, **more)
    theirs.save_pretrained(tmp_path / "1")
    ours = load_model(tmp_path / "1")
    same_scores(ours, theirs)
    labels = LABELS if head_of(cls) in ("classifier", "tagger") else None
    save_folder(tmp_path / "2", ours, None, labels=labels)
    back, info = type(theirs).from_pretrained(tmp_path / "2", output_loading_info=True)
    assert not any(info.values()), info
    back.save_pretrained(tmp_path / "3")
    again = load_model(tmp_path / "3")
    assert again.config == ours.config and list(again.heads) == list(ours.heads)
    same_scores(again, back.eval())
    save_folder(tmp_path / "4", again, None, labels=labels)
    done = convert(tmp_path / "1", tmp_path / "5")
    files = [tensors(tmp_path / name) for name in "12345"]
    used = {row.source_name for row in done.mapping} | done.ignored.keys()
    assert used == files[0].keys() or family_of(cls) == "modernbert"  # of which some tensors are divided
    assert all(file == files[0] for file in files)
    by_us = [(tmp_path / name / "model.safetensors").read_bytes() for name in "24"]  # with a checksum
    assert by_us[0] == by_us[1]
    if labels:
        assert back.config.id2label == dict(enumerate(LABELS))
    for key, value in theirs.config.to_dict().items():
        if key in ("architectures", "pad_token_id", "num_hidden_groups", "is_decoder") or key in more:
            assert getattr(back.config, key) == value, key
    auto = transformers.AutoModel.from_pretrained(tmp_path / "2").eval()
    batch, family = batches(ours.config.pad_token_id)[1], ours.config.family
    mask, zeros = batch["attention_mask"], torch.zeros(B, L, dtype=torch.long)
    types = {} if family in ("distilbert", "modernbert") else {"token_type_ids": zeros}
    expected = auto(**{**batch, "attention_mask": mask.long()}, **types).last_hidden_state[mask]
    found = ours.encoder(batch["input_ids"], mask).last_hidden_state[mask]
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "cls", [f"{name}{kind}" for name in ("XLMRoberta", "Camembert", "Data2VecText") for kind in KINDS]
)
@torch.no_grad()
def test_robertas_of_another_name(cls, tmp_path):
    """XLM-R and CamemBERT are read as what they are, and written as RoBERTa, which gives transformers the same."""
    shape, prefix = SHAPES["roberta"]["Roberta"], cls.removesuffix(next(kind for kind in KINDS if cls.endswith(kind)))
    labels = 2 if cls.endswith("Answering") else 3
    theirs = getattr(transformers, cls)(getattr(transformers, f"{prefix}Config")(**shape, num_labels=labels))
    shaken(theirs).save_pretrained(tmp_path / "1")
    begin = "" if cls.endswith("Model") else f"{theirs.base_model_prefix}."
    file = tmp_path / "1" / "model.safetensors"  # older versions have a constant too
    constant = {f"{begin}embeddings.position_ids": torch.arange(26)[None]}
    safetensors.torch.save_file(safetensors.torch.load_file(file) | constant, file)
    ours = load_model(tmp_path / "1")
    same_scores(ours, theirs)
    save_folder(tmp_path / "2", ours, None, labels=LABELS if head_of(cls) in ("classifier", "tagger") else None)
    name = cls.replace(prefix, "Roberta")
    assert read_config(tmp_path / "2")[1]["architectures"] == [name]
    back, info = getattr(transformers, name).from_pretrained(tmp_path / "2", output_loading_info=True)
    assert not any(info.values()), info
    same_scores(ours, back.eval())


def test_the_shapes_of_the_families_are_in_the_names_of_the_paper(tmp_path):
    """What config.json says becomes the settings of one encoder."""
    peer("AlbertForPreTraining").save_pretrained(tmp_path / "albert")
    albert = read_config(tmp_path / "albert")[0]
    assert (albert.embedding_size, albert.shared_layers, albert.hidden_act) == (12, "all", "gelu_new")
    assert (albert.hidden_dropout_prob, albert.classifier_dropout) == (0.0, 0.1)
    peer("RobertaModel").save_pretrained(tmp_path / "roberta")
    roberta = read_config(tmp_path / "roberta")[0]
    assert (roberta.position_offset, roberta.max_length, roberta.pad_token_id) == (2, 24, 1)
    peer("DistilBertModel").save_pretrained(tmp_path / "distilbert")
    distilbert = read_config(tmp_path / "distilbert")[0]
    assert (distilbert.hidden_size, distilbert.type_vocab_size, distilbert.classifier_dropout) == (32, 0, 0.2)
    assert load_model(tmp_path / "distilbert").encoder.pooler is None


STARTS = [  # a pre-trained class, a head, what is fresh
    ("RobertaForMaskedLM", "classifier", ["classifier", "pooler"]),
    ("RobertaModel", "choice", ["choice"]),
    ("AlbertForPreTraining", "classifier", ["classifier"]),
    ("DistilBertForMaskedLM", "classifier", ["classifier", "pooler"]),
    ("AlbertForMaskedLM", "span", ["span"]),
    ("ModernBertForMaskedLM", "classifier", ["classifier", "pooler"]),
    ("ModernBertForSequenceClassification", "choice", ["choice"]),
]


@pytest.mark.parametrize(("cls", "head", "fresh"), STARTS)
def test_a_fine_tuning_starts_from_a_folder_of_each(cls, head, fresh, tmp_path):
    theirs = peer(cls)
    theirs.save_pretrained(tmp_path / "start")
    start = initial_model(tmp_path / "start", (head,), LABELS, seed=1)
    assert start.fresh == fresh
    new = [start.model.encoder.pooler if name == "pooler" else start.model.heads[name] for name in fresh]
    norms = [module for part in new for module in part.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert all(torch.equal(norm.weight, torch.ones_like(norm.weight)) for norm in norms)
    batch = batches(start.model.config.pad_token_id)[1]
    out = start.model.train().encode({**batch, "token_type_ids": batch["input_ids"] % 2}, DropoutKey(1, 2))
    given = out if head in TOKEN_HEADS else out.pooled
    start.model.heads[head](given, DropoutKey(1, 2)).square().sum().backward()
    unused = [name for name, p in start.model.named_parameters() if p.grad is None]
    assert unused == []
    save_folder(tmp_path / "tuned", start.model, None, labels=LABELS if head in ("classifier", "tagger") else None)
    name = read_config(tmp_path / "tuned")[1]["architectures"][0]
    back, info = getattr(transformers, name).from_pretrained(tmp_path / "tuned", output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        same_scores(load_model(tmp_path / "tuned"), back.eval())


def test_what_robertas_classifier_does_not_read_is_left(tmp_path):
    """Published classifiers of RoBERTa carry the pooler of their start, which the class has no place for."""
    theirs = peer("RobertaForSequenceClassification")
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    more = {"roberta.pooler.dense.weight": torch.ones(32, 32), "roberta.pooler.dense.bias": torch.ones(32)}
    safetensors.torch.save_file(safetensors.torch.load_file(file) | more, file)
    with torch.no_grad():
        same_scores(load_model(tmp_path), theirs)
    assert initial_model(tmp_path, ("classifier",), LABELS, seed=1).unused == ["classifier", *sorted(more)]
    done = convert(tmp_path, tmp_path / "converted")
    assert done.ignored == dict.fromkeys(more, "a pooler that a model of this class does not read")


@pytest.mark.parametrize("cls", [f"{name}ForMaskedLM" for name in FAMILIES])
@torch.no_grad()
def test_a_decoder_of_its_own(cls, tmp_path):
    theirs = peer(cls, tie_word_embeddings=False)
    theirs.save_pretrained(tmp_path / "1")
    ours = load_model(tmp_path / "1")
    assert not ours.config.tie_word_embeddings
    same_scores(ours, theirs)
    save_folder(tmp_path / "2", ours, None)
    back, info = type(theirs).from_pretrained(tmp_path / "2", output_loading_info=True)
    assert not any(info.values()), info
    same_scores(load_model(tmp_path / "2"), back.eval())
    change(tmp_path / "1", tie_word_embeddings=True)
    with pytest.raises(InputError, match=r"decoder.weight: differs|vocab_projector.weight: differs"):
        load_model(tmp_path / "1")


@pytest.mark.parametrize("cls", ["RobertaForMaskedLM", "AlbertForPreTraining", "DistilBertForMaskedLM"])
@torch.no_grad()
def test_a_tied_decoder_written_out(cls, tmp_path):
    theirs = peer(cls)
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    assert len(whole) > len(tensors(tmp_path))
    safetensors.torch.save_file(whole, file)
    same_scores(load_model(tmp_path), theirs)


def change(folder, **settings) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        ("AlbertModel", {"num_hidden_groups": 2}, "num_hidden_groups = 2, inner_group_num = 1; expected 1 group"),
        ("AlbertModel", {"num_hidden_groups": 3}, "albert_layer_groups.1.albert_layers.0.attention.query.weight: miss"),
        ("DistilBertForMaskedLM", {"n_layers": 6}, "distilbert.transformer.layer.3.attention.q_lin.weight: missing"),
        ("DistilBertForMaskedLM", {"n_layers": 2}, "distilbert.transformer.layer.2.attention.k_lin.bias: left over"),
        ("RobertaModel", {"is_decoder": True}, "is_decoder is set, and there is a pooler"),
    ],
)
def test_what_is_refused(cls, settings, message, tmp_path):
    peer(cls).save_pretrained(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(InputError) as caught:
        load_model(tmp_path)
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)


def test_weights_in_several_files(tmp_path):
    """As transformers writes them above a size; an index that does not fit its files is refused by name."""
    theirs = peer("RobertaForMaskedLM")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    files = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(files) > 2 and not (tmp_path / "model.safetensors").exists()
    with torch.no_grad():
        same_scores(load_model(tmp_path), theirs)
    (tmp_path / "pytorch_model.bin").write_bytes(b"beside them, and never looked at")
    assert convert(tmp_path, tmp_path / "whole").source.endswith("index.json")
    assert len(tensors(tmp_path / "whole")) == len(theirs.state_dict()) - 2  # the decoder's, which are tied
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace(files[1].name, files[0].name))
    with pytest.raises(InputError, match=f"{files[0].name}: it and model.safetensors.index.json do not"):
        load_model(tmp_path)


@pytest.mark.parametrize("cls", ["BertModel", "RobertaModel", "AlbertModel", "DistilBertModel"])
@torch.no_grad()
def test_padding_on_the_left(cls, tmp_path):
    """States as theirs; the pooler reads the first real token, where transformers reads the padding before it."""
    theirs = peer(cls)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    ids = torch.randint(5, V, (B, L), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(L) >= L - (torch.arange(B)[:, None] * 2 % 11 + 3)
    ids = torch.where(mask, ids, ours.config.pad_token_id)
    out = ours.encoder(ids, mask)
    assert out.layout.index is not None and len(out.layout.index) < B * L
    expected = theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    torch.testing.assert_close(out.last_hidden_state[mask], expected[mask], rtol=0, atol=TOLERANCE)
    if ours.encoder.pooler is not None:
        first = expected[torch.arange(B), mask.int().argmax(1)]
        torch.testing.assert_close(out.pooled, ours.encoder.pooler(first), rtol=0, atol=TOLERANCE)

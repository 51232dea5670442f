"""Equality with transformers on random tiny models: outputs, padding of every kind, folders written by either side."""

import json

import pytest
import safetensors.torch
import torch
from torch.nn import functional as F

from bertworks.checkpoint.folder import load_encoder, load_model, save_folder
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.heads import Model
from bertworks.training.objectives import LanguageModelObjective
from support.parity import shaken

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
SHAPES = [  # several widths, depths, head counts; every activation that BERT checkpoints come with
    dict(zip(SIZES, values, strict=True))
    for values in ((32, 2, 4, 50, "gelu"), (48, 3, 2, 96, "gelu_new"), (20, 1, 5, 64, "relu"))
]


def peer(cls: str, shape: dict, seed: int = 0, **more):
    """A random model of theirs."""
    config = transformers.BertConfig(
        vocab_size=97, max_position_embeddings=24, type_vocab_size=3, initializer_range=0.2, **shape, **more
    )
    torch.manual_seed(seed)
    return shaken(getattr(transformers, cls)(config))


def masks(B: int, L: int) -> dict[str, torch.Tensor]:
    """Padding on the right, on the left with the first token kept or not, holes, all but the first token, none."""
    lengths = torch.arange(B)[:, None] * 3 % 14 + 4
    right, left = torch.arange(L) < lengths, torch.arange(L) >= L - lengths
    kept = left | (torch.arange(L) == 0)
    holes = torch.rand(B, L, generator=torch.Generator().manual_seed(5)) < 0.4
    holes[:, 0] = True
    alone = right.clone()
    alone[1, 1:] = False
    whole = torch.ones(B, L, dtype=torch.bool)
    return {"right": right, "left": left, "kept": kept, "holes": holes, "alone": alone, "none": whole}


def inputs(B: int = 12, L: int = 23, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """So many cells that most of the padding is left out of the packed form, which has a multiple of 128 rows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 97, (B, L), generator=generator), torch.randint(0, 3, (B, L), generator=generator)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def compare(ours: Model, theirs, ids, types, mask) -> None:
    """Everything both sides give: logits of every head, pooled output, hidden states at real tokens."""
    out = ours.encoder(ids, mask, types)
    arguments = {"input_ids": ids, "token_type_ids": types, "attention_mask": None if mask is None else mask.long()}
    expected = theirs(**arguments, output_hidden_states=True)
    seen = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    assert len(out.hidden_states) == len(expected.hidden_states)
    for found, state in zip(out.hidden_states, expected.hidden_states, strict=True):
        close(found[seen], state[seen])
    kind = type(theirs).__name__
    if not seen[:, 0].all():  # they pool the first cell, which is padding
        assert out.layout.index is not None and len(out.layout.index) < ids.numel()
        first = expected.hidden_states[-1][torch.arange(len(ids)), seen.int().argmax(1)]
        pooler = theirs.base_model.pooler
        assert pooler is None or (out.pooled - torch.tanh(pooler.dense(first))).abs().max() < TOLERANCE
        return
    if kind == "BertModel":
        close(out.pooled, expected.pooler_output)
    else:
        logits = expected.prediction_logits if kind == "BertForPreTraining" else expected.logits
        close(ours.masked_lm_logits(out.last_hidden_state[seen]), logits[seen])
    if kind == "BertForPreTraining":
        close(ours.heads["nsp"](out.pooled), expected.seq_relationship_logits)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["hidden_act"])
@pytest.mark.parametrize("cls", ["BertForPreTraining", "BertForMaskedLM", "BertModel"])
@torch.no_grad()
def test_outputs_under_every_padding(cls, shape, tmp_path):
    """Folders of all classes, both ways: test_families.py."""
    theirs = peer(cls, shape)
    theirs.save_pretrained(tmp_path)
    ours, (ids, types) = load_model(tmp_path), inputs()
    assert not ours.training
    for mask in [*masks(*ids.shape).values(), None]:
        compare(ours, theirs, ids, types, mask)
    compare(ours, theirs, ids[:1], types[:1], None)
    compare(ours, theirs, ids[1:2], types[1:2], masks(*ids.shape)["right"][1:2])


@torch.no_grad()
def test_attention_weights_and_the_path_that_gives_them(tmp_path):
    theirs = peer("BertModel", SHAPES[0], attn_implementation="eager")
    theirs.save_pretrained(tmp_path)
    encoder, (ids, types) = load_encoder(tmp_path), inputs()
    for name, mask in masks(*ids.shape).items():
        out = encoder(ids, mask, types, attentions=True)
        expected = theirs(ids, mask.long(), types, output_attentions=True)
        for found, weights in zip(out.attentions, expected.attentions, strict=True):
            rows = mask[:, None, :].expand(-1, 4, -1)  # queries that are real tokens
            close(found[rows], weights[rows])
            assert not found.transpose(2, 3)[~mask[:, None, :].expand(-1, 4, -1)].any() or name == "none"
        close(out.last_hidden_state, encoder(ids, mask, types).last_hidden_state)


@torch.no_grad()
def test_head_mask_takes_a_head_out(tmp_path):
    """A factor of 0 equals a model whose output projection ignores that head; 1 everywhere changes nothing."""
    theirs = peer("BertModel", SHAPES[0])
    theirs.save_pretrained(tmp_path)
    encoder, (ids, types) = load_encoder(tmp_path), inputs()
    mask, factors = masks(*ids.shape)["right"], torch.ones(2, 4)
    close(encoder(ids, mask, types, head_mask=factors).pooled, encoder(ids, mask, types).pooled)
    factors[1, 2] = 0
    found = encoder(ids, mask, types, head_mask=factors).last_hidden_state
    theirs.encoder.layer[1].attention.output.dense.weight[:, 16:24] = 0
    expected = theirs(ids, mask.long(), types).last_hidden_state
    close(found[mask], expected[mask])
    assert (found - encoder(ids, mask, types).last_hidden_state).abs().max() > 0.01


@torch.no_grad()
def test_folders_of_older_versions(tmp_path):
    """gamma and beta, position_ids, a decoder written out, half precision: as published checkpoints have them."""
    theirs = peer("BertForPreTraining", SHAPES[0])
    theirs.save_pretrained(tmp_path)
    file, old = tmp_path / "model.safetensors", {}
    for name, tensor in safetensors.torch.load_file(file).items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[name] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = old["cls.predictions.bias"].clone()
    safetensors.torch.save_file(old, file)
    ids, types = inputs()
    compare(load_model(tmp_path), theirs, ids, types, masks(*ids.shape)["right"])

    safetensors.torch.save_file({k: v.half() if v.is_floating_point() else v for k, v in old.items()}, file)
    compare(load_model(tmp_path), theirs.half().float(), ids, types, masks(*ids.shape)["right"])


@pytest.mark.parametrize("cls", ["BertForPreTraining", "BertForSequenceClassification"])
def test_gradients(cls, tmp_path):
    theirs = peer(cls, SHAPES[1], num_labels=3)
    theirs.save_pretrained(tmp_path)
    ours, (ids, types) = load_model(tmp_path), inputs()
    ids = ids.clamp(min=1)  # to their table the padding's id gets no gradient from the input, ours is one like others
    mask = masks(*ids.shape)["holes"]
    out, expected = ours.encoder(ids, mask, types), theirs(ids, mask.long(), types)
    if cls == "BertForPreTraining":
        found, scores = ours.masked_lm_logits(out.last_hidden_state[mask]), expected.prediction_logits[mask]
    else:
        found, scores = ours.heads["classifier"](out.pooled), expected.logits
    for logits in (found, scores):
        F.cross_entropy(logits, torch.arange(len(logits)) % 3).backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    pairs = [
        (ours.encoder.embeddings.word.weight, "bert.embeddings.word_embeddings.weight"),
        (ours.encoder.embeddings.position.weight, "bert.embeddings.position_embeddings.weight"),
        (ours.encoder.layers[0].attention.query.weight, "bert.encoder.layer.0.attention.self.query.weight"),
        (ours.encoder.layers[2].output_norm.weight, "bert.encoder.layer.2.output.LayerNorm.weight"),
    ]
    for parameter, name in pairs:
        assert (parameter.grad - gradients[name]).norm() / gradients[name].norm() < 1e-5, name


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["hidden_act"])
def test_a_language_model_and_its_loss(shape, tmp_path):
    """BertLMHeadModel as a decoder: a causal mask, and the shifted loss of GPT-2 and all of its kind; folders too."""
    theirs = peer("BertLMHeadModel", shape, is_decoder=True)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert ours.config.direction == "left" and list(ours.heads) == ["mlm"]
    ids, types = inputs()
    mask = masks(*ids.shape)["right"]
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    labels = ids.masked_fill(~mask, -100)
    expected = theirs(ids, token_type_ids=types, attention_mask=mask.long(), labels=labels)
    term, objective = LanguageModelObjective("ltr")(ours, batch)["ltr"], LanguageModelObjective("ltr")
    close(term.loss / objective.counts(batch)["ltr"], expected.loss)
    close(ours.masked_lm_logits(ours.encode(batch).last_hidden_state[mask]), expected.logits[mask])
    (term.loss / objective.counts(batch)["ltr"]).backward()
    expected.loss.backward()
    names = {"encoder.layers.0.attention.query.weight": "bert.encoder.layer.0.attention.self.query.weight"}
    for name, other in names.items():
        close(dict(ours.named_parameters())[name].grad, dict(theirs.named_parameters())[other].grad)
    save_folder(tmp_path / "ours", ours, None)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        close(again(ids, token_type_ids=types, attention_mask=mask.long()).logits[mask], expected.logits[mask])


@pytest.mark.parametrize("activation", ["tanh", "linear", "gelu_python", "silu"])
@torch.no_grad()
def test_rarer_activations(activation, tmp_path):
    theirs = peer("BertForMaskedLM", SHAPES[0] | {"hidden_act": activation})
    theirs.save_pretrained(tmp_path / "theirs")
    ours, (ids, types) = load_model(tmp_path / "theirs"), inputs()
    compare(ours, theirs, ids, types, masks(*ids.shape)["right"])
    save_folder(tmp_path / "ours", ours, None)
    back = transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    compare(ours, back, ids, types, masks(*ids.shape)["right"])


OWN = {  # what no class of transformers computes, and the classes that the tensors' names are those of
    "rotary": ({"position_embedding_type": "rotary", "norm": "pre"}, ["BertForMaskedLM", "BertModel"]),
    "static": ({"num_hidden_layers": 0, "norm": "pre"}, ["BertModel"]),
    "lstm": ({"layer_type": "lstm"}, ["BertForMaskedLM"]),
    "right": ({"direction": "right"}, ["BertForMaskedLM"]),
    "roberta": ({"family": "roberta", "norm": "pre"}, ["RobertaForMaskedLM", "RobertaModel"]),
    "albert": ({"family": "albert", "feed_forward": "geglu"}, ["AlbertForMaskedLM"]),
    "distilbert": ({"family": "distilbert", "type_vocab_size": 0, "norm": "pre"}, ["DistilBertForMaskedLM"]),
}


@pytest.mark.parametrize("name", OWN)
def test_no_class_of_transformers_takes_a_folder_of_our_own(name, tmp_path):
    """Not even one that is named by the caller: it would start at random what it does not find, and only warn."""
    changes, classes = OWN[name]
    shape = {key: value for key, value in SHAPES[0].items() if key != "hidden_act"}
    config = ModelConfig(**{"vocab_size": 97, "max_position_embeddings": 24, **shape, **changes})
    model = build_model(config, ("mlm",), seed=1)
    save_folder(tmp_path, model, None)
    for cls in [*classes, "AutoModel"]:
        with pytest.raises(Exception, match="bertworks"):
            getattr(transformers, cls).from_pretrained(tmp_path)
    assert load_model(tmp_path).config == config
    card = (tmp_path / "README.md").read_text().split("---\n")[2].strip().splitlines()
    assert card[2].startswith("**Load it with bertworks: no class of transformers computes this model")
    settings = json.loads((tmp_path / "config.json").read_text())  # as they were written before
    key = "dropout" if name == "distilbert" else "hidden_dropout_prob"
    assert settings[key] == "0.1 (bertworks alone computes this model)"
    (tmp_path / "config.json").write_text(json.dumps(settings | {key: 0.1}))
    assert load_model(tmp_path).config == config
    (tmp_path / "config.json").write_text(json.dumps(settings | {key: "0,1 (bertworks alone computes this model)"}))
    with pytest.raises(InputError, match="hidden_dropout_prob = '0,1"):
        load_model(tmp_path)

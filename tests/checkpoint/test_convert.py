"""`bertworks convert`: each kind of source read, written, checked; what it changes; what it refuses, and how."""

import json
import os
import pickle

import numpy as np
import pytest
import torch

from bertworks.checkpoint.convert import conversion as module
from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.convert.options import ConvertOptions
from bertworks.checkpoint.folder import load_model, load_tokenizer, read_config, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer
from support.shared_data import SHARED, needs_shared
from support.tf_writer import write_bundle

VOCAB = [*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", "the", "of", "##s", "run"]
SHAPE = dict(
    vocab_size=len(VOCAB),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
)
IDS = torch.tensor([[2, 7, 8, 9, 30, 3], [2, 12, 33, 3, 0, 0]])
MASK = IDS != 0


@pytest.fixture
def saved(tmp_path):
    """A folder of ours."""
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(VOCAB) + "\n")
    save_folder(tmp_path / "src", build_model(ModelConfig(**SHAPE), seed=1), Tokenizer.load(file, lowercase=True))
    return tmp_path / "src"


def filled(model):
    """A module of transformers with weights in which no two tensors are alike, LayerNorms and biases included."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    model.tie_weights()
    return model.eval()


def theirs(name: str, **changes):
    """A small model of a class of transformers."""
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, name)
    shape = dict(SHAPE, pad_token_id=0)
    if name.startswith("Albert"):
        shape |= {"embedding_size": 8}
    return filled(kind(kind.config_class(**shape | changes)))


def same_outputs(one, other, **inputs):
    with torch.no_grad():
        a, b = (model(input_ids=IDS, attention_mask=MASK.long(), **inputs).to_tuple() for model in (one, other))
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6)


def refusal(source, out, **options) -> str:
    with pytest.raises(InputError) as caught:
        convert(source, out, ConvertOptions(**options))
    assert not out.exists() or not any(out.iterdir())
    assert not [file for file in out.parent.iterdir() if file.name.endswith((".new", ".tmp"))]
    return str(caught.value)


# ---- sources


def old_pickle(tmp_path):
    """What transformers wrote in 2019: gamma and beta, constants, the decoder written out; in half precision."""
    model = theirs("BertForPreTraining").half().float()  # values that half precision holds
    old = {}
    for name, tensor in model.state_dict().items():
        old[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(20)[None]
    (tmp_path / "src").mkdir()
    torch.save(
        {name: t.half() if t.is_floating_point() else t for name, t in old.items()}, tmp_path / "src/pytorch_model.bin"
    )
    (tmp_path / "src" / "config.json").write_text(json.dumps(model.config.to_dict()))
    (tmp_path / "src" / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    return model


def test_an_old_pickle_by_an_explicit_flag(tmp_path):
    model = old_pickle(tmp_path)
    assert "--allow-pickle" in refusal(tmp_path / "src", tmp_path / "out")
    assert "give --cased or --uncased" in refusal(tmp_path / "src", tmp_path / "out", allow_pickle=True)
    done = convert(tmp_path / "src", tmp_path / "out", ConvertOptions(allow_pickle=True, do_lower_case=False))
    assert any("float16 became float32" in note for note in done.notes)
    assert done.ignored["bert.embeddings.position_ids"] == "nothing that is learned"
    assert done.ignored["cls.predictions.decoder.weight"] == "equal copy of a tensor it is tied to"
    same_outputs(model, type(model).from_pretrained(tmp_path / "out"))
    assert not load_tokenizer(tmp_path / "out").lowercase


class Trap:
    """Unpickling one makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_with_code_is_not_executed(saved, tmp_path):
    sprung, out = tmp_path / "sprung", tmp_path / "out"
    code = pickle.dumps({"bert.pooler.dense.bias": Trap(sprung)})
    (saved / "model.safetensors").write_bytes(code)  # a pickle posing as weights
    assert "model.safetensors: damaged or not a safetensors file" in refusal(saved, out, allow_pickle=True)
    (saved / "model.safetensors").unlink()
    for write in (lambda file: file.write_bytes(code), lambda file: torch.save({"a": Trap(sprung)}, file)):
        write(saved / "pytorch_model.bin")
        assert "nothing in it was executed" in refusal(saved, out, allow_pickle=True)
    for other in ([torch.zeros(2)], {"a": 1}):
        torch.save(other, saved / "pytorch_model.bin")
        assert "expected tensors by their names" in refusal(saved, out, allow_pickle=True)
    (saved / "pytorch_model.bin").write_bytes(b"")
    assert "pytorch_model.bin: not tensors alone, or damaged" in refusal(saved, out, allow_pickle=True)
    assert not sprung.exists()


ALBERT = {  # transformers: the original, said independently of the table that is tested
    "albert.embeddings.word_embeddings.weight": "bert/embeddings/word_embeddings",
    "albert.embeddings.position_embeddings.weight": "bert/embeddings/position_embeddings",
    "albert.embeddings.token_type_embeddings.weight": "bert/embeddings/token_type_embeddings",
    "albert.encoder.embedding_hidden_mapping_in.weight": "bert/encoder/embedding_hidden_mapping_in/kernel",
    "albert.pooler.weight": "bert/pooler/dense/kernel",
    "predictions.bias": "cls/predictions/output_bias",
    "predictions.dense.weight": "cls/predictions/transform/dense/kernel",
    "sop_classifier.classifier.weight": "cls/seq_relationship/output_weights",
    "sop_classifier.classifier.bias": "cls/seq_relationship/output_bias",
}
BEGINNINGS = {
    "albert.encoder.albert_layer_groups.0.albert_layers.0.": "bert/encoder/transformer/group_0/inner_group_0/",
    "albert.embeddings.": "bert/embeddings/",
    "albert.encoder.": "bert/encoder/",
    "albert.pooler.": "bert/pooler/dense/",
    "predictions.": "cls/predictions/transform/",
}
INSIDE = {
    "attention.query.": "attention_1/self/query/",
    "attention.key.": "attention_1/self/key/",
    "attention.value.": "attention_1/self/value/",
    "attention.dense.": "attention_1/output/dense/",
    "attention.LayerNorm.": "LayerNorm/",
    "full_layer_layer_norm.": "LayerNorm_1/",
    "ffn.": "ffn_1/intermediate/dense/",
    "ffn_output.": "ffn_1/intermediate/output/dense/",
}


def albert_name(name: str) -> str:
    if name in ALBERT:
        return ALBERT[name]
    begin = next(begin for begin in BEGINNINGS if name.startswith(begin))
    rest = name.removeprefix(begin)
    inside = next(
        (INSIDE[key] + rest.removeprefix(key) for key in INSIDE if rest.startswith(key)), rest.replace(".", "/")
    )
    kinds = {"weight": "gamma", "bias": "beta"} if "ayerNorm" in inside else {"weight": "kernel", "bias": "bias"}
    scope, _, kind = f"{BEGINNINGS[begin]}{inside}".rpartition("/")
    return f"{scope}/{kinds[kind]}"


def test_an_original_albert(tmp_path):
    model = theirs("AlbertForPreTraining", hidden_act="gelu_new", num_hidden_layers=3)
    arrays = {"global_step": np.array(9, np.int64)}
    for name, tensor in model.state_dict().items():
        if not name.startswith("predictions.decoder") and "_ids" not in name:
            original = albert_name(name)
            arrays[original] = (tensor.T if original.endswith("/kernel") else tensor).contiguous().numpy()
            arrays[f"{original}/lamb_v"] = np.zeros(3, np.float32)
    (tmp_path / "src").mkdir()
    write_bundle(tmp_path / "src" / "model.ckpt-best", arrays, shards=2)
    settings = dict(SHAPE, embedding_size=8, num_hidden_layers=3, num_hidden_groups=1, inner_group_num=1)
    settings |= {"hidden_act": "gelu", "type_vocab_size": 2, "net_structure_type": 0, "gap_size": 0}
    (tmp_path / "src" / "albert_config.json").write_text(json.dumps(settings))
    done = convert(tmp_path / "src", tmp_path / "out")
    assert {row.source_name for row in done.mapping} | done.ignored.keys() == arrays.keys()
    assert set(done.ignored.values()) == {"optimizer slot", "count of training steps"}
    back = type(model).from_pretrained(tmp_path / "out")
    same_outputs(model, back)


@pytest.mark.parametrize(
    ("name", "head"), [("BertForSequenceClassification", "classifier."), ("BertForQuestionAnswering", "qa_outputs.")]
)
def test_an_original_that_was_fine_tuned(name, head, tmp_path):
    """What run_classifier.py and run_squad.py save: the encoder with its pooler, and the head as bare variables."""
    model = theirs(name, hidden_act="gelu_new", num_labels=2)
    scope = {"classifier.": "", "qa_outputs.": "cls/squad/"}[head]
    pooler = {"bert.pooler.dense.weight": torch.ones(16, 16), "bert.pooler.dense.bias": torch.ones(16)}
    arrays = {}
    for key, tensor in (pooler | model.state_dict()).items():
        if key.startswith(head):
            arrays[f"{scope}output_{'weights' if key.endswith('weight') else 'bias'}"] = tensor.numpy()
            continue
        path = key.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
        module, _, kind = path.rpartition("/")
        if module.endswith("_embeddings"):
            arrays[module] = tensor.numpy()
        elif module.endswith("LayerNorm"):
            arrays[f"{module}/{'gamma' if kind == 'weight' else 'beta'}"] = tensor.numpy()
        elif "_ids" not in kind:
            turned = tensor.T.contiguous() if kind == "weight" else tensor
            arrays[f"{module}/{'kernel' if kind == 'weight' else 'bias'}"] = turned.numpy()
    (tmp_path / "src").mkdir()
    write_bundle(tmp_path / "src" / "model.ckpt-343", arrays | {"global_step": np.array(343, np.int64)})
    (tmp_path / "src" / "bert_config.json").write_text(json.dumps(SHAPE | {"hidden_act": "gelu", "type_vocab_size": 2}))
    done = convert(tmp_path / "src", tmp_path / "out")
    assert {row.source_name for row in done.mapping} == arrays.keys() and [*done.ignored] == ["global_step"]
    assert read_config(tmp_path / "out")[1]["architectures"] == [name]
    same_outputs(model, type(model).from_pretrained(tmp_path / "out"))


def test_a_decoders_own_bias_is_the_one_that_is_read(tmp_path):
    theirs("BertForMaskedLM", tie_word_embeddings=False).save_pretrained(tmp_path / "src")
    done = convert(tmp_path / "src", tmp_path / "out")
    assert ("cls.predictions.decoder.bias", "heads.mlm.bias") in {row[:2] for row in done.mapping}
    assert done.ignored == {"cls.predictions.bias": "not read beside a decoder's own bias"}
    assert any("no tokenizer is written" in note for note in done.notes)


@needs_shared("oracle/model")
def test_the_command_prints_mapping_ignored_and_check(tmp_path, capsys):
    folder = SHARED / "oracle" / "model" / "tiny_l2_h32_adam"
    main(["convert", str(folder / "bert_model.ckpt"), str(tmp_path / "out"), "--do-lower-case"])
    printed = capsys.readouterr().out.splitlines()
    line = next(line for line in printed if line.startswith("bert/encoder/layer_1/intermediate/dense/kernel"))
    assert line.split(" -> ")[1] == "encoder.layers.1.feed_forward.intermediate.weight  64 x 32"
    assert any(line.startswith("not written, optimizer slot: 92 (") for line in printed)
    assert "not written, count of training steps: 1 (global_step)" in printed
    assert "46 tensors, each used once; read back, they and the settings are equal" in printed[-1]
    assert read_config(tmp_path / "out")[0].hidden_act == "gelu_new" and load_tokenizer(tmp_path / "out").lowercase


# ---- changes


def test_what_a_folder_says_stays(tmp_path):
    model = build_model(ModelConfig(**SHAPE), ("classifier",), labels=3, seed=1)
    facts = {"kind": "multilabel", "threshold": 0.3}
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt", lowercase=True)
    save_folder(tmp_path / "run" / "model", model, tokenizer, None, ["a", "b", "c"], max_length=12, task=facts)
    convert(tmp_path / "run", tmp_path / "out")  # a run folder means the model in it
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "run" / "model" / name).read_bytes(), name


@pytest.mark.parametrize(("length", "family"), [(50, "bert"), (7, "bert"), (50, "roberta"), (7, "roberta")])
def test_positions_are_cut_or_tiled(length, family, tmp_path):
    offset = 2 if family == "roberta" else 0
    changes = {"max_position_embeddings": 20 + offset, "pad_token_id": offset // 2, "type_vocab_size": 2 - offset // 2}
    config = ModelConfig(**SHAPE | changes, family=family, position_offset=offset)
    save_folder(tmp_path / "src", build_model(config, ("mlm",), seed=1), None)
    done = convert(tmp_path / "src", tmp_path / "out", ConvertOptions(positions=length))
    assert any("positions" in note for note in done.notes)
    assert any(note.startswith("warning: positions 20 to 49 are copies") for note in done.notes) == (length == 50)
    one, other = load_model(tmp_path / "src"), load_model(tmp_path / "out")
    assert other.config.max_length == length
    table, new = (model.encoder.embeddings.position.weight for model in (one, other))
    for i in range(length):
        assert torch.equal(new[offset + i], table[offset + i % 20])
    ids = IDS.repeat(1, 9)[:, :length]
    assert other.encoder(ids).last_hidden_state.shape == (2, length, 16)
    pytest.importorskip("transformers").AutoModelForMaskedLM.from_pretrained(tmp_path / "out")


def test_positions_that_cannot_be_changed(saved, tmp_path):
    for length in (-1, 2, 4_000_000_000_000):
        assert f"{length} positions; expected at least 3" in refusal(saved, tmp_path / "out", positions=length)
    config = ModelConfig(**SHAPE, position_embedding_type="rotary")
    save_folder(tmp_path / "rotary", build_model(config, seed=1), None)
    assert "no learned position table" in refusal(tmp_path / "rotary", tmp_path / "out", positions=50)


# ---- what is refused


def test_a_place_that_is_taken_is_left_alone(saved, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not empty"):
        convert(saved, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["thesis.txt"]
    (tmp_path / "out" / "thesis.txt").unlink()
    convert(saved, tmp_path / "out")  # an empty folder will do


def test_a_killed_or_failed_convert_leaves_no_half_folder(saved, tmp_path, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "load_model", killed)
        with pytest.raises(KeyboardInterrupt):
            convert(saved, tmp_path / "out")
    assert not (tmp_path / "out").exists()

    def worse(path):
        model = load_model(path)
        model.encoder.pooler.bias.data[0] += 1e-4
        return model

    with monkeypatch.context() as patch:
        patch.setattr(module, "load_model", worse)
        assert "not written: read back, encoder.pooler.bias differ" in refusal(saved, tmp_path / "out")
    convert(saved, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").exists()

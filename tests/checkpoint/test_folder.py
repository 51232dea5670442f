"""The model folder: round trips, starts for training, what is refused and how it is said, killed and failed writes."""

import dataclasses
import errno
import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from bertworks.checkpoint import folder as folders
from bertworks.checkpoint import metadata
from bertworks.checkpoint.folder import load_encoder, load_model, load_tokenizer, read_config, save_folder
from bertworks.checkpoint.hf import LATEST
from bertworks.checkpoint.locate import find_model
from bertworks.checkpoint.start import initial_model
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.heads import Model
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer

VOCAB = [*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", "##a", "##b", "the", "of"]
TINY = ModelConfig(len(VOCAB), 16, 2, 2, 24, "gelu_new", max_position_embeddings=12)
WORD, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
KEY, EXTRA = "bert.encoder.layer.1.attention.self.key.weight", "bert.encoder.layer.2.output.dense.bias"
POOLER, NSP = "bert.pooler.dense.bias", "cls.seq_relationship"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    file.write_text("\n".join(VOCAB) + "\n")
    return Tokenizer.load(file, lowercase=True)


@pytest.fixture
def saved(tmp_path, tokenizer) -> Path:
    save_folder(tmp_path / "model", build_model(TINY, seed=1), tokenizer, {"seed": 1})
    return tmp_path / "model"


def same_state(one: Model, other: Model) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def change_config(folder: Path, **changes) -> None:
    settings = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))


def change_weights(folder: Path, change) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


# ---- round trips


@pytest.mark.parametrize(
    "heads", [(), ("mlm",), ("nsp",), ("mlm", "nsp"), ("classifier",), ("mlm", "nsp", "classifier")]
)
@pytest.mark.parametrize("changes", [{}, {"type_vocab_size": 0}, {"position_embedding_type": "sinusoidal"}])
def test_what_is_written_is_read(heads, changes, tmp_path, tokenizer):
    config = dataclasses.replace(TINY, **changes)
    model = build_model(config, heads, labels=3, seed=1)
    save_folder(tmp_path / "model", model, tokenizer, labels=["a", "b", "c"] if "classifier" in heads else None)
    back = load_model(tmp_path / "model")
    assert back.config == config and list(back.heads) == list(heads) and not back.training
    assert same_state(model, back)
    learned = config.position_embedding_type == "learned"
    assert back.encoder.embeddings.position.weight.requires_grad == learned
    assert sum(not p.requires_grad for p in back.parameters()) == (not learned)
    assert same_state(load_model(tmp_path / "model"), back)
    settings = read_config(tmp_path / "model")[1]
    assert settings["model_type"] == ("bertworks" if changes.get("type_vocab_size") == 0 else "bert")
    assert metadata.labels_of(settings, "") == (["a", "b", "c"] if "classifier" in heads else None)
    assert load_tokenizer(tmp_path / "model").vocab == VOCAB


def test_files_of_a_folder(saved, tokenizer):
    names = ["README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert sorted(file.name for file in saved.iterdir()) == names
    assert [file.name for file in saved.parent.iterdir()] == ["model"]  # nothing temporary is left
    with safetensors.safe_open(saved / "model.safetensors", "pt") as file:
        assert file.metadata().keys() == {"format", "checksum"} and file.metadata()["format"] == "pt"
        assert "cls.predictions.decoder.weight" not in file.keys()  # noqa: SIM118 - no mapping
    assert json.loads((saved / "tokenizer_config.json").read_text())["model_max_length"] == 12


def test_lower_precision_is_written_as_float32(tmp_path):
    model = build_model(TINY, seed=1).bfloat16()
    save_folder(tmp_path / "model", model, None)
    tensors = safetensors.torch.load_file(tmp_path / "model" / "model.safetensors")
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    back = load_model(tmp_path / "model")
    assert all(p.dtype == torch.float32 for p in back.parameters())
    assert torch.equal(back.encoder.pooler.weight.bfloat16(), model.encoder.pooler.weight)


def test_same_model_same_bytes(tmp_path, saved, tokenizer):
    save_folder(tmp_path / "again", load_model(saved), load_tokenizer(saved), {"seed": 1})
    for file in saved.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_loaded_weights_are_no_view_of_the_file(saved):
    model = load_model(saved)
    before = model.encoder.pooler.weight.clone()
    size = (saved / "model.safetensors").stat().st_size
    with open(saved / "model.safetensors", "r+b") as file:
        file.seek(size - 4000)
        file.write(b"\x7f" * 4000)
    assert torch.equal(model.encoder.pooler.weight, before)


def test_labels_must_fit_the_classifier(tmp_path):
    model = build_model(TINY, ("classifier",), labels=3, seed=1)
    with pytest.raises(ValueError, match="2 labels for a classifier with 3 outputs"):
        save_folder(tmp_path / "m", model, None, labels=["a", "b"])
    save_folder(tmp_path / "m", model, None)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["id2label"]["2"] == "LABEL_2"


# ---- starts for training


def test_a_start_takes_what_is_there_and_seeds_the_rest(saved):
    source = load_model(saved)
    model, fresh, unused = initial_model(saved, ("classifier",), labels=3, seed=5, dropout=0.0)
    assert (fresh, unused) == (["classifier"], ["mlm", "nsp"])
    assert same_state(Model(model.encoder, {}), Model(source.encoder, {}))
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0
    head = model.heads["classifier"]
    assert head.weight.shape == (3, 16) and 0 < head.weight.abs().max() <= 0.04 and not head.bias.any()
    again, other = (initial_model(saved, ("classifier",), 3, seed).model.heads["classifier"] for seed in (5, 6))
    assert torch.equal(head.weight, again.weight) and not torch.equal(head.weight, other.weight)
    assert all(p.device.type == "cpu" and p.requires_grad for p in model.parameters())

    model, fresh, unused = initial_model(saved, ("mlm", "nsp"), labels=0, seed=5)
    assert (fresh, unused) == ([], []) and same_state(model, source)
    model, fresh, unused = initial_model(saved, ("mlm",), labels=0, seed=5)
    assert (fresh, unused) == ([], ["nsp", "pooler"]) and model.encoder.pooler is None


@pytest.mark.parametrize(
    ("labels", "order"), [(3, [0, 1, 2]), (["c", "a", "b"], [2, 0, 1]), (2, None), (["a", "b", "d"], None)]
)
def test_a_classifier_is_taken_by_the_names_of_its_labels(tmp_path, labels, order):
    source = build_model(TINY, ("classifier",), labels=3, seed=1)
    save_folder(tmp_path / "m", source, None, labels=["a", "b", "c"])
    start = initial_model(tmp_path / "m", ("classifier",), labels, seed=5)
    head = start.model.heads["classifier"]
    if order is None:
        assert (start.fresh, start.unused) == (["classifier"], ["classifier"])
        assert len(head.weight) == (labels if isinstance(labels, int) else len(labels))
    else:
        assert start.fresh == [] and torch.equal(head.weight, source.heads["classifier"].weight[order])
        assert torch.equal(head.bias, source.heads["classifier"].bias[order])


def test_a_pooler_is_made_where_the_folder_has_none(tmp_path):
    save_folder(tmp_path / "m", build_model(TINY, ("mlm",), seed=1), None)
    model, fresh, unused = initial_model(tmp_path / "m", ("mlm", "nsp"), labels=0, seed=5)
    assert (fresh, unused) == (["nsp", "pooler"], [])
    assert 0 < model.encoder.pooler.weight.abs().max() <= 0.04
    assert model.encoder(torch.zeros(1, 3, dtype=torch.long)).pooled.isfinite().all()


def test_heads_of_other_tasks_are_left_over_but_no_obstacle_to_a_start(saved):
    change_config(saved, architectures=["BertForSomethingElse"])

    def tag(tensors):
        for name in [name for name in tensors if name.startswith(("cls.", "bert.pooler"))]:
            del tensors[name]
        tensors["classifier.weight"], tensors["classifier.bias"] = torch.zeros(9, 16), torch.zeros(9)

    change_weights(saved, tag)
    with pytest.raises(InputError, match=r"classifier.weight: left over"):
        load_model(saved)
    start = initial_model(saved, ("classifier",), labels=9, seed=1)
    assert (start.fresh, start.unused) == (["classifier", "pooler"], ["classifier.bias", "classifier.weight"])
    assert start.model.heads["classifier"].weight.any()
    change_config(saved, architectures=["BertForTokenClassification"], id2label={str(i): f"T{i}" for i in range(9)})
    assert list(load_model(saved).heads) == ["tagger"]
    assert initial_model(saved, ("tagger",), labels=9, seed=1).fresh == []
    assert initial_model(saved, ("span",), labels=0, seed=1)[1:] == (["span"], ["tagger"])


# ---- what is refused


def refusal(folder: Path, call=load_model) -> str:
    with pytest.raises(InputError) as caught:
        call(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_missing_folder_config_and_weights(saved, tmp_path):
    assert "no such folder" in refusal(tmp_path / "nowhere")
    saved = saved.rename(tmp_path / "other")
    assert "no config.json: this is no model folder" in refusal(tmp_path)
    (saved / "model.safetensors").unlink()
    assert "no model.safetensors" in refusal(saved)
    (saved / "pytorch_model.bin").write_bytes(b"")
    message = refusal(saved)
    assert "pytorch_model.bin" in message and "--allow-pickle" in message
    (saved / "config.json").unlink()
    assert "no config.json" in refusal(saved)
    (saved / "state").mkdir()
    assert "no config.json: this is an unfinished run; rerun its command" in refusal(saved)


def test_a_damaged_file_is_named(saved):
    whole = (saved / "model.safetensors").read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], whole[:5], b"", b"\xff" * 100):
        (saved / "model.safetensors").write_bytes(broken)
        assert "model.safetensors: damaged" in refusal(saved)
    (saved / "config.json").write_text('{"model_type": ')
    assert "not valid JSON" in refusal(saved)
    (saved / "config.json").write_text("[1]")
    assert "expected a table" in refusal(saved)


def test_a_flipped_bit_never_changes_a_model(saved):
    """It is refused, or it is in the padding of the header or the name of the checksum, and the weights are right."""
    path, right = saved / "model.safetensors", load_model(saved).state_dict()
    whole, refused = path.read_bytes(), 0
    flips = range(5, 8 * len(whole), 8 * len(whole) // 150)
    for bit in flips:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = load_model(saved).state_dict()
        except InputError:
            refused += 1
        else:
            assert all(torch.equal(right[name], found[name]) for name in right)
    path.write_bytes(whole)
    assert refused > 0.9 * len(flips)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *((lambda t, n=name: t.pop(n), f"{name}: missing") for name in (WORD, KEY, "cls.predictions.bias")),
        (lambda t: [t.pop(f"{NSP}.{kind}") for kind in ("weight", "bias")], f"{NSP}.bias: missing"),  # architectures
        (lambda t: t.update({f"{EXTRA}": torch.zeros(16)}), f"{EXTRA}: left over"),
        (lambda t: t.update({POOLER: torch.zeros(17)}), f"{POOLER}: found 17 float32, expected 16 float32"),
        (lambda t: t.update({DECODER: t[WORD] + 1}), f"{DECODER}: differs from {WORD}"),
        (lambda t: t.update({"pooler.dense.bias": torch.zeros(16)}), f"two tensors for {POOLER}"),
        (lambda t: t.update({WORD: t[WORD].double() * 1e300}), f"NaN or infinity in {WORD}"),  # beyond float32
    ],
)
def test_tensors_that_do_not_fit_are_named(saved, change, message):
    change_weights(saved, change)
    assert message in refusal(saved)
    assert message in refusal(saved, lambda path: initial_model(path, ("mlm", "nsp"), 0, 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name_unless_told(saved, value):
    def change(tensors):
        tensors["bert.pooler.dense.bias"][3] = value
        tensors[WORD][2, 1] = value

    change_weights(saved, change)
    for load in (load_model, load_encoder, lambda folder: initial_model(folder, ("mlm", "nsp"), 0, seed=1)):
        assert f"NaN or infinity in {WORD}, bert.pooler.dense.bias; a training that" in refusal(saved, load)
    assert not load_model(saved, finite=False).encoder.pooler.bias.isfinite().all()


REFUSED = [
    ({"model_type": "gpt2"}, "model_type = 'gpt2'; expected one of bert, roberta"),
    ({"model_type": "roberta"}, "roberta.embeddings.word_embeddings.weight: missing"),
    ({"hidden_act": "mish"}, "hidden_act = 'mish'; expected one of gelu"),
    ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
    ({"add_cross_attention": True}, "add_cross_attention = True; expected false"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads = "),
    ({"quantization_config": {"load_in_8bit": True}}, "quantization_config = "),
    ({"auto_map": {"AutoModel": "modeling.Own"}}, "auto_map names the program 'modeling.Own'"),
    ({"num_attention_heads": 3}, "not divisible"),
    ({"vocab_size": 40}, "word_embeddings.weight: found 35x16 float32, expected 40x16 float32 (vocab_size"),
    ({"num_hidden_layers": 3}, "bert.encoder.layer.2.attention.self.query.weight: missing"),
    ({"num_hidden_layers": 1}, "bert.encoder.layer.1.attention.self.query.weight: left over"),
    ({"hidden_dropout_prob": 1.5}, "hidden_dropout_prob = 1.5; expected a number from 0 to 0.999"),
    ({"vocab_size": 10**9}, "vocab_size = 1000000000; expected a number from 1 to 16,777,216"),
    ({"layer_norm_eps": -1e-12}, "layer_norm_eps = -1e-12; expected a number from 0 to 1"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_would_be_computed_differently_is_refused_at_once(saved, changes, message):
    change_config(saved, **changes)
    found = refusal(saved)
    assert message in found and len(found) < 3000


def test_a_folder_for_bertworks_alone_has_the_number_of_its_format(tmp_path):
    """What transformers reads has none; without a number, as folders were written before, one is read too."""
    for changes, number in ({"norm": "pre"}, LATEST), ({}, None):
        save_folder(tmp_path, build_model(dataclasses.replace(TINY, **changes), seed=1), None)
        settings = json.loads((tmp_path / "config.json").read_text())
        assert settings.pop("bertworks_format", None) == number
        (tmp_path / "config.json").write_text(json.dumps(settings))
        assert read_config(tmp_path)[0] == dataclasses.replace(TINY, **changes)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bertworks_format": LATEST + 2}, f"newer bertworks (format {LATEST + 2}; this version reads up to {LATEST})"),
        ({"bertworks_mixture": 8}, "bertworks_mixture is not known to this version"),
    ],
)
def test_a_folder_of_a_newer_bertworks_is_refused(tmp_path, more, message):
    save_folder(tmp_path, build_model(dataclasses.replace(TINY, norm="pre"), seed=1), None)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | more))
    with pytest.raises(InputError, match=re.escape(message)):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"kind": "span"}, "bertworks_task.kind = 'span' of a classifier; expected single, pair"),
        ({"null_score_diff_threshold": "high"}, "null_score_diff_threshold = 'high'; expected a number"),
        ({"doc_stride": 0}, "doc_stride = 0; expected 1 to 2,147,483,647"),
    ],
)
def test_what_a_task_stored_is_checked(task, message):
    with pytest.raises(InputError, match=re.escape(message)):
        metadata.task_of({"id2label": {"0": "a", "1": "b"}, metadata.TASK: task}, "classifier")
    assert metadata.task_of({metadata.TASK: {"kind": "pair", "other": [1]}}, "classifier") == {
        "kind": "pair",
        "other": [1],
    }


@pytest.mark.parametrize(
    "names", [{"0": "a", "00": "b"}, {"9" * 5000: "a"}, {"0": "\ud800"}, ["a"], {"1": "a" * 10**5}]
)
def test_labels_that_are_no_labels_are_refused(names):
    with pytest.raises(InputError, match="id2label = ") as error:
        metadata.labels_of({"id2label": names}, "config.json")
    assert len(str(error.value)) < 200


def test_labels_with_gaps_and_of_another_number_are_refused(tmp_path):
    folder = tmp_path / "m"
    save_folder(folder, build_model(TINY, ("classifier",), 3, seed=1), None, labels=["a", "b", "c"])
    change_config(folder, id2label={"0": "a", "2": "c"})
    assert "id2label" in refusal(folder)
    change_config(folder, id2label={"0": "a", "1": "b"})
    assert "classifier.weight: found 3x16 float32, expected 2x16 float32" in refusal(folder)


def test_a_tokenizer_of_another_size_or_none(saved, tmp_path, tokenizer):
    small = build_model(dataclasses.replace(TINY, vocab_size=30), seed=1)
    with pytest.raises(InputError, match="the tokenizer has 35 tokens, the model's embedding table 30 rows"):
        save_folder(tmp_path / "small", small, tokenizer)
    assert not (tmp_path / "small").exists()
    save_folder(tmp_path / "small", small, None)
    for name in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"):
        shutil.copy(saved / name, tmp_path / "small")
    assert "35 tokens" in refusal(tmp_path / "small", load_tokenizer)
    for name in ("tokenizer.json", "vocab.txt"):
        (saved / name).unlink()
    assert "tokenizer.json" in refusal(saved, load_tokenizer)
    with pytest.raises(InputError, match=re.escape(str(saved))):
        save_folder(tmp_path / "other", build_model(TINY, seed=1), saved)


@pytest.mark.parametrize(
    ("rows", "fits"), [(40, True), (64, True), (1024, True), (36, False), (56, False), (1056, False)]
)
def test_an_embedding_table_that_was_padded(rows, fits, tmp_path, tokenizer):
    """To a multiple of 8, 16, ... or 1,024; with any other size the tokenizer is another one, or was cut."""
    model = build_model(dataclasses.replace(TINY, vocab_size=rows), seed=1)
    if fits:
        save_folder(tmp_path / "model", model, tokenizer)
        assert load_tokenizer(tmp_path / "model").vocab_size == 35
        note = folders.check_size(tokenizer, model.config, "")
        assert note.startswith(f"the embedding table has {rows - 35} rows more than the tokenizer has tokens (35)")
    else:
        with pytest.raises(InputError, match=f"35 tokens, the model's embedding table {rows} rows"):
            save_folder(tmp_path / "model", model, tokenizer)
    assert folders.check_size(tokenizer, TINY, "") == ""


# ---- failed and killed writes


def test_a_full_disk_leaves_the_old_folder(saved, monkeypatch):
    before = {file.name: file.read_bytes() for file in saved.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folders, "write_json", full)
    with pytest.raises(InputError, match="No space left on device"):
        save_folder(saved, build_model(TINY, seed=2), None)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("kill_at", range(6))
@pytest.mark.parametrize("other", [False, True])
def test_a_kill_while_files_are_replaced_never_mixes_two_models(saved, tokenizer, kill_at, other, monkeypatch):
    """Stopped before any of the renames: the folder is the old model, the new one, or none."""
    old = load_model(saved)
    new = build_model(dataclasses.replace(TINY, hidden_act="relu") if other else TINY, seed=2)
    replace, done = folders.os.replace, []

    def killed(source, target):
        if Path(target).parent == saved:
            if len(done) == kill_at:
                raise KeyboardInterrupt
            done.append(target)
        replace(source, target)

    monkeypatch.setattr(folders.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_folder(saved, new, tokenizer)
    monkeypatch.undo()
    try:
        found = load_model(saved)
    except InputError as error:
        assert other and "no config.json" in str(error)
    else:
        assert any(found.config == model.config and same_state(found, model) for model in (old, new))
    save_folder(saved, new, tokenizer)  # the next try succeeds, whatever lies about
    assert same_state(load_model(saved), new) and load_model(saved).config == new.config


def test_a_run_folder_means_its_model(saved):
    model = load_model(saved)
    assert saved.name == "model" and same_state(load_model(saved.parent), model)
    start = initial_model(saved.parent, ("mlm", "nsp"), labels=0, seed=9)
    assert start.fresh == [] and same_state(start.model, model)
    encoder = load_encoder(saved.parent)
    assert not encoder.training and same_state(Model(encoder, {}), Model(model.encoder, {}))
    assert load_tokenizer(saved.parent).vocab == VOCAB and read_config(saved.parent) == read_config(saved)


def test_of_several_runs_one_must_be_given(tmp_path):
    for name in ("tags/seed-2", "tags/seed-1", *(f"seed-{seed}" for seed in range(10, 18))):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model/config.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds several runs; give one of .*seed-10, .*seed-17 and 2 more$"):
        find_model(tmp_path)
    with pytest.raises(InputError, match=r"give one of [^ ]*tags/seed-1, [^ ]*tags/seed-2$"):
        find_model(tmp_path / "tags")

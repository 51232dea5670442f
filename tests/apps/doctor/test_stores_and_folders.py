"""Each check of stores, model folders and the machine finds its planted case, and leaves a good one alone."""

import json
import math
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertworks.apps.doctor import examine, machine, stores
from bertworks.apps.doctor.findings import Report
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.data.masking import MaskingConfig
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig
from conftest import WORDS, tiny_texts
from support.tiny_task import tiny_folder


def hits(report):
    return [(one.check, one.severity, one.evidence) for one in report.sorted()]


# ---- stores


def make_store(folder, texts, tokenizer=None, **settings):
    folder.mkdir()
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    tokenizer = tokenizer or Tokenizer.train(tiny_texts(), TokenizerConfig(vocab_size=100))
    config = BuildConfig(input=InputOptions(documents="blank-line"), workers=1, allow_unknown=True, **settings)
    build([folder / "text.txt"], tokenizer, folder / "store", config, progress=False)
    return folder / "store"


def long_documents(count=60):
    rng = random.Random(1)
    return ["\n".join(" ".join(rng.choices(WORDS, k=9)).capitalize() + "." for _ in range(4)) for _ in range(count)]


def test_a_good_store_is_left_alone(tmp_path):
    report = examine(make_store(tmp_path / "good", long_documents()))
    assert [one[0] for one in hits(report)] == ["size"]  # a note: it is tiny
    assert {"files of the store", "masks", "[UNK] by script", "vocabulary", "duplicate documents"} <= {*report.checked}


PLANTED = {
    "one sentence": ([f"{text.split('.')[0]}." for text in long_documents()], "documents of one sentence",
                     "100 % of "),
    "twice": ([text + ("" if i % 2 else "\nRiver.") for i, text in enumerate(np.repeat(long_documents(), 2))],
              "duplicate documents", "training documents share most of their text with an earlier one"),
    "Korean": ([*long_documents(), *(f"가나 영화 {word} 영화 나라" for word in WORDS)], "[UNK] by script",
               "of the tokens in sentences that are mostly Latin are [UNK]"),
    "nothing held out": (long_documents(), "size", "no held-out documents"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_of_a_store_is_found(name, tmp_path):
    texts, check, evidence = PLANTED[name]
    settings = {"validation_share": 0.0, "min_validation_documents": 0} if "held" in name else {}
    found = hits(examine(make_store(tmp_path / "bad", texts, **settings)))
    assert any(one[:2] == (check, "warning") and evidence in one[2] for one in found), found


@pytest.mark.parametrize(
    ("name", "documents", "advice"),
    [
        ("a.jsonl", "file", "each record is a document: if records of the input belong together, join their texts"),
        ("a.txt", "blank-line", "if blank lines divide paragraphs, not documents, build with --input.documents file"),
        ("a.txt", "file", "if the files have several sentences, look at them with `bertworks corpus show`, and give "),
    ],
)
def test_advice_on_documents_of_one_sentence_fits_the_input(tmp_path, name, documents, advice):
    one_each = [f"{text.split('.')[0]}." for text in long_documents()]
    for i, text in enumerate(one_each):
        content = json.dumps({"text": text}) if name == "a.jsonl" else text
        (tmp_path / f"{i}-{name}").write_text(content + "\n", encoding="utf-8")
    tokenizer = Tokenizer.train(tiny_texts(), TokenizerConfig(vocab_size=100))
    config = BuildConfig(input=InputOptions(documents=documents), workers=1, allow_unknown=True)
    build(sorted(tmp_path.glob("*-*")), tokenizer, tmp_path / "store", config, progress=False)
    [found] = [one.advice for one in examine(tmp_path / "store").findings if one.check == "documents of one sentence"]
    assert found.startswith(advice)
    assert found.endswith("; else train with --objective mlm --instances.input-format full-sentences")


def test_sentences_without_a_known_letter_and_an_unused_vocabulary(tmp_path):
    tokens = [*SPECIAL_TOKENS, *"abcde", *(f"word{i}" for i in range(100))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt", lowercase=True)
    documents = [f"a b c d e a b c d e {one} a b c d e.\n{'나라 영화 사랑 ' * 9}{one}" for one in range(60)]
    found = hits(examine(make_store(tmp_path / "bad", documents, tokenizer)))
    assert ("[UNK] by script", "warning", "100 % of the tokens in sentences without a known letter are [UNK]") in found
    assert ("vocabulary", "warning", "104 of 110 tokens of the vocabulary never occur in the training text") in found


def test_an_altered_store_is_an_error(tmp_path):
    store = make_store(tmp_path / "good", long_documents())
    path = store / "train-00000.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    [one] = hits(examine(store))
    assert one[:2] == ("files of the store", "error") and "the file was altered" in one[2]
    path.unlink()
    assert "missing" in hits(examine(store))[0][2]


def test_masks_are_counted_on_a_real_batch(tiny_store):
    """Batches of other settings than the paper's are found, each for what differs."""
    from bertworks.data.instances import Position

    tokenizer = Tokenizer.load(tiny_store.path / "tokenizer")

    def found(**masking):
        batch = tiny_store.data(length=64, **masking).take(Position(), 120)[0]
        return [one.evidence.partition("; expected")[0] for one in stores.masks_of(batch, tokenizer, MaskingConfig())]

    assert found() == []
    assert any("of the tokens are predicted" in one for one in found(masked_lm_prob=0.4))
    twisted = found(mask_share=0.5, random_share=0.0)
    assert any("are replaced by [MASK]" in one for one in twisted) and any("are kept" in one for one in twisted)


# ---- model folders


def test_a_good_folder_is_left_alone(tmp_path):
    report = examine(tiny_folder(tmp_path / "model"))
    assert hits(report) == [] and {"config and weights", "values", "tokenizer", "card"} <= {*report.checked}


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
FOLDERS = {
    "another width": (lambda f: edit_config(f, intermediate_size=48), "config and weights", "error",
                      "tensors and config.json do not fit together"),
    "a missing tensor": (lambda f: edit_tensors(f, lambda t: t.pop(QUERY)), "config and weights", "error",
                         f"{QUERY}: missing"),
    "a tensor too many": (lambda f: edit_tensors(f, lambda t: t.update(other=torch.ones(2))), "config and weights",
                          "error", "other: left over, no part of the model reads it"),
    "NaN": (lambda f: edit_tensors(f, lambda t: t[QUERY][0].fill_(math.nan)), "values", "error",
            f"not finite (NaN or infinity): {QUERY}"),
    "zeros": (lambda f: edit_tensors(f, lambda t: t[QUERY].zero_()), "values", "error", f"all values are 0 in {QUERY}"),
    "one value": (lambda f: edit_tensors(f, lambda t: t[QUERY].fill_(0.1)), "values", "warning",
                  f"all values are equal in {QUERY}"),
    "denormal": (lambda f: edit_tensors(f, lambda t: t[QUERY][0].fill_(1e-39)), "values", "warning",
                 "% of the weights are denormal"),
    "another vocab.txt": (lambda f: (f / "vocab.txt").write_text("[PAD]\nx\n"), "tokenizer", "error",
                          "vocab.txt and tokenizer.json have different tokens"),
    "another case": (lambda f: (f / "tokenizer_config.json").write_text('{"do_lower_case": false}'), "tokenizer",
                     "warning", "do_lower_case = false in tokenizer_config.json, but tokenizer.json lower-cases"),
    "too long": (lambda f: (f / "tokenizer_config.json").write_text('{"model_max_length": 512}'), "tokenizer",
                 "warning", "model_max_length = 512 in tokenizer_config.json, but the model has 32 positions"),
    "no names": (lambda f: edit_config(f, id2label={"0": "LABEL_0", "1": "LABEL_1"}), "names of labels", "note",
                 "the 2 classes have no names"),
    "one name twice": (lambda f: edit_config(f, id2label={"0": "a", "1": "a"}), "names of labels", "error",
                       "id2label has the name 'a' for 0 and 1"),
    "numbers exchanged": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}, label2id={"a": 1, "b": 0}),
                          "names of labels", "error",
                          "id2label and label2id of config.json contradict each other: class 0 is 'a' in id2label, but "
                          "label2id gives it 1"),
    "other names": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "c": 1}),
                    "names of labels", "note", "id2label names 'b', label2id does not"),
    "a name too many": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1, "c": 2}),
                        "names of labels", "note", "label2id names 'c', id2label does not"),
    "no card": (lambda f: (f / "README.md").unlink(), "card", "note", "no model card (README.md)"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_planted_fault_of_a_folder_is_found(name, tmp_path):
    plant, check, severity, evidence = FOLDERS[name]
    folder = tiny_folder(tmp_path / "model")
    plant(folder)
    found = hits(examine(folder))
    assert [one[:2] for one in found] == [(check, severity)] and evidence in found[0][2], found


def test_numbers_of_labels_may_be_texts(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    edit_config(folder, id2label={"0": "a", "1": "b"}, label2id={"a": "0", "b": "1"})
    assert hits(examine(folder)) == []


def test_a_tokenizer_of_another_model_and_one_that_contradicts_itself(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    (tmp_path / "other.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abc"]) + "\n")
    Tokenizer.load(tmp_path / "other.txt", lowercase=True).save(folder)
    [one] = hits(examine(folder))
    assert one[:2] == ("tokenizer", "error") and "the tokenizer has 8 tokens" in one[2]
    vocab = (tmp_path / "vocab.txt").read_text().replace("good\nbad\nfilm", "Good\nBad\nFilm")
    (tmp_path / "cased.txt").write_text(vocab)
    Tokenizer.load(tmp_path / "cased.txt", lowercase=True).save(folder)
    [one] = hits(examine(folder))
    assert one[:2] == ("tokenizer", "error") and "text is lower-cased, but 3 subwords have capitals" in one[2]


def test_fix_writes_vocab_and_card_anew_and_nothing_else(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "vocab.txt").write_text("[PAD]\nx\n")
    (folder / "README.md").unlink()
    done = examine(folder, fix=True).fixed
    assert done == [
        f"wrote {folder / 'vocab.txt'} from tokenizer.json",
        f"wrote {folder / 'README.md'} from config.json and the weights",
    ]
    now = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert now.keys() == whole.keys() and hits(examine(folder)) == []
    assert {name for name in whole if now[name] != whole[name]} <= {"README.md"}
    assert "## Shape" in (folder / "README.md").read_text()


def test_what_is_broken_altogether_is_a_finding_and_not_a_traceback(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    for name, content in (("model.safetensors", b"x"), ("tokenizer.json", b"{"), ("config.json", b"[")):
        broken = shutil.copytree(folder, tmp_path / name)
        (broken / name).write_bytes(content)
        report = examine(broken, fix=True)
        assert report.worst == "error" and all(one.evidence for one in report.findings), name


# ---- the machine

GOOD = {
    "cores": 4, "all_cores": 4, "threads": 4, "load": 1.0, "quota": math.inf, "available": 8 << 30, "limit": math.inf,
    "swapped": 0, "disk": 50 << 30, "gpu": False, "denormals": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "check", "evidence"),
    [
        ({}, None, ""),
        ({"threads": 1}, "threads", "torch computes with 1 of 4 cores"),
        ({"threads": 8}, "threads", "torch computes with 8 threads, but may use 4 cores"),
        ({"load": 9.0}, "threads", "a load of 9.0 on 4 cores"),
        ({"quota": 2.0, "threads": 2}, "limits of the container", "the container may use 2 of 4 cores"),
        ({"all_cores": 8}, "limits of the container", "this process may use 4 of 8 cores"),
        ({"limit": 1 << 29}, "memory and disk", "the container has 0.5 GiB of memory left"),
        ({"available": 1 << 29}, "memory and disk", "the machine has 0.5 GiB of memory left"),
        ({"swapped": 3 << 30}, "memory and disk", "3.0 GiB are swapped out"),
        ({"disk": 1 << 30}, "memory and disk", "1.0 GiB of disk are left here"),
        ({"denormals": 30.0}, "denormal numbers", "products of denormal numbers take 30 times as long"),
    ],
)
def test_settings_that_cost_speed_are_found(values, check, evidence, monkeypatch):
    monkeypatch.setattr(machine, "processor_kind", lambda: "AVX512")
    report = Report("", "machine")
    report.examine(machine.CHECKS, machine.Machine(**{**GOOD, **values}))
    assert [one.check for one in report.findings] == ([check] if check else [])
    assert not check or report.findings[0].evidence.startswith(evidence)


def test_limits_are_read_from_the_files_of_a_container(tmp_path):
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (math.inf, math.inf)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (1.5, 600)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (math.inf, math.inf)


def test_this_machine_can_be_examined():
    report = examine()
    assert report.kind == "machine" and [*machine.CHECKS] == report.checked

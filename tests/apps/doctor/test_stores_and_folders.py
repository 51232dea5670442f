"""Each check of stores, model folders and the machine finds its planted case; a good one has no findings."""

import json
import math
import random

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bertworks.apps.doctor import examine, machine
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig
from conftest import WORDS, tiny_texts
from support.planted import hits
from support.tiny_task import tiny_folder

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


def test_a_good_store_has_no_findings_but_its_size(tmp_path):
    assert [one[:2] for one in hits(examine(make_store(tmp_path / "good", long_documents())))] == [("size", "note")]


STORES = {
    "one sentence": ([f"{text.split('.')[0]}." for text in long_documents()], "one sentence", "100 % of "),
    "twice": ([text + ("" if i % 2 else "\nRiver.") for i, text in enumerate(np.repeat(long_documents(), 2))],
              "duplicates", "training documents that share most of their text with an earlier one: "),
    "leaked": ([text + ("" if i % 2 else "\nRiver.") for i, text in enumerate(np.repeat(long_documents(), 2))],
               "duplicates", "held-out documents that share most of their text with a training document: "),
    "Korean": ([*long_documents(), *(f"가나 영화 {word} 영화 나라" for word in WORDS)], "[UNK]",
               "of the training tokens are [UNK]"),
    "nothing held out": (long_documents(), "size", "no held-out documents"),
}  # fmt: skip


@pytest.mark.parametrize("name", STORES)
def test_a_planted_fault_of_a_store_is_found(name, tmp_path):
    texts, check, evidence = STORES[name]
    settings = {"validation_share": 0.0, "min_validation_documents": 0} if "held" in name else {}
    settings |= {"validation_share": 0.3} if name == "leaked" else {}
    found = hits(examine(make_store(tmp_path / "bad", texts, **settings)))
    assert any(one[:2] == (check, "warning") and evidence in one[2] for one in found), found


def test_sentences_without_a_known_letter_and_an_unused_vocabulary(tmp_path):
    tokens = [*SPECIAL_TOKENS, *"abcde", *(f"word{i}" for i in range(100))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt", lowercase=True)
    documents = [f"a b c d e a b c d e {one} a b c d e.\n{'나라 영화 사랑 ' * 9}{one}" for one in range(60)]
    found = hits(examine(make_store(tmp_path / "bad", documents, tokenizer)))
    assert ("[UNK]", "warning", "67 % of the training tokens are [UNK]") in found
    unused = "tokens of the vocabulary that never occur in the training text: 104 of 110"
    assert ("vocabulary", "warning", unused) in found


def test_an_altered_store_is_an_error(tmp_path):
    store = make_store(tmp_path / "good", long_documents())
    path = store / "train-00000.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    [one] = hits(examine(store))
    assert one[:2] == ("files", "error") and "the file was altered" in one[2]
    path.unlink()
    assert "missing" in hits(examine(store))[0][2]


# ---- model folders


def test_a_good_folder_has_no_findings(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    assert hits(examine(folder)) == []
    edit_config(folder, id2label={"0": "a", "1": "b"}, label2id={"a": "0", "b": "1"})  # numbers may be texts
    assert hits(examine(folder)) == []


def edit_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def other_tokenizer(folder, text):
    path = folder.parent / "other.txt"
    path.write_text(text)
    Tokenizer.load(path, lowercase=True).save(folder)


def cased_tokenizer(folder):
    vocab = (folder.parent / "vocab.txt").read_text()
    other_tokenizer(folder, vocab.replace("good\nbad\nfilm", "Good\nBad\nFilm"))


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
FOLDERS = {
    "a missing tensor": (lambda f: edit_tensors(f, lambda t: t.pop(QUERY)), "files", "error", f"{QUERY}: missing"),
    "NaN": (lambda f: edit_tensors(f, lambda t: t[QUERY][0].fill_(math.nan)), "values", "error",
            f"not finite (NaN or infinity): {QUERY}"),
    "zeros": (lambda f: edit_tensors(f, lambda t: t[QUERY].zero_()), "values", "error", f"all values are 0 in {QUERY}"),
    "one value": (lambda f: edit_tensors(f, lambda t: t[QUERY].fill_(0.1)), "values", "warning",
                  f"all values are equal in {QUERY}"),
    "denormal": (lambda f: edit_tensors(f, lambda t: t[QUERY][0].fill_(1e-39)), "values", "warning",
                 "% of the weights are denormal"),
    "another vocab.txt": (lambda f: (f / "vocab.txt").write_text("[PAD]\nx\n"), "tokenizer", "error",
                          "vocab.txt and tokenizer.json have different tokens"),
    "another case": (lambda f: (f / "tokenizer_config.json").write_text(
                         '{"do_lower_case": false, "tokenizer_class": "PreTrainedTokenizerFast"}'),
                     "tokenizer", "warning", "do_lower_case = false in tokenizer_config.json, but tokenizer.json"),
    "too long": (lambda f: (f / "tokenizer_config.json").write_text('{"model_max_length": 512}'), "tokenizer",
                 "warning", "model_max_length = 512 in tokenizer_config.json, but the model has 32 positions"),
    "another tokenizer": (lambda f: other_tokenizer(f, "\n".join([*SPECIAL_TOKENS, *"abc"]) + "\n"), "files", "error",
                          "the tokenizer has 8 tokens"),
    "a cased vocabulary": (cased_tokenizer, "tokenizer", "error",
                           "3 of 57 subwords match no text, because the normalizer changes them"),
    "no names": (lambda f: edit_config(f, id2label={"0": "LABEL_0", "1": "LABEL_1"}), "labels", "note",
                 "the 2 classes have no names"),
    "numbers exchanged": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}, label2id={"a": 1, "b": 0}),
                          "labels", "error", "id2label gives 'a' the number 0, label2id 1"),
    "other names": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "c": 1}),
                    "labels", "note", "only one of id2label and label2id of config.json has 'b'"),
    "broken weights": (lambda f: (f / "model.safetensors").write_bytes(b"x"), "files", "error", "model.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_planted_fault_of_a_folder_is_found(name, tmp_path):
    plant, check, severity, evidence = FOLDERS[name]
    folder = tiny_folder(tmp_path / "model")
    plant(folder)
    [found] = hits(examine(folder))
    assert found[:2] == (check, severity) and evidence in found[2]


# ---- the machine

GOOD = {
    "cores": 4, "all_cores": 4, "threads": 4, "load": 1.0, "quota": math.inf, "available": 8 << 30, "limit": math.inf,
    "swapped": 0, "disk": 50 << 30,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "check", "evidence"),
    [
        ({}, None, ""),
        ({"threads": 1}, "threads", "torch uses 1 of 4 cores"),
        ({"threads": 8}, "threads", "torch uses 8 threads on 4 cores"),
        ({"load": 9.0}, "threads", "a load of 9.0 on 4 cores"),
        ({"quota": 2.0, "threads": 2}, "limits", "the container may use 2 of the 4 cores"),
        ({"all_cores": 8}, "limits", "this process may use 4 of 8 cores"),
        ({"limit": 1 << 29}, "memory", "the container has 0.5 GiB of memory left"),
        ({"available": 1 << 29}, "memory", "the machine has 0.5 GiB of memory left"),
        ({"swapped": 3 << 30}, "memory", "3.0 GiB are swapped out"),
        ({"disk": 1 << 30}, "memory", "1.0 GiB of disk are left here"),
    ],
)
def test_settings_that_cost_speed_are_found(values, check, evidence):
    found = [one for check in machine.CHECKS for one in check(machine.Machine(**{**GOOD, **values}))]
    assert [one.check for one in found] == ([check] if check else [])
    assert not check or found[0].evidence.startswith(evidence)


def test_limits_are_read_from_the_files_of_a_container(tmp_path):
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (math.inf, math.inf)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (1.5, 600)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (machine.cpu_quota(tmp_path), machine.memory_left(tmp_path)) == (math.inf, math.inf)
    assert examine().target == "this machine"

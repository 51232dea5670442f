"""Perplexity on text: that of the definition, over windows and documents, and which tokens are predicted."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_model, load_tokenizer, save_folder
from bertworks.cli import main
from bertworks.data.corpus import Document
from bertworks.inference import text_perplexity as module
from bertworks.inference.predictor import Predictor
from bertworks.inference.text_perplexity import ids_of_windows, interval, perplexity
from bertworks.model.build import build_model
from support.tiny_task import TINY, tiny_folder

TEXT = "good film, a b c d e f g h\nbad film.\n\nabc def ghi jkl mno pqr stu vwx yz good bad film a b c d e f\n\na\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folders masked/ and left/ (tokens see what is left of them), and text.txt of three documents."""
    place = tmp_path_factory.mktemp("perplexity")
    tokenizer = load_tokenizer(tiny_folder(place / "masked", seed=5))
    left = build_model(dataclasses.replace(TINY, direction="left"), ("mlm",), seed=6)
    save_folder(place / "left", left, tokenizer)
    (place / "text.txt").write_text(TEXT)
    return place


def by_hand(folder, length):
    """(loss, count) of each document of TEXT, from a left-to-right model, one window at a time."""
    model, tokenizer, sums = load_model(folder), load_tokenizer(folder), []
    for text in TEXT.strip().split("\n\n"):
        ids = [i for line in text.split("\n") for i in tokenizer.encode(line).ids[1:-1]]
        losses = []
        for start in range(0, len(ids), length - 2):
            row = torch.tensor([[tokenizer.cls_id, *ids[start : start + length - 2]]])
            with torch.no_grad():
                hidden = model.encode({"input_ids": row, "attention_mask": row >= 0, "token_type_ids": row * 0}).packed
                scores = model.masked_lm_logits(hidden).log_softmax(-1)
            losses += [-scores[i - 1, row[0, i]].item() for i in range(1, row.shape[1])]
        sums.append((sum(losses), len(losses)))
    return np.array(sums)


@pytest.mark.parametrize("length", [32, 10])
def test_left_to_right_is_the_definition(place, length):
    found, expected = perplexity(place / "left", [place / "text.txt"], length), by_hand(place / "left", length)
    loss = expected[:, 0].sum() / expected[:, 1].sum()
    assert found["loss"] == pytest.approx(loss, rel=1e-5) and found["perplexity"] == pytest.approx(
        math.exp(loss), rel=1e-5
    )
    assert found["documents"] == 3 and found["predicted"] == found["tokens"] == expected[:, 1].sum()
    assert found["interval"] == pytest.approx(interval(expected), rel=1e-4)
    assert found["interval"][0] < found["perplexity"] < found["interval"][1]


def test_masked_models_predict_the_same_share(place, monkeypatch):
    asked = []
    losses = module.summed_losses

    def seen(loaded, questions):
        asked.extend(questions)
        return losses(loaded, questions)

    monkeypatch.setattr(module, "summed_losses", seen)
    found = perplexity(place / "masked", [place / "text.txt"], 10)
    again = perplexity(place / "masked", str(place / "text.txt"), 10)  # one file, as well as a list
    assert found == again and "perplexity" not in found
    ids, labels = (np.concatenate([one[part][0] for one in asked[: len(asked) // 2]]) for part in (1, 2))
    mask = load_tokenizer(place / "masked").mask_id
    assert ((ids == mask) == (labels != -100)).all() and mask not in labels
    assert found["predicted"] == (labels != -100).sum() and 0.1 < found["predicted"] / found["tokens"] < 0.3
    assert perplexity(Predictor(place / "masked"), [place / "text.txt"], 10)["loss"] == found["loss"]
    uniform = math.log(TINY.vocab_size)
    assert found["loss"] == pytest.approx(uniform, rel=0.05)  # fresh weights know nothing
    assert found["masked_perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_one_document_has_no_interval_and_chunks_do_not_matter(place, tmp_path, monkeypatch):
    (tmp_path / "one.txt").write_text("good film\n")
    found = perplexity(place / "left", [tmp_path / "one.txt"])
    assert found["interval"] is None and found["documents"] == 1 and found["predicted"] == 2
    whole = perplexity(place / "masked", [place / "text.txt"], 10)
    monkeypatch.setattr(module, "CHUNK", 1)
    again = perplexity(place / "masked", [place / "text.txt"], 10)
    assert [again["loss"], *again["interval"]] == pytest.approx([whole["loss"], *whole["interval"]], rel=1e-6)


def test_windows_lose_nothing(place):
    tokenizer = load_tokenizer(place / "left")
    for text, expected in (("a b c d\ne", ["a b", "c d", "e"]), ("\n", []), ("f", ["f"])):
        found = ids_of_windows(tokenizer, Document(text, ""), 2)
        assert [tokenizer.decode(ids) for ids in found] == expected


def test_the_command(place, capsys, refused, tmp_path):
    text, out = str(place / "text.txt"), str(tmp_path / "r.json")
    main(["evaluate", str(place / "masked"), "--perplexity", text, "--out", out])
    printed = json.loads(capsys.readouterr().out)
    assert printed["documents"] == 3 and json.loads((tmp_path / "r.json").read_text()) == printed
    message = refused("evaluate", place / "masked", "--perplexity", text, "--label", "x")
    assert "--perplexity cannot be combined with --label" in message

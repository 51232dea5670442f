"""Does B follow A? The next-sentence head of a pre-trained folder, in Python and on the command line."""

import pytest
import torch

from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY, tiny_folder

LONG = "good a b c bad film " * 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pre-trained model whose next-sentence head has an opinion."""
    folder = tiny_folder(tmp_path_factory.mktemp("follow") / "model")
    model = load_model(folder)
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.ndim == 2):
            weight.mul_(10)  # first weights are so small that all pairs look alike
    save_folder(folder.with_name("strong"), model, Tokenizer.load(folder))
    return folder.with_name("strong")


def test_the_probability_is_that_of_the_first_output(folder):
    predictor, rows = Predictor(folder, device="cpu"), [("a b", "c d"), ("good film .", "b"), ("bad", "a , d e f")]
    together = predictor.next_sentence([a for a, _ in rows], [b for _, b in rows])
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    for (a, b), found in zip(rows, together, strict=True):
        encoding = tokenizer.encode(a, b)
        with torch.no_grad():
            out = model.encoder(torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids]))
            expected = float(model.heads["nsp"](out.pooled).softmax(-1)[0, 0])
        assert found == predictor.next_sentence(a, b) | {"score": pytest.approx(found["score"], abs=1e-6)}
        assert found["score"] == pytest.approx(expected, abs=1e-5)
        assert found["follows"] == (expected > 0.5) and found["tokens"] == len(encoding.ids) and found["cut"] == 0
    assert max(one["score"] for one in together) - min(one["score"] for one in together) > 0.02
    assert predictor.next_sentence([], []) == []


def test_long_pairs_are_cut_and_counted(folder):
    predictor = Predictor(folder, max_length=16)
    [found] = predictor.stream(predictor.next_sentence_steps, [(LONG, "a b")])
    whole = len(predictor.tokenizer.tokenize(LONG)) + 2 + 3
    assert found["tokens"] == 16 and found["cut"] == whole - 16
    assert predictor.truncated == {"examples": 1, "tokens": whole - 16}


def test_folders_without_the_head_are_refused(folder, tmp_path):
    tokenizer = Tokenizer.load(folder)
    save_folder(tmp_path / "mlm", build_model(TINY, ("mlm",), seed=1), tokenizer)
    with pytest.raises(InputError, match=r"no next-sentence head.*use a folder pre-trained with next-sentence"):
        Predictor(tmp_path / "mlm").next_sentence("a", "b")
    predictor = Predictor(folder)
    predictor.loaded.model.heads["sop"] = predictor.loaded.model.heads.pop("nsp")
    with pytest.raises(InputError, match=r"sentence-order head.*cannot say whether B follows A"):
        predictor.next_sentence("a", "b")


def test_the_command_prints_the_probability_in_float32(folder, capsys, monkeypatch):
    monkeypatch.setattr("bertworks.inference.engines.has_bfloat16", lambda: True)  # as on a processor with AMX
    expected = Predictor(folder).next_sentence("a b", "good film")
    main(["predict", "next-sentence", str(folder), "a b", "good film"])
    verdict = "follows" if expected["follows"] else "does not follow"
    assert capsys.readouterr().out == f"{expected['score']:.4f}  B {verdict} A\n"

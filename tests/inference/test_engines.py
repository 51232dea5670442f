"""Precisions: bfloat16 gives the same answers as float32 up to its rounding."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import bertworks.inference.engines as engines
import bertworks.inference.model as inference_model
from bertworks.cli.__main__ import main
from bertworks.files import InputError
from bertworks.inference.engines import supported_precision
from bertworks.inference.predictor import Predictor
from bertworks.tasks.inputs import Inputs
from support.processes import predicts_when_forked
from support.tiny_task import TINY, headed_folder, tiny_folder

TEXTS = ["a b c", "good film , bad film", "d", "good a b c " * 5]
HEADS = {  # head: (its kind of task, what a predictor answers)
    "classifier": ("single", lambda p: [row["scores"] for row in p.classify(TEXTS, all_scores=True, raw=True)]),
    "tagger": ("tagging", lambda p: [list(unit["scores"].values()) for text in p.tag_words(TEXTS) for unit in text]),
    "span": ("span", lambda p: p.answerer.score([p.answerer.prepare([("a b", TEXTS[3])])])[0].tolist()),
    "choice": ("choice", lambda p: p.choose("a film", TEXTS)["scores"]),
    "mlm": ("", lambda p: p.mask_filler.score([p.mask_filler.prepare(["a [MASK] c", "[MASK]"])])[0].tolist()),
    "": ("", lambda p: p.embed(TEXTS, pooling="mean").tolist()),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("engines")
    pretrained = tiny_folder(root / "model")

    def folder(head):
        if head in ("", "mlm"):
            return pretrained
        if not (root / head).exists():
            labels = ["O", "B-X", "I-X"] if head in ("classifier", "tagger") else ()
            headed_folder(root / head, pretrained, head, labels, 20, 4, task={"kind": HEADS[head][0]})
        return root / head

    return folder


def flat(values):
    return np.array([number for row in values for number in (row.values() if isinstance(row, dict) else np.ravel(row))])


@pytest.mark.parametrize("head", HEADS)
def test_bfloat16_changes_scores_by_its_rounding(folders, head):
    answers = HEADS[head][1]
    exact, halved = (
        flat(answers(Predictor(folders(head), device="cpu", precision=p))) for p in ("float32", "bfloat16")
    )
    assert exact.shape == halved.shape
    error = np.abs(exact - halved).max() / np.abs(exact).max()
    assert 1e-5 < error < 0.02  # bfloat16 has 8 bits: one rounding is up to 0.4 %


@pytest.mark.parametrize(("fast", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_auto_follows_the_processor(monkeypatch, fast, precision):
    """An older GPU computes bfloat16 by emulation, which torch counts as support unless it is asked not to."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: fast or including_emulation)
    monkeypatch.setattr(engines, "has_bfloat16", lambda: not fast)  # of the CPU beside the GPU
    assert supported_precision("auto", torch.device("cuda")) == precision
    monkeypatch.setattr(engines, "has_bfloat16", lambda: fast)
    for requested, expected in {"auto": precision, "float32": "float32", "bfloat16": "bfloat16"}.items():
        assert supported_precision(requested, torch.device("cpu")) == expected


@pytest.mark.parametrize(
    ("device", "most", "sizes"), [("cpu", 9999, [128, 72]), ("cuda", 9999, [200]), ("cpu", 1, [16] * 12 + [8])]
)
def test_batches_are_larger_on_a_gpu(folders, monkeypatch, device, most, sizes):
    inputs = Inputs.from_ids([[5] * 16] * 200, Predictor(folders(""), device="cpu").tokenizer, 16)  # 3,200 tokens
    monkeypatch.setattr(inference_model, "to_device", lambda batch, device: batch)
    found = [len(rows) for rows, _ in inference_model.batches(inputs, torch.device(device), most)]
    assert found == sizes


def test_few_scores_of_the_vocabulary_are_in_memory(folders, monkeypatch):
    """An export scores every token; other models score those that are requested, here each sixteenth."""
    loaded, sizes = Predictor(folders("mlm"), device="cpu").loaded, []
    monkeypatch.setattr(inference_model, "SCORES", 512 * TINY.vocab_size)
    inputs = Inputs.from_ids([[5] * 16] * 200, loaded.tokenizer, 16)
    for _ in range(2):
        sizes.append([len(scores) for _, scores in loaded.token_scores(inputs, np.arange(3200) % 16 == 0)])
        loaded.__dict__["engine"] = SimpleNamespace(masked=loaded.engine.masked)
    assert sizes == [[128, 72], [32] * 6 + [8]]


def test_a_predictor_says_how_it_computes(folders, monkeypatch):
    monkeypatch.setattr(engines, "has_bfloat16", lambda: True)
    shown = repr(Predictor(folders("mlm"), device="cpu", precision="auto"))
    assert shown.endswith("precision='bfloat16', engine='packed')")
    with pytest.raises(InputError, match=r"^precision = 'int8'; expected one of auto, float32, bfloat16"):
        Predictor(folders("mlm"), precision="int8")


def test_the_verbs_take_a_precision(folders, capsys):
    labels = []
    for precision in ("float32", "bfloat16"):
        main(["predict", str(folders("classifier")), "--string", "good film", "--precision", precision])
        labels.append(capsys.readouterr().out)
    assert labels[0] != labels[1] and labels[0].split('"score"')[0] == labels[1].split('"score"')[0]


def test_a_forked_process_predicts(folders):
    assert predicts_when_forked(folders("classifier"))

"""Plots are drawn from what run folders hold, and from nothing else."""

import json

import pytest

from bertworks.files import InputError
from bertworks.plots import plot_groups, plot_runs, read_run


def fake_run(folder, start=7.0, results=True):
    """A pre-training run of 1,000 steps."""
    folder.mkdir(parents=True)
    records = []
    for step in range(50, 1001, 50):
        loss = start - 3 * step / (step + 300)
        records.append(
            {"kind": "train", "step": step, "mlm_loss": loss + 0.1, "nsp_loss": 0.6, "lr": 1e-3, "grad_norm": 1.0}
            | {"tokens": 2000 * step, "tokens_per_second": 9e3, "memory": 1, "seconds": step / 5, "left": 0.0}
        )
        if step % 250 == 0:
            records.append(
                {"kind": "eval", "step": step, "mlm_loss": loss, "mlm_accuracy": 0.1 + step / 4000, "nsp_loss": 0.6}
                | {"nsp_accuracy": 0.5 + step / 5000, "seconds": step / 5}
            )
    (folder / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + '{"kind": "tr')  # a cut line
    if results:
        (folder / "results.json").write_text(json.dumps({"metrics": {"unigram_entropy": 6.5}}))
    return folder


def words(path):
    """Text in an SVG, which matplotlib draws as glyphs with the text as a comment."""
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("x, label", [("step", "step"), ("tokens", "training tokens"), ("seconds", "minutes of")])
def test_curves_of_several_runs(tmp_path, x, label):
    runs = [fake_run(tmp_path / "a"), fake_run(tmp_path / "b", start=7.5, results=False)]
    png, svg = plot_runs(runs, tmp_path / "out" / "curves", x)
    assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 10_000
    text = words(svg)
    for said in (label, "masked-LM loss", "next-sentence accuracy", "unigram entropy", "thin: training"):
        assert said in text, said


def test_the_ending_says_what_is_written(tmp_path):
    run = fake_run(tmp_path / "run")
    assert plot_runs([run], tmp_path / "one.svg") == [tmp_path / "one.svg"]
    assert "held-out" in words(tmp_path / "one.svg")
    assert not (tmp_path / "one.png").exists()


def test_a_fine_tuning_run(tmp_path):
    folder = tmp_path / "seed-1"
    folder.mkdir()
    records = [
        {"kind": "train", "step": 10, "task_loss": 0.7, "tokens": 100, "seconds": 1.0},
        {"kind": "eval", "step": 10, "loss": 0.6, "accuracy": 0.7, "seconds": 1.0},
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 0.7}, "majority": 0.55}))
    assert "majority class" in words(plot_runs([folder], tmp_path / "f.svg")[0])
    assert read_run(folder).held_out[0]["task_loss"] == 0.6


def test_groups(tmp_path):
    png, svg = plot_groups(
        {"pre-trained": [0.7, 0.8], "random": [0.4]}, tmp_path / "gain", "accuracy", "t", {"majority": 0.2}
    )
    assert png.stat().st_size > 5_000 and "majority 20.0%" in words(svg)


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        plot_runs([tmp_path / "nowhere"], tmp_path / "x")
    with pytest.raises(InputError, match=r"no log\.jsonl in this folder"):
        plot_runs([tmp_path], tmp_path / "x")
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(InputError, match="no record of training"):
        plot_runs([tmp_path], tmp_path / "x")
    with pytest.raises(InputError, match="no run"):
        plot_runs([], tmp_path / "x")
    assert not list(tmp_path.glob("x*"))

"""Plots are drawn from what run folders hold, and from nothing else."""

import json
import re

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from bertworks.files import InputError
from bertworks.reporting import figures as plots
from bertworks.reporting import fonts
from bertworks.reporting.figures import new_figure, plot_runs, read_curves, save_figure
from bertworks.reporting.run_files import runs_in


def write_log(folder, records, end=""):
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + end)
    return folder


def fake_run(folder, start=7.0, results=True):
    """A pre-training run of 1,000 steps."""
    records = []
    for step in range(50, 1001, 50):
        loss, place = start - 3 * step / (step + 300), {"step": step, "seconds": step / 5}
        records.append({"kind": "train", "mlm_loss": loss + 0.1, "nsp_loss": 0.6, "tokens": 2000 * step, **place})
        if step % 250 == 0:
            accuracies = {"mlm_accuracy": 0.1 + step / 4000, "nsp_accuracy": 0.5 + step / 5000}
            records.append({"kind": "eval", "mlm_loss": loss, "nsp_loss": 0.6, **accuracies, **place})
    write_log(folder, records, '{"kind": "tr')  # a cut line
    if results:
        (folder / "results.json").write_text(json.dumps({"metrics": {"unigram_entropy": 6.5}}))
    return folder


def words(path):
    """Text in an SVG, which matplotlib draws as glyphs with the text as a comment."""
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["$x$", "_hidden"])
def test_names_are_drawn_as_they_are_written(tmp_path, monkeypatch, name):
    figures, save = [], plots.save_figure
    monkeypatch.setattr(plots, "save_figure", lambda figure, out: figures.append(figure) or save(figure, out))
    plot_runs([fake_run(tmp_path / name), fake_run(tmp_path / "other")], tmp_path / "out.svg")
    [legend] = figures[0].legends
    assert [text.get_text().strip() for text in legend.texts][:2] == [name, "other"]
    assert not any(text.get_parse_math() for text in legend.texts)  # nothing was taken for a formula
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figures[0].bbox.x1


def test_korean_is_drawn_in_an_installed_font(tmp_path, monkeypatch):
    """Also in one that was installed after matplotlib had made its list of fonts."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0)), pen.lineTo((0, 700)), pen.lineTo((700, 700)), pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "ga"])
    builder.setupCharacterMap({ord("가"): "ga"})
    builder.setupGlyf({".notdef": pen.glyph(), "ga": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "ga": (1000, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "NanumGothic", "styleName": "Regular", "psName": "NanumGothic"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(tmp_path / "ga.ttf")
    own = [entry for entry in font_manager.fontManager.ttflist if "site-packages" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(tmp_path / "ga.ttf")])
    fonts.fallbacks.cache_clear()
    figure = new_figure(3, 3)
    figure.add_subplot().set(xlabel="a가", ylabel="\U000f0000", title="가")
    [svg] = save_figure(figure, tmp_path / "texts.svg")
    assert fonts.fallbacks() == ["NanumGothic"] and re.search('id="NanumGothic-', words(svg))
    fonts.fallbacks.cache_clear()


@pytest.mark.parametrize("x, label", [("step", "step"), ("tokens", "training tokens"), ("seconds", "minutes of")])
def test_curves_of_several_runs(tmp_path, x, label):
    runs = [fake_run(tmp_path / "a"), fake_run(tmp_path / "b", start=7.5, results=False)]
    png, svg = plot_runs(runs, tmp_path / "out" / "curves", x)
    assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 10_000
    text = words(svg)
    for said in (label, "masked-LM loss", "next-sentence accuracy", "unigram entropy", "thin: training"):
        assert said in text, said


def test_a_fine_tuning_run(tmp_path):
    records = [
        {"kind": "train", "step": 10, "task_loss": 0.7, "tokens": 100, "seconds": 1.0},
        {"kind": "eval", "step": 10, "loss": 0.6, "accuracy": 0.7, "seconds": 1.0},
    ]
    folder = write_log(tmp_path / "seed-1", records)
    (folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 0.7}, "majority": 0.55}))
    assert "majority class" in words(plot_runs([folder], tmp_path / "f.svg")[0])
    assert read_curves(folder).held_out[0]["task_loss"] == 0.6


def a_log(folder, steps, metric="mlm_loss", **last):
    records = [{"kind": "train", "step": s, metric: 3.0, "tokens": 10 * s, "seconds": s / 10} for s in steps]
    records[-1] |= last
    records.append({"kind": "eval", "step": steps[-1], metric: 2.5, metric.replace("loss", "accuracy"): 0.3})
    return write_log(folder, records)


def curves(monkeypatch, runs, x="step"):
    """The points of all curves, by label of the vertical axis."""
    found = {}

    def keep(figure, out):
        for axes in figure.axes:
            lines = [line.get_xydata().tolist() for line in axes.get_lines() if line.get_linestyle() != ":"]
            found[axes.get_ylabel()] = lines
        return []

    monkeypatch.setattr(plots, "save_figure", keep)
    plot_runs(runs, "nowhere", x)
    return found


@pytest.mark.parametrize("steps", [[50, 100, 150, 153], [3], [50, 100]])
def test_a_held_out_record_is_drawn_at_the_place_of_its_step(tmp_path, monkeypatch, steps):
    run = a_log(tmp_path / "a", steps, mlm_loss=9.0)
    for x, end in (("step", steps[-1]), ("tokens", 10 * steps[-1]), ("seconds", steps[-1] / 600)):
        training, held_out = curves(monkeypatch, [run], x)["masked-LM loss (nats)"]
        assert len(training) == len(steps) and held_out == [[pytest.approx(end), 2.5]]


def test_runs_of_different_objectives_have_a_panel_each(tmp_path, monkeypatch):
    runs = [a_log(tmp_path / name, [50, 100], f"{name}_loss") for name in ("mlm", "ltr", "rtl")]
    (runs[1] / "results.json").write_text(json.dumps({"metrics": {"unigram_entropy": 6.5}}))
    (svg,) = plot_runs(runs, tmp_path / "three.svg")
    for said in ("masked-LM loss", "left-to-right LM loss", "right-to-left LM accuracy", "unigram entropy"):
        assert said in words(svg)
    found = curves(monkeypatch, runs)
    assert len(found) == 6 and all(len(lines) == (2 if "loss" in name else 1) for name, lines in found.items())


def test_a_folder_of_seeds_is_its_runs_and_one_of_other_runs_says_which_there_are(tmp_path, monkeypatch):
    for seed in (2, 10, 1):
        a_log(tmp_path / "ft" / f"seed-{seed}", [50, 100])
    assert [run.name for run in runs_in(tmp_path / "ft")] == ["seed-1", "seed-2", "seed-10"]
    assert len(curves(monkeypatch, [tmp_path / "ft"])["masked-LM loss (nats)"]) == 6
    a_log(tmp_path / "study" / "cells" / "pretrain-1", [50])
    for seed in range(9):
        a_log(tmp_path / "study" / "cells" / f"finetune-{seed}", [50])
    with pytest.raises(InputError, match=r"study is a folder of 10 runs; give .*cells/finetune-0"):
        plot_runs([tmp_path / "study"], tmp_path / "x")
    with pytest.raises(InputError, match="13 runs"):
        plot_runs([tmp_path], tmp_path / "x")


def test_the_reliability_of_classifiers_is_drawn(tmp_path):
    table = [{"count": 10, "confidence": 0.55, "accuracy": 0.4}, {"count": 30, "confidence": 0.95, "accuracy": 0.9}]
    for name, ece in (("one", 0.05), ("other", 0.25)):
        run = fake_run(tmp_path / name)
        (run / "results.json").write_text(json.dumps({"metrics": {}, "ece": ece, "reliability": table}))
    [file] = plot_runs([tmp_path / "one"], tmp_path / "one.svg")
    assert "ECE 5.0%" in words(file) and "share that is right" in words(file) and "calibrated" in words(file)
    [file] = plot_runs([tmp_path / "one", tmp_path / "other"], tmp_path / "both.svg")
    assert "share that is right" in words(file)
    assert "share that is right" not in words(plot_runs([fake_run(tmp_path / "none")], tmp_path / "none.svg")[0])

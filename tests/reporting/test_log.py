"""The log of a run: what is written."""

import json
import math

from bertworks.reporting.log import Reporter
from bertworks.reporting.run_files import read_log


def test_what_is_no_number_is_written_as_null(tmp_path):
    Reporter(tmp_path, 0, quiet=True).record("train", {"step": 1, "mlm_loss": math.nan, "grad_norm": math.inf})
    assert json.loads((tmp_path / "log.jsonl").read_text()) == {
        "kind": "train", "step": 1, "mlm_loss": None, "grad_norm": None,
    }  # fmt: skip


def test_a_resumed_run_drops_what_it_will_write_again(tmp_path):
    lines = [
        f'{{"kind": "{kind}", "step": {step}, "loss": null}}\n' for step in (1, 2, 3) for kind in ("train", "eval")
    ]
    for step, over, kept in ((2, False, 4), (2, True, 3), (0, False, 0), (3, True, 5)):
        (tmp_path / "log.jsonl").write_text("".join(lines))
        Reporter(tmp_path, step, quiet=True, over=over)
        found = [(record["kind"], record["step"]) for record in read_log(tmp_path)]
        assert found == [("train", 1), ("eval", 1), ("train", 2), ("eval", 2), ("train", 3)][:kept]


def test_a_run_says_once_how_long_it_will_train(tmp_path, capsys):
    """After a few updates, from the seconds of training alone: evaluations lie between them."""
    for quiet, said in ((False, "about 2 min 54 s of training to go at this pace\n"), (True, "")):
        reporter = Reporter(tmp_path, 10, quiet)  # resumed at step 10 of 100
        for step in range(11, 31):
            reporter.progress(step / 100, "", 100 + 2.0 * step)
        assert capsys.readouterr().err == said  # 87 steps after the 13th
    reporter = Reporter(tmp_path, 0)
    for step in range(1, 101):
        reporter.progress(step / 100, "", 0.01 * step)
    assert capsys.readouterr().err == ""  # it ends before anybody has read the line

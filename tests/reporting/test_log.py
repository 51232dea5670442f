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

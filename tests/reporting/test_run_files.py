"""What runs wrote is read back; what was changed since gives one message with file and field."""

import json
import re
import subprocess

import pytest

from bertworks.files import InputError
from bertworks.reporting import run_files
from bertworks.reporting.run_files import read_json_lines, read_log, read_results

FORM = {
    "kind": str,
    "metrics": {str: float},
    "steps?": int,
    "pair?": [float, float],
    "count?": range(10),
    "runs": [{"seed": (int, None)}],
}
GOOD = {"kind": "finetune", "metrics": {"f1": 0.5, "loss": 1}, "runs": [{"seed": 1}, {"seed": None}], "more": [True]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": 3}, "kind = 3; expected a text"),
        ({"metrics": {"f1": "high"}}, "metrics.f1 = 'high'; expected a number"),
        ({"metrics": {"f1": True}}, "metrics.f1 = True; expected a number"),
        ({"runs": [{"seed": 1}, {}]}, "no field runs[1].seed; expected seed"),
        ({"pair": [1]}, "pair = [1]; expected a list of 2"),
        ({"count": 10}, "count = 10; expected 0 to 9"),
    ],
)
def test_a_field_of_another_form_is_named(tmp_path, change, problem):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(InputError, match=re.escape(f"{path}: {problem}; restore the file")):
        read_results(path, FORM)


RECORD = '{"kind": "train", "step": 1, "loss": 2.5, "left": null}\n'


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ('{"kind": "train", "st\n', "not valid JSON"),
        ("[]\n", "found []; expected a table"),
        ('{"kind": "train", "step": 2, "loss": [1]}\n', "loss = [1]; expected a number"),
        ("\xff\n", "not valid JSON"),
    ],
)
def test_a_damaged_line_of_a_log_is_named(tmp_path, second, problem):
    (tmp_path / "log.jsonl").write_text(RECORD + second + RECORD, encoding="latin-1")
    with pytest.raises(
        InputError, match=re.escape(f"{tmp_path / 'log.jsonl'}, line 2: {problem}") + ".*remove the line"
    ):
        read_log(tmp_path)


def test_a_last_line_that_was_cut_is_left_out(tmp_path):
    for end in ("", '{"kind": "tr', "\0\0\0"):
        (tmp_path / "log.jsonl").write_text(RECORD * 2 + end)
        assert [record["step"] for record in read_log(tmp_path)] == [1, 1]
    (tmp_path / "log.jsonl").write_text(RECORD * 2 + '{"line": 3')
    with pytest.raises(InputError, match="line 3: not valid JSON"):
        read_json_lines(tmp_path / "log.jsonl", {})


def test_a_commit_is_that_of_a_checkout_with_this_file_in_it(tmp_path, monkeypatch):
    """With uncommitted changes it says so; an installed copy inside another repository has none."""

    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True)

    (tmp_path / "code.py").write_text("a = 1\n")
    for words in (("init", "-q"), ("add", "code.py"), ("commit", "-qm", "first"), ("tag", "v1")):
        git(*words)
    monkeypatch.setattr(run_files, "__file__", str(tmp_path / "code.py"))
    assert re.fullmatch(r"[0-9a-f]{12}", run_files.commit())
    (tmp_path / "code.py").write_text("a = 2\n")
    assert re.fullmatch(r"[0-9a-f]{12}-dirty", run_files.commit())
    (tmp_path / "installed.py").write_text("a = 1\n")
    monkeypatch.setattr(run_files, "__file__", str(tmp_path / "installed.py"))
    assert run_files.commit() is None

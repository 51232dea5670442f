"""Tables of results on a terminal and as Markdown."""

import pytest
from rich.cells import cell_len

from bertworks.reporting.results import Rows
from bertworks.reporting.tables import ResultTable

SHEET = ResultTable(
    "Runs",
    ("run", "state", "took"),
    [("LTR & No NSP + BiLSTM: incomprehensibilities, seed 1", "missing", "1 min 09 s")],
    ("In brackets: [nothing].",),
)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_narrow_terminal_names_are_broken_and_numbers_stay_whole(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    SHEET.show()
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith("│")]
    name = "".join(line.split("│")[1].strip() for line in lines).replace(" ", "")
    assert "missing" in shown and "1 min 09 s" in shown and "…" not in shown
    assert name == SHEET.rows[0][0].replace(" ", "") and len(lines) == {40: 5, 80: 1, 200: 1}[columns]
    assert shown.endswith("In brackets: [nothing].\n")


WIDE = {
    "label": "good",
    "score": 0.5,
    "scores": {"good": 0.5, "very bad indeed": 0.25, "fair": 0.25},
    "windows": 1,
    "tokens": 12,
    "cut": 0,
}


@pytest.mark.parametrize(
    "row", [WIDE, {"text": "아주 좋은 영화였다 " * 20, **WIDE}, {"text": "가" * 28, "label": "나" * 7, "cut": 1}]
)
def test_rows_print_in_80_columns(row):
    text = repr(Rows([row] * 12))
    assert max(map(cell_len, text.splitlines())) <= 80 and len(text.splitlines()) <= 17
    assert "12 rows" in text and "2 more rows" in text


def test_names_end_no_cell_and_are_no_html():
    sheet = ResultTable("a <b>\ntitle", ("task", "mean"), [("x|y <script>alert(1)</script>", "1.0")], ("R&D <i>",))
    text = sheet.markdown()
    assert "# a \\<b> title" in text and "| x\\|y \\<script>alert(1)\\</script> | 1.0 |" in text
    assert "R&D \\<i>" in text and text.count("\n") == 7

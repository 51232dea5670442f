"""The notebooks of the docs run from their first cell to their last, offline, in an empty folder."""

import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SMALLER = {  # for a test
    "own-csv": {'"steps": 96, "log_every": 32, "eval_every": 48': '"steps": 6, "log_every": 2, "eval_every": 3'},
    "own-text": {'"steps": 200': '"steps": 20', 'log_every": 40, "eval_every": 50': 'log_every": 5, "eval_every": 10'},
    "scikit-learn": {"len(seen) < 40": "len(seen) < 6", '"steps": 30': '"steps": 3', ", cv=3)": ", cv=2)"},
}


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_are_three_and_they_were_executed():
    nbformat = pytest.importorskip("nbformat")
    assert [path.stem for path in NOTEBOOKS] == ["own-csv", "own-text", "scikit-learn"]
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, 4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], path.name
        assert len(outputs(notebook)) >= 5 and not [one for one in outputs(notebook) if one.output_type == "error"]
        assert not re.search(r"/(home|root|tmp|opt|usr|work)/", path.read_text("utf-8")), "a path of somebody's machine"
        assert path.stat().st_size < 200_000, path.name


@pytest.mark.heavy
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, 4)
    kinds = [output.output_type for output in outputs(notebook)]
    for old, new in SMALLER[path.stem].items():
        assert any(old in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)
    here = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=here).execute()
    made = [output.output_type for output in outputs(notebook)]
    assert made.count("execute_result") == kinds.count("execute_result")
    assert made.count("display_data") == kinds.count("display_data")

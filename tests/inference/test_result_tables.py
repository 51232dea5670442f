"""Predictions as tables and with their inputs; the columns of the fine-tuning table are remembered."""

import csv
import json

import pytest

import bertworks
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.files import table_rows
from support.tiny_task import tiny_folder, tiny_table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run on a table with the columns review and verdict, several/ with two labels a row, and rows.csv."""
    place = tmp_path_factory.mktemp("tables")
    tiny_folder(place / "model")
    tiny_table(place / "plain.csv", 24, seed=1)
    text = (place / "plain.csv").read_text()
    (place / "table.csv").write_text(text.replace("label,text", "verdict,review", 1))
    (place / "marks.csv").write_text("review,law,art\n" + "".join(f"{'ab'[i % 2]} film,{i % 2},1\n" for i in range(8)))
    (place / "rows.csv").write_text('id,review,label\n7,"good film, a",x\n8,,y\n9,bad film,z\n')
    line = ["finetune", str(place / "model"), "--loop.steps", "2", "--max-seq-length", "16", "--text", "review"]
    files = ["--train", str(place / "table.csv"), "--dev", str(place / "table.csv"), "--out", str(place / "run")]
    main([*line, *files, "--label", "verdict"])
    files = ["--train", str(place / "marks.csv"), "--dev", str(place / "marks.csv"), "--out", str(place / "several")]
    main([*line, *files, "--label", "law,art", "--kind", "multilabel"])
    return place


def predict(place, capsys, *more, model="run"):
    main(["predict", str(place / model), str(place / "rows.csv"), *more])
    return capsys.readouterr().out


def read(path, separator=","):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=separator))


def test_a_table_has_the_results_of_json(place, capsys, tmp_path):
    lines = [json.loads(line) for line in predict(place, capsys, "--all-scores").splitlines()]
    for name, separator in (("out.csv", ","), ("out.tsv", "\t")):
        predict(place, capsys, "--all-scores", "--out", str(tmp_path / name))
        rows = read(tmp_path / name, separator)
        assert [*rows[0]] == ["line", "label", "score", "scores.bad", "scores.good", "windows", "tokens", "cut"]
        for row, line in zip(rows, lines, strict=True):
            assert row["line"] == str(line["line"])
            if line.get("empty"):
                assert not any(value for name, value in row.items() if name != "line")
            else:
                assert row["label"] == line["label"] and float(row["score"]) == line["score"]
                assert float(row["scores.bad"]) == line["scores"]["bad"]


def test_an_earlier_file_is_replaced_with_a_notice(place, capsys, tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("good film\n")
    for notice in (False, True):
        main(["predict", str(place / "run"), str(source), "--out", str(tmp_path / "out.csv")])
        assert ("replacing the earlier" in capsys.readouterr().err) == notice


def test_inputs_are_echoed(place, capsys, tmp_path):
    lines = [json.loads(line) for line in predict(place, capsys, "--echo").splitlines()]
    assert [line["input"] for line in lines] == ["good film, a", "", "bad film"]
    predict(place, capsys, "--echo", "--out", str(tmp_path / "out.csv"))
    rows = read(tmp_path / "out.csv")
    assert [*rows[0]][:3] == ["line", "input", "label"]
    assert rows[0]["input"] == "good film, a" and rows[1]["label"] == "" and rows[2]["input"] == "bad film"
    (tmp_path / "empty.txt").write_text("\n\n")
    main(["predict", str(place / "run"), str(tmp_path / "empty.txt"), "--out", str(tmp_path / "e.csv")])
    assert read(tmp_path / "e.csv") == [{"line": "1"}, {"line": "2"}]
    assert [*table_rows([{"input": ["a", "b"], "label": "c"}])] == [["input", "label"], ['["a", "b"]', "c"]]


def test_values_in_tables_and_in_python(place, tmp_path):
    again = bertworks.predict(place / "run", ["good film"], out=tmp_path / "python.csv")  # no JSON lines in a .csv
    assert float(read(tmp_path / "python.csv")[0]["score"]) == again[0]["score"] and "line" not in again[0]


def test_predictions_are_not_written_as_what_they_are_not(place, refused, tmp_path):
    for name in ("out.parquet", "out.xlsx"):
        message = refused("predict", place / "run", place / "rows.csv", "--out", tmp_path / name)
        assert f"{name}: expected a name that ends in .jsonl" in message
        with pytest.raises(InputError, match=r"expected a name that ends in \.jsonl"):
            bertworks.predict(place / "run", ["good film"], out=tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_excel_reads_a_table_with_a_byte_order_mark(place, capsys, refused, tmp_path):
    predict(place, capsys, "--out", str(tmp_path / "plain.csv"))
    predict(place, capsys, "--out", str(tmp_path / "excel.csv"), "--excel")
    assert (tmp_path / "excel.csv").read_bytes() == b"\xef\xbb\xbf" + (tmp_path / "plain.csv").read_bytes()
    message = refused("predict", place / "run", place / "rows.csv", "--out", tmp_path / "out.jsonl", "--excel")
    assert "expected a name that ends in .csv or .tsv" in message


def test_evaluate_knows_the_columns(place, capsys, refused):
    found = []
    for more in ((), ("--text", "review", "--label", "verdict")):
        main(["evaluate", str(place / "run"), "--dev", str(place / "table.csv"), *more])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and "accuracy" in found[0]["metrics"]
    main(["evaluate", str(place / "several"), "--dev", str(place / "marks.csv")])  # kind and one-hot columns
    assert "micro_f1" in json.loads(capsys.readouterr().out)["metrics"]
    main(["evaluate", str(place / "run"), "--dev", str(place / "plain.csv"), "--text", "text", "--label", "label"])
    assert json.loads(capsys.readouterr().out) == found[0]
    message = refused("evaluate", place / "run", "--dev", place / "plain.csv", "--text", "text")
    assert "no column 'verdict'" in message

"""Which columns and rows `predict`, `features` and `evaluate` read of a table, and what they refuse."""

import json
from pathlib import Path

import pandas
import pytest

import bertworks
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.evaluation import Evaluation
from bertworks.inference.model import LoadedModel
from bertworks.tasks.selection import DevRows
from bertworks.tasks.tags import chunks
from support.tiny_task import headed_folder, tiny_folder

LABELS = ["art", "law"]
ROWS = [("a b", "law"), ("c d e", "art"), ("bad film", "law"), ("good", "art")]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("columns") / "model")


def classifier(pretrained: Path, folder: Path, *text: str) -> Path:
    """A classifier that was fine-tuned on these columns of a table."""
    task = {"kind": "single", "name": "table", "text": [*text], "choices": [], "label": "label"}
    return headed_folder(folder, pretrained, "classifier", LABELS, max_length=16, task=task)


@pytest.fixture(scope="module")
def of_text(pretrained) -> Path:
    return classifier(pretrained, pretrained.parent / "of-text", "text")


def test_a_column_with_a_comma_in_its_name_is_remembered(pretrained, tmp_path, capsys, refused):
    """Beside a column of the default name, by which `evaluate` would judge other texts."""
    folder = classifier(pretrained, tmp_path / "m", "text, raw")
    rows = [{"text": "x", "text, raw": text, "label": label} for text, label in ROWS]
    expected = bertworks.evaluate(folder, rows, text=["text, raw"]).metrics
    assert expected != bertworks.evaluate(folder, rows, text="text").metrics
    assert bertworks.evaluate(folder, rows).metrics == expected
    assert bertworks.evaluate(folder, pandas.DataFrame(rows).drop(columns="text")).metrics == expected
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    main(["evaluate", str(folder), "--dev", str(tmp_path / "a.csv")])
    assert json.loads(capsys.readouterr().out)["metrics"] == expected
    assert "no column ' raw'" in refused("predict", folder, tmp_path / "a.csv", "--text", "text, raw")


def test_several_answers_of_a_model_that_answers_nothing_are_refused(of_text, tmp_path, refused):
    with pytest.raises(InputError, match="n_best = 3: the model is of the kind single; several answers need"):
        bertworks.predict(of_text, ["a b"], n_best=3)
    message = refused("predict", of_text, "--string", "a b", "--n-best", "3", "--out", tmp_path / "a.jsonl")
    assert "leave it out" in message and not (tmp_path / "a.jsonl").exists()


# ---- suffixes of names


@pytest.mark.parametrize("suffix", [".CSV", ".TXT"])
def test_suffixes_are_known_in_capitals(of_text, tmp_path, capsys, suffix):
    frame = pandas.DataFrame([{"text": text, "label": label} for text, label in ROWS])
    path = tmp_path / f"a{suffix}"
    frame.to_csv(path, index=False, sep="," if suffix == ".CSV" else "\t")
    expected = bertworks.predict(of_text, [text for text, _ in ROWS])
    found = bertworks.predict(of_text, str(path))
    assert [{**row, "line": 0} for row in found] == [{"line": 0, **row} for row in expected]
    assert bertworks.evaluate(of_text, str(path)).metrics == bertworks.evaluate(of_text, frame).metrics
    assert len(bertworks.features(of_text, str(path), pool="mean")) == 4
    main(["predict", str(of_text), str(path), "--out", str(tmp_path / "p.CSV")])
    assert len(pandas.read_csv(tmp_path / "p.CSV")) == 4
    assert capsys.readouterr().err == f"4 inputs: {tmp_path / 'p.CSV'}\n"


def test_a_txt_is_a_table_if_its_first_line_names_the_columns(of_text, tmp_path, capsys):
    """Other files .txt are lines."""
    lines = ["id\ttext\tlabel", *(f"{i}\t{text}\t{label}" for i, (text, label) in enumerate(ROWS))]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    for verb in (["predict"], ["features", "--pool", "mean", "--out", str(tmp_path / "x.safetensors")]):
        main([verb[0], str(of_text), str(tmp_path / "a.txt"), *verb[1:]])
        assert capsys.readouterr().err.startswith(("4 inputs", "4 texts"))
    expected = [row["score"] for row in bertworks.predict(of_text, [text for text, _ in ROWS])]
    assert [row["score"] for row in bertworks.predict(of_text, tmp_path / "a.txt")] == expected
    (tmp_path / "b.txt").write_text("\n".join(lines[1:]) + "\n")
    main(["predict", str(of_text), str(tmp_path / "b.txt")])
    assert capsys.readouterr().err == "4 inputs\n"
    for first in ("text", "the text and its label"):
        (tmp_path / "c.txt").write_text(f"{first}\na b\n")
        main(["predict", str(of_text), str(tmp_path / "c.txt")])
        assert capsys.readouterr().err == "2 inputs\n"


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_parts_of_one_file_are_predicted(of_text, tmp_path, capsys, name):
    """The rows that `evaluate` reads of it."""
    texts = [f"{a} {b}" for a in "abcdef" for b in "abcdef"]
    frame = pandas.DataFrame({"text": texts, "label": ["law", "art"] * 18})
    frame.to_csv(tmp_path / name, index=False, sep="," if name == "a.csv" else "\t")
    parts = [bertworks.predict(of_text, f"{tmp_path / name}#{part}") for part in ("train", "dev")]
    main(["evaluate", str(of_text), "--dev", f"{tmp_path / name}#dev"])
    assert 0 < len(parts[1]) == json.loads(capsys.readouterr().out)["examples"] < len(parts[0])
    assert sorted(row["line"] for part in parts for row in part) == [*range(2, 38)]
    main(["predict", str(of_text), f"{tmp_path / name}#dev"])
    assert capsys.readouterr().out.count("\n") == len(parts[1])
    assert len(bertworks.features(of_text, f"{tmp_path / name}#dev", pool="mean")) == len(parts[1])


# ---- words of a tagger


def tagger_of(pretrained: Path, folder: Path, column: str, characters: bool = False) -> Path:
    """A tagger that was fine-tuned on this column of words."""
    task = {"kind": "tagging", "name": "table", "words": [column], "label": "tags", "characters": characters}
    return headed_folder(folder, pretrained, "tagger", ["O", "B-X", "I-X", "B-Y", "I-Y"], task=task)


@pytest.mark.parametrize("characters", [False, True])
def test_a_tagger_reads_the_words_of_fine_tuning(pretrained, tmp_path, capsys, refused, characters):
    """Its units are these words, whatever marks they have; a column of texts is divided by the tokenizer."""
    column = "character" if characters else "words"
    folder = tagger_of(pretrained, tmp_path / "m", column, characters)
    words = [list("a, b"), list("cd")] if characters else [["a,b", "c", "d.", "(e"], ["good", "film,"]]
    between = "" if characters else " "
    rows = [{column: between.join(one), "tags": " ".join(["O"] * len(one))} for one in words]
    lists = [{column: one, "tags": ["O"] * len(one)} for one in words]
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    found = [bertworks.predict(folder, data) for data in (rows, lists)]
    for name, given in (("a.csv", []), ("a.jsonl", []), ("a.jsonl", ["--text", column])):
        main(["predict", str(folder), str(tmp_path / name), *given])
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    entities = [[row["entities"] for row in one] for one in found]
    assert all(one == entities[0] for one in entities) and any(entities[0])
    source = DevRows(dev=rows, kind="tagging", text=column, label="tags").read()
    expected = Evaluation.prepare(LoadedModel.load(folder), *source).run()
    for row, text, units in zip(expected.files["predictions.jsonl"], entities[0], words, strict=True):
        starts = [len(between.join([*units[:i], ""])) for i in range(len(units))]
        spans = [(starts[a], starts[b - 1] + len(units[b - 1])) for _, a, b in chunks(row["predicted"])]
        assert [(entity["start"], entity["end"]) for entity in text] == spans
    wide = [{column: f"  {row[column].replace(' ', '  ')}"} for row in rows] if not characters else []
    for row, one, before in zip(wide, bertworks.predict(folder, wide), entities[0], strict=False):  # blanks stay
        texts = [[e["text"].split() for e in each] for each in (one["entities"], before)]
        assert texts[0] == texts[1]
        assert all(row[column][e["start"] : e["end"]] == e["text"] for e in one["entities"])
    raw = [row[column] for row in rows]
    assert bertworks.predict(folder, [{"text": text} for text in raw]) == bertworks.predict(folder, raw)
    (tmp_path / "b.csv").write_text("a,b\nc,d\n")
    assert f"no column '{column}'" in refused("predict", folder, tmp_path / "b.csv")


NER = "#\tnews\n1\ta\tB-X\tO\n2\tb\tO\tO\n\n1\tc\tB-Y\tB-Y\n2\td\tI-Y\tO\n"
FILES = {
    "a.conll": "a B-X\nb O\n\nc B-Y\nd I-Y\n",
    "a.txt": "-DOCSTART- O\n\na X B-X\nb X O\n\nc X B-Y\nd X I-Y\n",
    "eng.testa": "a B-X\nb O\n\nc B-Y\nd I-Y\n",
    "b.conll": NER,
    "NER-de.tsv": NER,
    "rows.json": json.dumps([{"words": ["a", "b"], "tags": ["O", "O"]}, {"words": ["c", "d"], "tags": ["O", "O"]}]),
    "doccano.json": json.dumps([{"text": "a b", "label": [[0, 1, "X"]]}, {"text": "c d", "label": []}]),
    "prodigy.jsonl": "".join(
        json.dumps({"text": text, "spans": [], "answer": answer}) + "\n"
        for text, answer in (("a b", "accept"), ("c d", "reject"))
    ),
}


@pytest.fixture(scope="module")
def tagger(pretrained) -> Path:
    return tagger_of(pretrained, pretrained.parent / "tagger", "words")


@pytest.mark.parametrize("name", FILES)
def test_a_tagger_predicts_for_every_form_of_labelled_files(tagger, tmp_path, capsys, name):
    """The sentences that `evaluate` reads, without their tags."""
    (tmp_path / name).write_text(FILES[name])
    expected = bertworks.predict(tagger, ["a b", "c d"])
    found = bertworks.predict(tagger, tmp_path / name)
    assert [{**row, "line": 0} for row in found] == [{**row, "line": 0} for row in expected]
    main(["predict", str(tagger), str(tmp_path / name), "--echo"])
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["input"] for row in shown] == ["a b", "c d"]


def test_columns_of_words_are_chosen_and_texts_stay_texts(tagger, of_text, tmp_path, refused):
    (tmp_path / "a.conll").write_text("1 x a\n2 x b\n")
    [found], [expected] = bertworks.predict(tagger, tmp_path / "a.conll", text="3"), bertworks.predict(tagger, ["a b"])
    assert found["entities"] == expected["entities"]
    message = refused("predict", tagger, tmp_path / "a.conll", "--text", "lemma")
    assert "no column 'lemma'; expected its number, 1 to 3" in message
    assert len(bertworks.predict(of_text, tmp_path / "a.conll")) == 1  # a sentence, for a classifier too
    assert len(bertworks.features(of_text, tmp_path / "a.conll", pool="mean")) == 1
    (tmp_path / "a.txt").write_text("good film\nbad film\n")  # two words in each line, but no tags
    assert len(bertworks.predict(tagger, tmp_path / "a.txt")) == 2

"""Files with a word per line: which columns are words and tags, comments, documents, and what is refused."""

import unicodedata
from pathlib import Path

import pytest

from bertworks.files import InputError
from bertworks.tasks.base import Task
from bertworks.tasks.kinds import own_task, read_rows, split_data
from bertworks.tasks.sampling import Split
from bertworks.tasks.sentences import characters_of, read

GERMEVAL = "#\tn-tv.de [2005]\n1\tKim\tB-PER\tO\n2\tin\tO\tO\n3\tYork\tB-LOC\tB-LOC\n\n#\tdpa [2006]\n1\tgeht\tO\tO\n"
CONLLU = """# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
2.1\tvamos\tir\tVERB\tV\t_\t_\t_\t_\t_
3\ten mar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_
"""
WORDS = ["Vamos", "nos", "en mar"]
EMPTY = f"{CONLLU.splitlines()[2]}\n\n"  # a sentence of a range of words alone


def sentences(path: Path, content: str, text: str = "text", label: str = "label") -> list[tuple[list[str], list[str]]]:
    path.write_text(content, "utf-8")
    rows = read(own_task("tagging", (text,), label), path)
    return [([row.text[a:b] for a, b in row.units], [*(row.tags or ())]) for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "columns", "words", "tags"),
    [
        ("a.tsv", GERMEVAL, ("text", "3"), ["Kim", "in", "York"], ["B-PER", "O", "B-LOC"]),
        ("a", "0 Kim B-PER\n1 ran O\n", (), ["Kim", "ran"], ["B-PER", "O"]),
        ("a.conllu", CONLLU, ("text", "4"), WORDS, ["VERB", "PRON", "NOUN"]),
        ("a.txt", CONLLU, ("3", "5"), ["ir", "nosotros", "mar"], ["V", "P", "N"]),
        ("a", "# id 7\tdomain=en\nKim _ _ B-PER\nran _ _ O\n\n# 8\na _ _ O\n", (), ["Kim", "ran"], ["B-PER", "O"]),
        ("a", "# O\nKim B-PER\n", (), ["#", "Kim"], ["O", "B-PER"]),  # a word, not a comment
        ("a", "Kim\tNNP\tB-NP\tB-PER\nran\tVB\tB-VP\tO\n", ("word", "2"), ["Kim", "ran"], ["NNP", "VB"]),
        ("a", "1 X\n2 Y\n", (), ["1", "2"], ["X", "Y"]),
        ("a", "1-2 ab O\n1 a O\n2 b B-X\n", (), ["a", "b"], ["O", "B-X"]),
        ("a", f"Kim{' _' * 8} B-PER\nran{' _' * 8} O\n", (), ["Kim", "ran"], ["B-PER", "O"]),  # ten columns
        ("a", EMPTY + CONLLU, ("word", "4"), WORDS, ["VERB", "PRON", "NOUN"]),
        ("a", "a b:1 B-NP B-PER\nb b:2 O O\n", (), ["a", "b"], ["B-PER", "O"]),
        ("a.tsv", "Kim\tB-PER\n#1\tO\n", (), ["Kim", "#1"], ["B-PER", "O"]),  # BioBERT's: no names of columns
    ],
)
def test_columns(tmp_path: Path, name: str, content: str, columns: tuple[str, str], words: list[str], tags: list[str]):
    assert sentences(tmp_path / name, content, *columns)[0] == (words, tags)


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        (GERMEVAL, ("2", "outer"), "no column 'outer'; expected its number, 1 to 4"),
        (GERMEVAL, ("2", "5"), "no column '5'; expected its number, 1 to 4"),
        (GERMEVAL, ("text", "label"), "4 columns with numbered words; name the column of the tags, such as label = 3"),
        (CONLLU, ("text", "ner"), "10 columns with numbered words; .* such as label = 4"),
    ],
)
def test_columns_that_are_not_clear_are_refused(tmp_path: Path, content: str, columns: tuple[str, str], message: str):
    with pytest.raises(InputError, match=f"a: {message}"):
        sentences(tmp_path / "a", content, *columns)


def test_a_table_with_a_wrong_name_is_no_column_file(tmp_path: Path):
    with pytest.raises(InputError, match="no column 'text'; found 'words', 'tags'"):
        sentences(tmp_path / "a.tsv", "words\ttags\nKim ran\tB-PER O\n")


def test_capitals_in_the_names_of_columns(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("Kim\tNNP\tB-PER\n")
    task = Task("own", ("Word",), "POS", "tagging", header=("Word", "POS", "Entity"))
    assert [(row.text, row.tags) for row in read(task, tmp_path / "a.tsv")] == [("Kim", ("NNP",))]


@pytest.mark.parametrize("start", ["", "-DOCSTART- -X- O\n\n"])
def test_a_file_of_one_document_is_divided_by_sentences(tmp_path: Path, start: str):
    (tmp_path / "a.conll").write_text(start + "".join(f"w{i} O\nKim B-PER\n\n" for i in range(40)))
    task = own_task("tagging", ("text",), "label")
    _, data = split_data(task, [tmp_path / "a.conll"], Split(dev_share=0.25))
    assert (len(data.train), len(data.dev)) == (30, 10) and not {*data.train} & {*data.dev}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_characters_are_those_that_are_seen(tmp_path: Path, form: str):
    """A decomposed syllable is one character with one tag."""
    text, tags = unicodedata.normalize(form, "한국 é"), "B-LC I-LC O O"
    task = Task("own", ("character",), "tags", "tagging")
    (row,) = read_rows(task, [{"character": text, "tags": tags}])
    assert [unicodedata.normalize("NFC", row.text[a:b]) for a, b in row.units] == [*"한국 é"]
    assert row.text == text and row.tags == tuple(tags.split()) and "".join(characters_of(text)) == text

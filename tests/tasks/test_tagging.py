"""Tagging: files, windows, which token answers for which unit, and entities in the caller's characters."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from bertworks.files import InputError
from bertworks.tasks.base import LengthLimits, Task
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import load_data, read_rows, with_labels
from bertworks.tasks.sentences import Tagged, from_texts, read
from bertworks.tasks.tagging import TAGGING, TagRows, labels, prepare
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer
from support.shared_data import needs_shared, shared

CONLL2003, KLUE_NER = TASKS["conll2003"], TASKS["klue-ner"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS)]
PIECES += ["paris", "##ian", "new", "york", ",", ".", "한국", "##은"]
WORDS = Task("own", text=("words",), label="tags", kind="tagging", metrics=TAGGING.metrics)
CHARACTERS = replace(WORDS, text=("character",))
LOC = ("O", "B-LOC", "I-LOC")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    file.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return Tokenizer.load(file, lowercase=False)


def words(text: str, tags: str | None = None, document: int = 0) -> Tagged:
    """A row of the words between spaces."""
    units, at = [], 0
    for word in text.split(" "):
        units.append((at, at + len(word)))
        at += len(word) + 1
    return Tagged(text, tuple(units), None if tags is None else tuple(tags.split(" ")), 1, document)


def letters(text: str, tags: str | None = None, document: int = 0) -> Tagged:
    """A row whose units are characters."""
    units = tuple((i, i + 1) for i in range(len(text)))
    return Tagged(text, units, None if tags is None else tuple(tags.split(" ")), 1, document)


def made(tokenizer: Tokenizer, rows: list[Tagged], task: Task = WORDS, length: int = 64) -> TagRows:
    return prepare(tokenizer, rows, replace(task, labels=task.labels or LOC), LengthLimits(max_seq_length=length))


def scores_for(rows: TagRows, tags: dict[int, str], sure: float = 10.0) -> Tensor:
    """(T, K) scores of a model that says O everywhere but at these tokens."""
    numbers = [rows.task.labels.index(tags.get(i, "O")) for i in range(len(rows.inputs.ids))]
    return sure * F.one_hot(torch.tensor(numbers), len(rows.task.labels)).float()


def gold_scores(rows: TagRows) -> Tensor:
    """(T, K) scores of a model that makes no mistake."""
    gold = torch.from_numpy(rows.inputs.labels)
    return 10.0 * F.one_hot(gold.clamp(min=0), len(rows.task.labels)).float()


def pieces(tokenizer: Tokenizer, ids: Any) -> list[str]:
    return [tokenizer.vocab[i] for i in ids]


# ---- which token answers for which unit


def test_the_first_piece_of_a_word_has_its_tag(tokenizer: Tokenizer):
    rows = made(tokenizer, [words("in parisian york abc", "O B-LOC I-LOC O")])
    expected = "[CLS] i ##n paris ##ian york a ##b ##c [SEP]"
    assert pieces(tokenizer, rows.inputs.ids) == expected.split()
    assert rows.inputs.labels.tolist() == [-100, 0, -100, 1, -100, 2, 0, -100, -100, -100]
    assert rows.position.tolist() == [1, 3, 5, 6] and rows.begins.all()
    assert rows.inputs.edges.tolist() == [0, 10] and rows.inputs.first.tolist() == [10]
    assert rows.inputs.token_labels and rows.inputs.truncation() == {"examples": 0, "tokens": 0}


def test_characters_that_share_a_piece_share_its_answer(tokenizer: Tokenizer):
    rows = made(tokenizer, [letters("한국은 new", "B-LOC I-LOC O O B-LOC I-LOC I-LOC")], CHARACTERS)
    assert pieces(tokenizer, rows.inputs.ids) == ["[CLS]", "한국", "##은", "new", "[SEP]"]
    assert rows.inputs.labels.tolist() == [-100, 1, 0, 1, -100]
    assert rows.position.tolist() == [1, 1, 2, -1, 3, 3, 3]
    ((tags, _),) = rows.tags(gold_scores(rows))
    assert tags == ["B-LOC", "I-LOC", "O", "O", "B-LOC", "I-LOC", "I-LOC"]
    ((tags, _),) = rows.tags(scores_for(rows, {1: "I-LOC", 2: "I-LOC", 3: "I-LOC"}))
    assert tags == ["I-LOC"] * 7  # the space is inside, because what stands after it goes on


def test_a_piece_across_the_border_of_an_entity_has_the_tag_of_its_first_character(tokenizer: Tokenizer):
    rows = made(tokenizer, [letters("한국은", "B-LOC O O"), letters("한국은", "O B-LOC I-LOC")], CHARACTERS)
    assert rows.inputs.labels[rows.position[[0, 2]]].tolist() == [1, 0]
    assert rows.inputs.labels[rows.position[[3, 5]]].tolist() == [0, 2]
    result = rows.evaluate(gold_scores(rows))
    assert result.files["predictions.jsonl"][0]["predicted"] == ["B-LOC", "I-LOC", "O"]
    assert result.metrics["f1"] == 0 and result.metrics["accuracy"] == 4 / 6


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("B-LOC", "I-LOC", "I-LOC"),
        ("I-LOC", "I-LOC", "I-LOC"),
        ("B-LOC", "B-LOC", "O"),
        ("O", "I-LOC", "O"),
        ("B-LOC", "O", "O"),
        ("B-PER", "I-LOC", "O"),
    ],
)
def test_a_unit_without_a_piece_is_inside_what_goes_on_around_it(
    tokenizer: Tokenizer, left: str, right: str, expected: str
):
    task = replace(CHARACTERS, labels=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
    rows = made(tokenizer, [letters("new  york"), letters(" a "), letters(" ")], task)
    assert rows.position.tolist() == [1, 1, 1, -1, -1, 2, 2, 2, 2, -1, 3, -1, -1]
    first, second, third = (tags for tags, _ in rows.tags(scores_for(rows, {1: left, 2: right, 3: "I-LOC"})))
    assert first[3:5] == [expected, expected]
    assert second == ["O", "I-LOC", "O"] and third == ["O"]


def test_words_without_a_piece_are_o(tokenizer: Tokenizer):
    rows = made(tokenizer, [words("\u200b new \u200b york", "O B-LOC I-LOC I-LOC"), words("\u200b", "B-LOC")])
    assert rows.position.tolist() == [-1, 1, -1, 2, -1]
    assert [tags for tags, _ in rows.tags(gold_scores(rows))] == [["O", "B-LOC", "I-LOC", "I-LOC"], ["O"]]
    assert rows.evaluate(gold_scores(rows)).metrics["recall"] == 0.5  # what cannot be found is missed, not left out


def test_combining_characters(tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    uncased = Tokenizer.load(tmp_path / "vocab.txt", lowercase=True)
    text = "ny\u0301 a\u0301\u0302."  # the accents are dropped: y with one at the end of a word, a with two
    rows = made(uncased, [letters(text, "B-LOC I-LOC I-LOC O O O O O")], CHARACTERS)
    assert pieces(uncased, rows.inputs.ids) == ["[CLS]", "n", "##y", "a", ".", "[SEP]"]
    assert rows.position.tolist() == [1, 2, 2, -1, 3, 3, 3, 4]
    assert rows.evaluate(gold_scores(rows)).metrics["f1"] == 1
    (row,) = from_texts(uncased, [text])
    assert [text[a:b] for a, b in row.units] == ["ny\u0301", "a\u0301\u0302", "."]


def test_decomposed_hangul_has_its_own_offsets():
    tokenizer = Tokenizer.load(shared("data/vocab/bert-base-uncased.txt"), lowercase=True)
    for text in ("한국 x", "\u1112\u1161\u11ab\u1100\u116e\u11a8 x"):  # as syllables and as letters: ids are the same
        (row,) = from_texts(tokenizer, [text])
        assert [text[a:b] for a, b in row.units] == text.split()
        rows = made(tokenizer, [letters(text)], CHARACTERS)
        assert len(rows.inputs.ids) == 9 and rows.position[-1] == 7 and rows.position[-2] == -1
        syllables = len(text) == 4  # the pieces of a syllable answer for each of its letters
        assert rows.begins.tolist() == [*([True] if syllables else [True, False, False]) * 2, False, True]


# ---- windows


def sentence_rows(lengths: list[list[int]]) -> list[Tagged]:
    """A document for each list, a sentence of that many one-piece words for each number."""
    return [
        words(" ".join("abcdefg"[i % 7] for i in range(n)), " ".join(["B-LOC"] * n), document)
        if n
        else Tagged("", (), (), 1, document)
        for document, sentences in enumerate(lengths)
        for n in sentences
    ]


def test_whole_sentences_of_a_document_share_a_window(tokenizer: Tokenizer):
    rows = made(tokenizer, sentence_rows([[3, 4, 2, 6], [1, 1]]), length=10)  # eight pieces a window
    found = [rows.inputs.ids[a:b] for a, b in zip(rows.inputs.edges, rows.inputs.edges[1:], strict=False)]
    inner = ["".join(pieces(tokenizer, ids[1:-1])) for ids in found]
    assert inner == ["abcabcd", "ababcdef", "aa"]
    assert all(ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id for ids in found)


@given(
    lengths=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=4),
    limit=st.integers(3, 20),
)
def test_every_unit_is_labelled_once(tokenizer: Tokenizer, lengths: list[list[int]], limit: int):
    rows = made(tokenizer, sentence_rows(lengths), length=limit)
    assert (rows.inputs.labels >= 0).sum() == len(rows.position) == sum(map(sum, lengths))
    assert (np.diff(rows.position) > 0).all() and (np.diff(rows.inputs.edges) <= limit).all()
    told = [row.text[a:b] for row in rows.rows for a, b in row.units]
    assert pieces(tokenizer, rows.inputs.ids[rows.position]) == told
    window = np.searchsorted(rows.inputs.edges, rows.position, "right") - 1  # of each unit
    documents = np.repeat(range(len(lengths)), [*map(sum, lengths)])
    assert len({*zip(window, documents, strict=True)}) == len({*window})  # no window has two documents


def test_a_unit_of_a_long_sentence_is_labelled_where_it_stands_deepest(tokenizer: Tokenizer):
    """Windows of six units begin at 0, 3 and 6; units 4 and 7 are as deep in two, and belong to the first."""
    rows = made(tokenizer, sentence_rows([[12]]), length=8)
    window = np.searchsorted(rows.inputs.edges, rows.position, "right") - 1
    assert window.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert (rows.position - rows.inputs.edges[window] - 1).tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5]


def test_the_shortest_limit_and_texts_without_words(tokenizer: Tokenizer):
    rows = made(tokenizer, [words("a bc", "B-LOC O")], length=3)
    assert np.diff(rows.inputs.edges).tolist() == [3, 3, 3]
    assert rows.evaluate(gold_scores(rows)).metrics["f1"] == 1
    for row in (Tagged("", ()), Tagged("  ", ((0, 1), (1, 2)))):
        rows = made(tokenizer, [row])
        assert rows.inputs.ids.tolist() == [tokenizer.cls_id, tokenizer.sep_id]
        assert rows.tags(torch.zeros(2, 3)) == [(["O"] * len(row.units), [1.0] * len(row.units))]


# ---- judging


def test_judged_by_hand(tokenizer: Tokenizer):
    rows = made(tokenizer, [words("a b c", "B-LOC I-LOC O"), words("d", "B-LOC", 1)])
    scores = scores_for(rows, {1: "B-LOC", 2: "I-LOC", 3: "B-LOC", 4: "I-LOC"}, sure=2.0)  # 4 is a [SEP], 6 the d
    result = rows.evaluate(scores)
    right, wrong = (-float(F.log_softmax(torch.tensor([2.0, 0, 0]), 0)[i]) for i in (0, 1))
    assert result.metrics == {
        "loss": pytest.approx((2 * right + 2 * wrong) / 4),
        "f1": 0.5,
        "precision": 0.5,
        "recall": 0.5,
        "accuracy": 0.5,
    }
    assert result.predicted == {"O": 1, "LOC": 2} and result.majority == 0 and not result.constant_predictions
    assert result.files["predictions.jsonl"] == [
        {"line": 1, "gold": ("B-LOC", "I-LOC", "O"), "predicted": ["B-LOC", "I-LOC", "B-LOC"]},
        {"line": 1, "gold": ("B-LOC",), "predicted": ["O"]},
    ]
    assert result.files["types.json"]["LOC"]["found"] == 2 and json.dumps(result.files)
    assert result.settings == {"characters": False}


def test_labels():
    rows = [words("a b", "I-PER O"), words("a b", "B-LOC B-LOC")]
    assert labels(WORDS, rows) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert labels(replace(WORDS, labels=LOC), rows) == LOC
    assert labels(WORDS, [words("a", "O")]) == ("O",)
    with pytest.raises(InputError, match=r"labels of the training rows: 'O'; expected 2 or more"):
        with_labels(WORDS, [words("a", "O")])


def test_tags_and_labels_that_do_not_fit(tokenizer: Tokenizer):
    with pytest.raises(InputError, match="line 1: tag 'B-PER'; expected one of O, B-LOC, I-LOC"):
        made(tokenizer, [words("a", "B-PER")])
    with pytest.raises(InputError, match=r"labels of own: tag 'LABEL_0'; expected O, or a prefix"):
        made(tokenizer, [words("a")], replace(WORDS, labels=("LABEL_0", "LABEL_1")))
    assert made(tokenizer, [words("a")], replace(WORDS, labels=("B-LOC", "I-LOC"))).scheme.entities  # O is not needed
    with pytest.raises(InputError, match="labels of own: tag 'LOC'; expected O, or a prefix"):
        made(tokenizer, [words("a")], replace(WORDS, labels=("O", "B-LOC", "LOC")))


# ---- raw text


def test_entities_of_raw_text(tokenizer: Tokenizer):
    text = "  in\tnew york, parisian."
    (row,) = from_texts(tokenizer, [text])
    assert [text[a:b] for a, b in row.units] == ["in", "new", "york", ",", "parisian", "."]
    rows = made(tokenizer, [row])
    assert pieces(tokenizer, rows.inputs.ids[rows.position]) == ["i", "new", "york", ",", "paris", "."]
    scores = scores_for(rows, {3: "B-LOC", 4: "I-LOC", 6: "I-LOC"}, sure=1.0)
    scores[4] *= 3
    (found,), (units,) = rows.decode(scores, {}), rows.units(scores)
    low, high = (float(torch.tensor([x, 0, 0]).softmax(0)[0]) for x in (1.0, 3.0))
    assert found == [
        {"type": "LOC", "start": 5, "end": 13, "text": "new york", "score": pytest.approx((low + high) / 2)},
        {"type": "LOC", "start": 15, "end": 23, "text": "parisian", "score": pytest.approx(low)},
    ]
    assert [unit["text"] for unit in units[:4]] == ["in", "new", "york", ","]
    assert [unit["tag"] for unit in units[:4]] == ["O", "B-LOC", "I-LOC", "O"]
    assert units[2]["scores"][units[2]["tag"]] == units[2]["score"] == pytest.approx(high)
    assert rows.tokens.tolist() == [len(rows.inputs.ids)] and rows.cut.tolist() == [0]


# ---- files

EXPECTED = [("new york is", ("B-LOC", "I-LOC", "O")), ("paris", ("B-LOC",))]
IOB1 = "new X I-LOC\nyork X I-LOC\nis X O\n\n\nparis X I-LOC\n"
ROWS = [
    {"words": ["new", "york", "is"], "tags": ["B-LOC", "E-LOC", "O"], "id": 1},
    {"words": ["paris"], "tags": ["S-LOC"], "id": 2},
]


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("eng.any", IOB1),
        ("a.conll", IOB1.replace(" ", "\t").replace("\n", "\r\n")),
        ("b.txt", "\ufeff" + IOB1.rstrip("\n")),
        ("c.jsonl", jsonl(*ROWS)),
        ("d.csv", 'tags,words\n"[""B-LOC"", ""I-LOC"", ""O""]","[""new"", ""york"", ""is""]"\nB-LOC,paris\n'),
        ("d.csv", "id,tags,words\n1,B-LOC I-LOC O,new york is\n2,B-LOC,paris\n"),
        ("e.tsv", "words\ttags\nnew york is\tB-LOC L-LOC O\nparis\tU-LOC\n"),
    ],
)
def test_files(tmp_path: Path, name: str, content: str):
    rows = read(WORDS, write(tmp_path / name, content))
    assert [(row.text, row.tags) for row in rows] == EXPECTED
    assert [row.text[a:b] for row in rows for a, b in row.units] == ["new", "york", "is", "paris"]
    assert [row.document for row in rows] == [0, 1]
    bare = [row._replace(tags=None) for row in rows]
    assert read(WORDS, tmp_path / name, False) == bare


def test_characters(tmp_path: Path):
    text = "## 주석\tB-X\n## 하나\t<한 국:LC>\n한\tB-LC\n \tI-LC\n국\tI-LC\n#\tO\n\n## 둘\n \tO\n"
    rows = read(KLUE_NER, write(tmp_path / "x.tsv", text))
    assert [(row.text, row.tags, row.line) for row in rows] == [
        ("한 국#", ("B-LC", "I-LC", "I-LC", "O"), 3),
        (" ", ("O",), 9),
    ]
    assert rows[0].units == ((0, 1), (1, 2), (2, 3), (3, 4)) and [row.document for row in rows] == [0, 1]
    for row in (
        {"character": list("한 국"), "tags": ["B-LC", "I-LC", "I-LC"]},
        {"character": "한 국", "tags": "B-LC I-LC I-LC"},
    ):
        (row,) = read(CHARACTERS, write(tmp_path / "x.jsonl", jsonl(row)))
        assert row[:3] == ("한 국", ((0, 1), (1, 2), (2, 3)), ("B-LC", "I-LC", "I-LC"))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x", "a X O\nb X", "line 2: 2 columns; expected 3, .*; is the line cut off"),
        ("x", "a\nb\n", "line 1: 1 columns; expected 2, a word and its tag"),
        ("x", "a X B-LOC\nb X LOC\n", "line 2: tag 'LOC'; expected O, or a prefix"),
        ("x.jsonl", jsonl({"words": ["a", "b"], "tags": ["O"]}), "line 1: 2 words, but 1 tags"),
        ("x.jsonl", jsonl({"words": ["a"]}), "line 1: no column 'tags'; found 'words'"),
        ("x.jsonl", jsonl({"words": ["a", " "], "tags": ["O", "O"]}), "a word is a space; name the column `character`"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str, says: str):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=f"^{path}.*{says}"):
        read(WORDS, path)


# ---- the official files


@needs_shared("data/conll2003")
def test_official_counts_of_conll():
    data = load_data(CONLL2003, shared("data/conll2003"))
    counts = []
    for rows in (data.train, data.dev, data.more["test"]):
        types = Counter(tag[2:] for row in rows for tag in row.tags if tag[0] == "B")
        documents = {row.document for row in rows}
        counts.append((len(rows), sum(len(row.units) for row in rows), len(documents), dict(sorted(types.items()))))
    assert counts == [
        (14041, 203621, 946, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        (3250, 51362, 216, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
        (3453, 46435, 231, {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}),
    ]


@needs_shared("data/korean/klue-ner")
def test_klue_file():
    path = shared("data/korean/klue-ner") / KLUE_NER.dev
    rows = read(KLUE_NER, path)
    assert len(rows) == 5000 and sum(len(row.units) for row in rows) == 285929
    types = Counter(tag[2:] for row in rows for tag in row.tags or () if tag[0] == "B")
    assert types == {"PS": 4418, "QT": 3151, "DT": 2312, "OG": 2182, "LC": 1649, "TI": 545}


def test_a_divided_file_keeps_the_sentences_of_a_document_together(tmp_path: Path):
    lines = [f"-DOCSTART- -X- -X- O\n\nword{i} NN NP O\n\nmore NN NP B-PER\n" for i in range(60)]
    (tmp_path / "eng.train").write_text("\n".join(lines))
    train, dev = (read_rows(CONLL2003, tmp_path / f"eng.train#{part}") for part in ("train", "dev"))
    assert len(train) + len(dev) == 120 and 5 < len(dev) < 60
    assert not {row.document for row in train} & {row.document for row in dev}
    assert [row.text for row in dev[1::2]] == ["more"] * (len(dev) // 2)


# ---- tags without a prefix or a type


def test_other_schemes_are_turned_into_iob2(tmp_path: Path, tokenizer: Tokenizer):
    (row,) = read(WORDS, write(tmp_path / "a.conll", "new\tLOC\nyork\tLOC\nis\tO\n"))
    assert row.tags == ("B-LOC", "I-LOC", "O") and labels(WORDS, [row]) == ("O", "B-LOC", "I-LOC")
    task = with_labels(WORDS, [row])
    rows = made(tokenizer, [row], task)
    result = rows.evaluate(gold_scores(rows))
    assert result.metrics["f1"] == 1 and result.details["tag_scheme"] in rows.notes()[0]
    dev = read(task, write(tmp_path / "b.conll", "new\tLOC\nyork\tLOC\n"))  # without O
    assert dev[0].tags == row.tags[:2]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("LOC", "O", "PER"), [0, 0, 1]),  # IO
        (("O", "I-LOC"), [1, 1, 0]),  # IOB1 without a B-
        (("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"), [1, 3, 0]),
        (("[PAD]", "B-LOC", "I-LOC", "O", "X", "[CLS]"), [1, 2, 4]),
    ],
)
def test_taggers_of_other_software(tokenizer: Tokenizer, names: tuple[str, ...], numbers: list[int]):
    """They are judged by IOB2 rows, and their predictions have their own names."""
    gold = words("new york is", "B-LOC I-LOC O")
    rows = made(tokenizer, [gold], replace(WORDS, labels=names))
    scores = torch.zeros(len(rows.inputs.ids), len(names))
    scores[rows.position, numbers] = 10.0
    metrics = rows.evaluate(scores).metrics
    assert (metrics["f1"], metrics["accuracy"]) == (1, 1)
    (units,), (entities,) = rows.units(scores), rows.decode(scores, {})
    assert [unit["tag"] for unit in units] == [names[i] for i in numbers]
    assert [(e["type"], e["start"], e["end"]) for e in entities] == [("LOC", 0, 8)]
    assert [rows.type_of(unit["tag"]) for unit in units] == ["LOC", "LOC", "O"]


def test_parts_of_speech_are_judged_by_accuracy(tmp_path: Path, tokenizer: Tokenizer):
    row, other = read(WORDS, write(tmp_path / "a.conll", "new ADJ\nyork NOUN\n. NOUN\n\nparis NOUN\n"))
    task = with_labels(WORDS, [row, other])
    assert task.labels == ("ADJ", "NOUN") and task.metrics == ("accuracy",) and row.tags == ("ADJ", "NOUN", "NOUN")
    rows = made(tokenizer, [row, other], task)
    scores = gold_scores(rows)
    scores[rows.position[1]] = torch.tensor([10.0, 0.0])  # one of four words is wrong
    result = rows.evaluate(scores)
    assert result.metrics.keys() == {"loss", "accuracy"} and result.metrics["accuracy"] == 0.75
    assert result.majority == rows.majority == 0.75 and result.predicted == {"ADJ": 2, "NOUN": 2}
    assert result.details == {"tag_scheme": "part-of-speech tags"} and not result.constant_predictions
    assert "tags are read as part-of-speech tags: evaluated by accuracy" in rows.notes()
    found = rows.decode(scores, {})[0]
    assert [(e["type"], e["text"]) for e in found] == [("ADJ", "new"), ("ADJ", "york"), ("NOUN", ".")]
    with pytest.raises(InputError, match=r"b\.conll, line 2: tag 'VERB'; expected one of ADJ, NOUN"):
        read(task, write(tmp_path / "b.conll", "a ADJ\nb VERB\n"))


def test_a_character_without_a_token_has_the_part_of_speech_before_it(tokenizer: Tokenizer):
    rows = made(tokenizer, [letters("a b")], replace(CHARACTERS, labels=("ADJ", "NOUN")))
    scores = torch.zeros(len(rows.inputs.ids), 2)
    scores[:, 1] = 1.0
    assert rows.tags(scores)[0][0] == ["NOUN"] * 3 and rows.tags(scores)[0][1][1] == 0
    assert [entity["text"] for entity in rows.decode(scores, {})[0]] == ["a", "b"]

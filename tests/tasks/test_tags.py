"""Tag schemes, and scores equal to those that conlleval itself has printed."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.files import InputError
from bertworks.tasks.tags import (
    PARTS_OF_SPEECH,
    Scheme,
    TagScores,
    chunks,
    entity_scores,
    read_scheme,
    score_tags,
    to_iob2,
)
from support.shared_data import needs_shared, shared

any_tags = st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIESLU" for k in ("PER", "LOC"))]), max_size=12)


@pytest.mark.parametrize(
    "tags",
    [
        "B-LOC I-LOC O B-LOC B-LOC B-PER",  # IOB2
        "I-LOC I-LOC O I-LOC B-LOC I-PER",  # IOB1
        "B-LOC E-LOC O S-LOC S-LOC S-PER",  # BIOES
        "B-LOC L-LOC O U-LOC U-LOC U-PER",  # BILOU
        "I-LOC E-LOC O E-LOC E-LOC E-PER",  # IOE2
    ],
)
def test_every_scheme_comes_back_as_iob2(tags: str):
    assert to_iob2(tags.split()) == ["B-LOC", "I-LOC", "O", "B-LOC", "B-LOC", "B-PER"]


@given(any_tags)
def test_ill_formed_tags_keep_their_entities(tags: list[str]):
    repaired = to_iob2(tags)
    assert chunks(repaired) == chunks(tags)
    assert [tag == "O" for tag in repaired] == [tag == "O" for tag in tags]
    assert all(b[0] != "I" or a[2:] == b[2:] for a, b in zip(["O", *repaired], repaired, strict=False))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O I-PER I-PER O", [("PER", 1, 3)]),
        ("B-PER I-LOC I-PER", [("PER", 0, 1), ("LOC", 1, 2), ("PER", 2, 3)]),
        ("I-PER B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3)]),
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
        ("S-PER E-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("", []),
    ],
)
def test_entities_of_ill_formed_tags(tags: str, expected: list[tuple[str, int, int]]):
    assert chunks(tags.split()) == expected


@pytest.mark.parametrize("tag", ["PER", "o", "", "B", "X-PER", "b-PER", "M-PER", "BI-PER", "-PER", "O-PER", "I-"])
def test_a_tag_without_prefix_or_type_beside_others(tag: str):
    with pytest.raises(InputError, match=r"^line 7: tag "):
        read_scheme({"B-PER": "line 1", tag: "line 7"})


# ---- scores


def test_scores_by_hand():
    scores = score_tags(
        [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]],
        [["B-PER", "I-PER", "I-PER", "I-LOC"], ["B-MISC", "O"]],  # PER too long, LOC right, MISC for ORG
    )
    assert scores.entities == entity_scores(gold=3, found=3, correct=1)
    assert list(scores.types) == ["LOC", "MISC", "ORG", "PER"]
    assert scores.types["LOC"] == entity_scores(1, 1, 1) and scores.types["MISC"] == entity_scores(0, 1, 0)
    assert scores.types["PER"] == entity_scores(1, 1, 0) and scores.types["ORG"] == entity_scores(1, 0, 0)
    assert scores.accuracy == 0.5
    counts = {"gold": 4, "found": 2, "correct": 1}
    assert entity_scores(4, 2, 1) == counts | {"precision": 0.5, "recall": 0.25, "f1": 1 / 3}
    assert score_tags([["O"]], [["O"]]).entities["f1"] == score_tags([], []).accuracy == 0


def printed(scores: TagScores, tokens: int) -> dict[str, object]:
    """The figures as the script prints them."""

    def percents(counts: dict[str, float]) -> dict[str, float]:
        names = {"precision": "precision", "recall": "recall", "FB1": "f1"}
        return {name: round(100 * counts[key], 2) for name, key in names.items()}

    whole = scores.entities
    return {
        "tokens": tokens,
        "phrases_gold": whole["gold"],
        "phrases_found": whole["found"],
        "phrases_correct": whole["correct"],
        "accuracy": round(100 * scores.accuracy, 2),
        **percents(whole),
        "per_type": {kind: percents(counts) | {"found": counts["found"]} for kind, counts in scores.types.items()},
    }


@needs_shared("oracle/conll")
def test_equal_to_conlleval_on_whole_files():
    folder = shared("oracle/conll")
    with gzip.open(folder / "tags.jsonl.gz", "rt") as file:
        rows = [{name: tags.split() for name, tags in json.loads(line).items()} for line in file]
    runs = json.loads((folder / "conlleval.json").read_text())["runs"]
    assert len(rows) == 3250 and len(runs) == 10
    for name, run in runs.items():
        scores = score_tags([row[run["gold"]] for row in rows], [row[name] for row in rows])
        assert printed(scores, sum(len(row[name]) for row in rows)) == run["figures"], name


@needs_shared("oracle/conll")
def test_equal_to_conlleval_on_small_cases():
    cases = json.loads((shared("oracle/conll") / "small_cases.json").read_text())
    assert len(cases) > 10
    for case in cases:
        scores = score_tags([case["gold"].split()], [case["predicted"].split()])
        assert printed(scores, len(case["gold"].split())) == case["figures"], case


# ---- tags without a prefix or a type


def scheme(tags: str, of_model: bool = False) -> Scheme:
    return read_scheme({tag: f"line {i}" for i, tag in enumerate(tags.split(), 1)}, of_model)


@pytest.mark.parametrize(
    ("tags", "standard", "name"),
    [
        ("O B-PER I-PER", "O B-PER I-PER", ""),
        ("O", "O", ""),
        ("B I O", "B-entity I-entity O", "B, I without a type"),
        ("B I E S", "B-entity I-entity E-entity S-entity", "B, E, I, S without a type"),
        ("PER O LOC", "I-PER O I-LOC", "types without a prefix (IO)"),
        ("OBJ/PRS O date-time", "I-OBJ/PRS O I-date-time", "types without a prefix (IO)"),
        ("WORK_OF_ART O", "I-WORK_OF_ART O", "types without a prefix (IO)"),
        ("NOUN VERB PUNCT", "NOUN VERB PUNCT", PARTS_OF_SPEECH),
        ("NN -LRB- , I", "NN -LRB- , I", PARTS_OF_SPEECH),
    ],
)
def test_schemes_are_recognised(tags: str, standard: str, name: str):
    found = scheme(tags)
    assert [found.standard[tag] for tag in tags.split()] == standard.split() and found.name == name
    assert found.entities == (name != PARTS_OF_SPEECH)


ODD = ["PER_B PER_I O", "O PER-B PER-I", "B:PER I:PER", "0 1 2", "LABEL_0 LABEL_1", "B PER O", "b-PER i-PER O"]
ODD += ["b_per O", "b-per i-per o", "PER 0 O", "b i O", "B- I- O", "O PER-", "O X-PER", "O B_PER B_LOC"]


@pytest.mark.parametrize("tags", ODD)
def test_tags_in_another_form_are_refused(tags: str):
    """They would be types or parts of speech."""
    with pytest.raises(InputError, match="; expected O, or a prefix"):
        scheme(tags)


def test_labels_of_models_for_subwords_and_special_tokens():
    """BioBERT's taggers have them."""
    assert scheme("[PAD] B I O X [CLS] [SEP]", of_model=True).standard["X"] == "O"
    assert scheme("O PER X", of_model=True).standard["X"] == "I-X"  # a type like any other
    with pytest.raises(InputError, match="line 4: tag 'X'; expected O, or a prefix"):
        scheme("B-PER I-PER O X")

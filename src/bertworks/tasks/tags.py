"""Tags of units in a row, and the entities they mark. IOB1, IOB2, BIOES, BILOU and IOE are read by one rule.

    unit     New   York  ,  Paris  London
    IOB2     B-LOC I-LOC O  B-LOC  B-LOC    B- begins every entity
    IOB1     I-LOC I-LOC O  I-LOC  B-LOC    B- only where an entity follows one of its own type; CoNLL-2003's files
    BIOES    B-LOC E-LOC O  S-LOC  S-LOC    the last unit is E-, an only one S-
    BILOU    B-LOC L-LOC O  U-LOC  U-LOC    the same with L- and U-

An entity begins at a tag that says so, after O, after another type and after a tag that ends one. So ill-formed
sequences have entities too: in O I-LOC the I-LOC begins one. This is conlleval's rule for B, I and O, and seqeval's for
B, I, E, S and O; conlleval does not know S, and begins no entity at B-LOC after E-LOC.

Tags may also be written without a type or a prefix; `read_scheme` recognises how:

    B I O              entities of one type, called `entity`
    PER LOC O          IO: a type is I- of that type; two entities of one type that touch are one
    NOUN VERB          no O among them: part-of-speech tags, which have no entities

Scores: an entity is right if its type and both its ends are. They are fractions from 0 to 1, and 0 where conlleval
divides by nothing; conlleval prints percents, rounded to two digits.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..files import InputError, shorten

OUTSIDE = "O"
PARTS_OF_SPEECH = "part-of-speech tags"  # name of their scheme
ENTITY = "entity"  # the type of the tags B, I and O alone
PREFIXES = "BIESLU"
_BEGIN, _END = "BSU", "ESLU"
_TYPED = re.compile(f"[{PREFIXES}]-.+", re.DOTALL)
# tags that are neither types (beside O) nor parts of speech: b-PER, PER_B, PER-
_NO_TYPE = re.compile(r"[BIESLU0]|[BIESLU][\W_].*|.*[\W_][BIESLU]|[^-]{0,2}-.*|[^-]+-", re.DOTALL | re.IGNORECASE)
_NO_PART_OF_SPEECH = re.compile(r"[BI][\W_].+|.+[\W_][BI]", re.DOTALL | re.IGNORECASE)
_HELPERS = {"X", "[CLS]", "[SEP]", "[PAD]", "<pad>", "PAD"}  # labels of models, of subwords and special tokens
_NUMBER = re.compile(r"[-+.]?\d[-+.\d]*|LABEL_\d+")


class Chunk(NamedTuple):
    """An entity: units `start` up to `end`, which is not in it."""

    type: str
    start: int
    end: int


class Scheme(NamedTuple):
    """How some tags mark entities."""

    name: str  # "": O, or a prefix, a hyphen and a type
    standard: dict[str, str]  # each tag as O, or as a prefix, a hyphen and a type; a part-of-speech tag as it is
    entities: bool = True  # whether there are entities; part-of-speech tags have none


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """The entities of one sentence, by the rule above."""
    entities, start, before, ended = [], 0, "", False
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        if kind != before or ended or prefix in _BEGIN:
            if before:
                entities.append(Chunk(before, start, i))
            start = i
        before, ended = kind, prefix in _END
    return entities


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The same entities in IOB2, well-formed whatever the tags were."""
    out = [OUTSIDE] * len(tags)
    for kind, start, end in chunks(tags):
        out[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return out


def is_typed(tag: str) -> bool:
    """Whether a tag is O, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or _TYPED.fullmatch(tag) is not None


def read_scheme(places: Mapping[str, str], of_model: bool = False) -> Scheme:
    """How the tags of a file, or the labels of a model, mark entities.

    places: the place of each tag, for messages. of_model: labels for subwords and special tokens (X, [CLS] ...) count
    as O beside tags of entities. Raises InputError for tags that fit no scheme.
    """
    tags = [tag for tag in places if tag != OUTSIDE]
    prefixes = [tag for tag in tags if len(tag) == 1 and tag in PREFIXES]
    name, standard = "", {tag: tag for tag in tags if is_typed(tag)}
    helpers = _HELPERS if of_model else set[str]()
    if tags and not standard and prefixes and (OUTSIDE in places or prefixes == tags):
        name = f"{', '.join(sorted(prefixes))} without a type"
        standard = {tag: f"{tag}-{ENTITY}" for tag in prefixes}
    elif tags and not standard:
        is_io, helpers = OUTSIDE in places, set()
        name = "types without a prefix (IO)" if is_io else PARTS_OF_SPEECH
        standard = {tag: f"I-{tag}" if is_io else tag for tag in _untyped(tags, is_io)}
    for tag in tags:
        if tag not in standard and tag not in helpers:
            expected = "O, or a prefix (B, I, E, S, L or U), a hyphen and a type, such as B-PER"
            raise InputError(f"{places[tag]}: tag {shorten(tag)}; expected {expected}")
    if name == PARTS_OF_SPEECH:
        return Scheme(name, standard, entities=False)
    return Scheme(name, dict.fromkeys((OUTSIDE, *tags), OUTSIDE) | standard)


def _untyped(tags: Sequence[str], is_io: bool) -> list[str]:
    """The tags that may be types (is_io) or parts of speech: no numbers, and no prefixes in another form."""
    other = _NO_TYPE if is_io else _NO_PART_OF_SPEECH
    return [tag for tag in tags if tag and not other.fullmatch(tag)] if not all(map(_NUMBER.fullmatch, tags)) else []


# ---- scores, equal to those of CoNLL's Perl script `conlleval` for B, I and O, and to seqeval's for E and S


class TagScores(NamedTuple):
    """What `score_tags` counted."""

    accuracy: float  # fraction of the units whose tags agree letter for letter
    entities: dict[str, float]  # gold, found and correct ones, precision, recall and f1
    types: dict[str, dict[str, float]]  # the same of all types that data or predictions have, sorted


def entity_scores(gold: int, found: int, correct: int) -> dict[str, float]:
    """How many entities the data has, how many were predicted, how many of these are right, and the scores."""
    counts: dict[str, float] = {"gold": gold, "found": found, "correct": correct}
    scores = {"precision": correct / max(found, 1), "recall": correct / max(gold, 1)}
    return counts | scores | {"f1": 2 * correct / max(gold + found, 1)}  # FB1, their harmonic mean


def score_tags(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> TagScores:
    """Scores of the predicted tags of sentences. Raises ValueError if sentences or tags are not the same in number."""
    units = same = 0
    counts = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        units += len(true)
        same += sum(a == b for a, b in zip(true, guess, strict=True))
        right, guessed = set(chunks(true)), set(chunks(guess))
        for counter, some in zip(counts, (right, guessed, right & guessed), strict=True):
            counter.update(chunk.type for chunk in some)
    types = {kind: entity_scores(*(counter[kind] for counter in counts)) for kind in sorted({*counts[0], *counts[1]})}
    return TagScores(same / max(units, 1), entity_scores(*(counter.total() for counter in counts)), types)

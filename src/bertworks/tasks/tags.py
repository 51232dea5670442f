"""Tags of units in a row, and the entities they cut out. IOB1, IOB2, BIOES, BILOU and IOE are read by one rule.

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
    B_PER, PER-B ...   another separator, or the prefix behind the type
    NOUN VERB          no O among them: part-of-speech tags, which have no entities

Scores: an entity is right if its type and both its ends are. They are fractions from 0 to 1, and 0 where conlleval
divides by nothing; conlleval prints percents, rounded to two digits.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..files import InputError, shorten

OUTSIDE = "O"
PARTS_OF_SPEECH = "part-of-speech tags"  # name of their scheme
ENTITY = "entity"  # the type of the tags B, I and O alone
PREFIXES = "BIESLU"
_BEGIN, _END = "BSU", "ESLU"
_TYPED = re.compile(f"[{PREFIXES}]-.+", re.DOTALL)
_OTHER_FORMS = (
    re.compile(f"(?P<prefix>[{PREFIXES}])(?P<mark>[\\W_])(?P<type>.+)", re.DOTALL),
    re.compile(f"(?P<type>.+)(?P<mark>[\\W_])(?P<prefix>[{PREFIXES}])", re.DOTALL),
)
_HELPERS = {"X", "[CLS]", "[SEP]", "[PAD]", "<pad>", "PAD"}  # labels of models, of subwords and special tokens


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
    found, start, before, ended = [], 0, "", False
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        if kind != before or ended or prefix in _BEGIN:
            if before:
                found.append(Chunk(before, start, i))
            start = i
        before, ended = kind, prefix in _END
    return found


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The same entities in IOB2, well-formed whatever the tags were."""
    out = [OUTSIDE] * len(tags)
    for kind, start, end in chunks(tags):
        out[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return out


def is_typed(tag: str) -> bool:
    """Whether a tag is O, or a prefix, a hyphen and a type."""
    return tag == OUTSIDE or _TYPED.fullmatch(tag) is not None


def check_tag(tag: str, where: str) -> None:
    """Raises InputError unless it is O, or one of the prefixes, a hyphen and a type. `where`: file and line."""
    if not is_typed(tag):
        expected = "O, or a prefix (B, I, E, S, L or U), a hyphen and a type, such as B-PER"
        raise InputError(f"{where}: tag {shorten(tag)}; expected {expected}")


# ---- schemes


def read_scheme(places: Mapping[str, str], of_model: bool = False) -> Scheme:
    """How the tags of a file, or the labels of a model, mark entities.

    places: the place of each tag, for messages. of_model: labels for subwords and special
    tokens (X, [CLS] ...) count as O beside tags of entities. Raises InputError for tags that fit no scheme.
    """
    helpers = _HELPERS & {*places} if of_model else set[str]()
    tags = [tag for tag in places if tag != OUTSIDE and tag not in helpers]
    outside = dict.fromkeys([OUTSIDE, *helpers], OUTSIDE)
    if any(map(is_typed, tags)) or not tags:
        for tag in tags:
            check_tag(tag, places[tag])
        return Scheme("", outside | {tag: tag for tag in tags})
    if {*tags} <= {*PREFIXES} and (OUTSIDE in places or "B" in places):
        name = f"{', '.join(sorted(tags))} without a type"
        return Scheme(name, outside | {tag: f"{tag}-{ENTITY}" for tag in tags})
    if found := _other_form(tags, OUTSIDE in places):
        return Scheme(f"tags such as {tags[0]}", outside | found)
    tags += helpers
    _check_untyped(tags, places)
    if OUTSIDE in places:
        return Scheme("types without a prefix (IO)", {OUTSIDE: OUTSIDE} | {tag: f"I-{tag}" for tag in tags})
    return Scheme(PARTS_OF_SPEECH, {tag: tag for tag in tags}, entities=False)


def _other_form(tags: Sequence[str], has_outside: bool) -> dict[str, str]:
    """Each tag with prefix, hyphen and type if all have another separator or order; {} if they have not."""
    for form in _OTHER_FORMS:
        found = {tag: match for tag in tags if (match := form.fullmatch(tag))}
        pairs, marks = {(m["type"], m["prefix"]) for m in found.values()}, {m["mark"] for m in found.values()}
        begins = any((kind, "I") in pairs for kind, prefix in pairs if prefix == "B")  # not SIZE_S, E_MAIL, NN_B
        usual = form is _OTHER_FORMS[0] or marks == {"-"}
        begins |= usual and has_outside and {"B"} <= {prefix for _, prefix in pairs} <= {"B", "I"}
        if len(found) == len(tags) and begins and len(marks) == 1:
            return {tag: f"{match['prefix']}-{match['type']}" for tag, match in found.items()}
    return {}


def _check_untyped(tags: Sequence[str], places: Mapping[str, str]) -> None:
    """Raises InputError for tags without a prefix that look like damaged ones, or are numbers."""
    has_outside = OUTSIDE in places
    small = re.compile(f"[{PREFIXES.lower()}][-_].+") if {"o", OUTSIDE} & {*places} else None
    numbers = all(re.fullmatch(r"[-+.]?\d[-+.\d]*|LABEL_\d+", tag) for tag in tags)
    for tag in tags:
        prefix, hyphen, kind = tag.partition("-")
        single = len(tag) == 1 and tag.upper() in {*PREFIXES, OUTSIDE, "0"}
        cut = hyphen and (len(prefix) < 3 or not kind)
        if not tag or numbers or (small and small.fullmatch(tag)) or (has_outside and (single or cut)):
            check_tag(tag, places[tag])


# ---- scores, equal to those of CoNLL's Perl script `conlleval` for B, I and O, and to seqeval's for E and S


@dataclass(frozen=True)
class EntityCounts:
    """How many entities the data has, how many were found, and how many of these are right."""

    gold: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / max(self.found, 1)

    @property
    def recall(self) -> float:
        return self.correct / max(self.gold, 1)

    @property
    def f1(self) -> float:
        """FB1, the harmonic mean of precision and recall."""
        return 2 * self.correct / max(self.gold + self.found, 1)

    def as_dict(self) -> dict[str, float]:
        """Counts and scores."""
        return vars(self) | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True)
class TagScores:
    """What `evaluate` counted."""

    units: int
    same: int  # units whose tags agree letter for letter
    entities: EntityCounts
    types: dict[str, EntityCounts]  # of all types that data or predictions have, sorted

    @property
    def accuracy(self) -> float:
        return self.same / max(self.units, 1)


def score_tags(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> TagScores:
    """Scores of the predicted tags of sentences. Raises ValueError if sentences or tags are not the same in number."""
    units = same = 0
    counts = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        units += len(true)
        same += sum(a == b for a, b in zip(true, guess, strict=True))
        right, found = set(chunks(true)), set(chunks(guess))
        for counter, some in zip(counts, (right, found, right & found), strict=True):
            counter.update(chunk.type for chunk in some)
    types = {kind: EntityCounts(*(counter[kind] for counter in counts)) for kind in sorted({*counts[0], *counts[1]})}
    return TagScores(units, same, EntityCounts(*(counter.total() for counter in counts)), types)

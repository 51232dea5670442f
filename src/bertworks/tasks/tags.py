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
from dataclasses import dataclass
from typing import NamedTuple

from ..files import InputError, shorten

OUTSIDE = "O"
PARTS_OF_SPEECH = "part-of-speech tags"  # name of their scheme
ENTITY = "entity"  # the type of the tags B, I and O alone
PREFIXES = "BIESLU"
_BEGIN, _END = "BSU", "ESLU"
_TYPED = re.compile(f"[{PREFIXES}]-.+", re.DOTALL)
_OTHER_FORM = re.compile(r"B[\W_].+|.+[\W_]B", re.DOTALL)  # B_PER or PER-B
_HELPERS = {"X", "[CLS]", "[SEP]", "[PAD]", "<pad>", "PAD"}  # labels of models, of subwords and special tokens
_ALL_OTHER = re.compile(r"[BI][\W_].+|.+-[BI]", re.DOTALL)  # where all tags of a file are written so
_SMALL = re.compile("[biesluo][-_].+", re.DOTALL)  # b-per
_CUT = re.compile("[BIESLUObieslu0]|[^-]{0,2}-.*|[^-]+-", re.DOTALL)  # 0 for O, b, B-, X-PER, PER-
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
    """The tags that may be types (is_io) or parts of speech.

    These are no numbers, no prefixes in another form (B_PER and I_PER), and beside O no damaged tags.
    """
    if all(map(_NUMBER.fullmatch, tags)) or (is_io and all(map(_ALL_OTHER.fullmatch, tags))):
        return []
    damaged = {tag for tag in tags if _OTHER_FORM.fullmatch(tag) and {f"I{tag[1:]}", f"{tag[:-1]}I"} & {*tags}}
    if is_io or "o" in tags:
        damaged |= {*filter(_SMALL.fullmatch, tags)}
    if is_io:
        damaged |= {*filter(_CUT.fullmatch, tags)}
    return [tag for tag in tags if tag and tag not in damaged]


# ---- scores, equal to those of CoNLL's Perl script `conlleval` for B, I and O, and to seqeval's for E and S


@dataclass(frozen=True)
class EntityCounts:
    """How many entities the data has, how many were predicted, and how many of these are right."""

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        return self.correct / max(self.gold, 1)

    @property
    def f1(self) -> float:
        """FB1, the harmonic mean of precision and recall."""
        return 2 * self.correct / max(self.gold + self.predicted, 1)

    def as_dict(self) -> dict[str, float]:
        """Counts and scores."""
        counts = {"gold": self.gold, "found": self.predicted, "correct": self.correct}
        return counts | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


class TagScores(NamedTuple):
    """What `score_tags` counted."""

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
        right, guessed = set(chunks(true)), set(chunks(guess))
        for counter, some in zip(counts, (right, guessed, right & guessed), strict=True):
            counter.update(chunk.type for chunk in some)
    types = {kind: EntityCounts(*(counter[kind] for counter in counts)) for kind in sorted({*counts[0], *counts[1]})}
    return TagScores(units, same, EntityCounts(*(counter.total() for counter in counts)), types)

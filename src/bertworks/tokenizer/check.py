"""Does a vocabulary fit a text and its own normaliser? Subwords per word, share of [UNK] by script, and a verdict."""

import collections
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .tokenizer import Encoding, Tokenizer
from .training import ASCII
from .wordpiece import JAMO, SYLLABLE

MAX_CHARS = 10_000_000  # of text looked at; more would not change a figure that is printed
MAX_UNKNOWN = 0.05  # share of [UNK] among words above which a vocabulary does not fit
MAX_SUBWORDS, MIN_LETTERS = 4, 1.5  # so many subwords a word, so short ones: words are spelled, not known
_KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")


@dataclass
class ScriptCount:
    """Words of one script. A word is what WordPiece looks up: whitespace, punctuation and Han characters end it.

    With other vocabularies whitespace alone ends it: their subwords may hold both a word and the comma after it.
    """

    script: str
    words: int = 0
    subwords: int = 0
    unknown: int = 0  # words that became [UNK], or with other vocabularies have a part that did


@dataclass(frozen=True)
class CheckReport:
    """What `check` found; `scripts` begins with the most frequent one."""

    chars: int  # characters looked at
    scripts: list[ScriptCount]
    warnings: list[str]
    reasons: list[str]  # why the vocabulary does not fit; none: it fits
    missing: list[str]  # characters without a subword: the text's, the most frequent first, then those of ASCII

    @property
    def total(self) -> ScriptCount:
        """The counts of all scripts."""
        return _total(self.scripts)

    @property
    def verdict(self) -> str:
        """One line: whether the vocabulary fits, subwords per word, share of [UNK], missing characters."""
        total = self.total
        if not total.words:
            return "no verdict: there is no text to check"
        figures = (
            f"{total.subwords / total.words:.2f} subwords per word, {total.unknown / total.words:.2%} of words [UNK]"
        )
        more = f" and {len(self.missing) - 10:,} more" if len(self.missing) > 10 else ""
        lacking = f"; missing characters: {' '.join(self.missing[:10])}{more}" if self.missing else ""
        return f"{'does not fit: ' + '; '.join(self.reasons) if self.reasons else 'fits'} ({figures}){lacking}"


def _total(scripts: Iterable[ScriptCount]) -> ScriptCount:
    total = ScriptCount("all")
    for row in scripts:
        total.words, total.subwords = total.words + row.words, total.subwords + row.subwords
        total.unknown += row.unknown
    return total


def check(tokenizer: Tokenizer, texts: Iterable[str], max_chars: int = MAX_CHARS) -> CheckReport:
    """Tokenize the first `max_chars` characters of `texts` and judge the vocabulary against them and its normaliser."""
    chunks: collections.Counter[str] = collections.Counter()  # subwords never cross white space: one look each
    chars = 0
    for line in itertools.chain.from_iterable(text.split("\n") for text in texts):
        chunks.update(line.split())
        chars += len(line)
        if chars >= max_chars:
            break
    rows: dict[str, ScriptCount] = {}
    for chunk, count, encoding in _encoded(tokenizer, chunks):
        for start, subwords, unknown in _words(tokenizer, encoding):
            row = rows.setdefault(name := script(chunk[start:]), ScriptCount(name))
            row.words += count
            row.subwords += count * subwords
            row.unknown += count * unknown
    scripts = sorted(rows.values(), key=lambda row: -row.words)
    dead = misfits(tokenizer)
    reasons = [*_reasons(_total(scripts), dead, sum(len(chunk) * n for chunk, n in chunks.items()))]
    warnings = [*dead, *_text_warnings(tokenizer, chunks, scripts)]
    return CheckReport(chars, scripts, warnings, reasons, _missing(tokenizer, chunks))


def unknown_share(tokenizer: Tokenizer, counts: Sequence[int] | NDArray[Any]) -> float:
    """Share of [UNK] among counted tokens, 0.0 to 1.0; 0.0 if there is no token.

    counts (V,): how often each id occurs, special tokens of the layout not counted (a store's unigrams.npy).
    """
    total = int(sum(counts))
    return int(counts[tokenizer.unk_id]) / total if total else 0.0


def script(word: str) -> str:
    """Script of the first letter, from its Unicode name; "digits" or "punctuation and symbols" if there is none."""
    char = next((char for char in word if char.isalpha()), word[:1])
    if not char.isalpha():
        return "digits" if char.isnumeric() else "punctuation and symbols"
    name = unicodedata.name(char, "OTHER").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    first = "other" if name.endswith(" SIGN") else name.split(" ")[0]  # MICRO SIGN is no script
    return "Han" if first == "CJK" else "Kana" if first in _KANA else first.capitalize()


def _encoded(tokenizer: Tokenizer, chunks: dict[str, int]) -> Iterator[tuple[str, int, Encoding]]:
    """Every chunk with its count and encoding; some thousand at a time, so that memory stays small."""
    items = iter(chunks.items())
    while batch := list(itertools.islice(items, 10_000)):
        encodings = tokenizer.encode_batch([tokenizer.inside(chunk) for chunk, _ in batch])
        yield from ((chunk, count, encoding) for (chunk, count), encoding in zip(batch, encodings, strict=True))


def _words(tokenizer: Tokenizer, encoding: Encoding) -> Iterator[tuple[int, int, bool]]:
    """(start in the chunk, number of subwords, whether unknown) of each word."""
    inner = range(1, len(encoding.ids) - 1)  # without [CLS] and [SEP]
    if tokenizer.kind != "wordpiece":
        if inner:
            yield 0, len(inner), tokenizer.unk_id in encoding.ids
        return
    starts = [i for i in inner if i == 1 or not tokenizer.continuation[encoding.ids[i]]]
    for start, end in itertools.pairwise([*starts, inner.stop]):
        yield encoding.offsets[start][0], end - start, encoding.ids[start] == tokenizer.unk_id


def _reasons(total: ScriptCount, misfits: list[str], letters: int) -> Iterator[str]:
    """Why a vocabulary does not fit. letters: characters of the text without white space."""
    if total.unknown > MAX_UNKNOWN * total.words:
        yield f"more than {MAX_UNKNOWN:.0%} of the words are [UNK]"
    if total.subwords > MAX_SUBWORDS * total.words and letters < MIN_LETTERS * total.subwords:
        yield f"words are spelled in subwords of {letters / total.subwords:.1f} characters"
    if misfits:
        yield "vocabulary and normaliser contradict each other, see the warnings"


def _missing(tokenizer: Tokenizer, chunks: dict[str, int]) -> list[str]:
    """Characters that become [UNK] by themselves: those of the text by frequency, then printable ASCII."""
    counts: collections.Counter[str] = collections.Counter()
    for chunk, count in chunks.items():
        for char in chunk:
            counts[char] += count
    chars = list(dict.fromkeys([*sorted(counts, key=lambda char: (-counts[char], char)), *ASCII]))
    return [char for char, ids in zip(chars, tokenizer.ids_of(chars), strict=True) if tokenizer.unk_id in ids]


def misfits(tokenizer: Tokenizer) -> list[str]:
    """Warnings about subwords that the tokenizer's own normaliser keeps it from ever producing."""
    subwords = [tokenizer.readable(i) for i, p in enumerate(tokenizer.vocab) if not re.fullmatch(r"\[.+\]|<.+>", p)]
    subwords = [subword for subword in subwords if "\ufffd" not in subword]  # parts of characters
    dead = [subword for subword in subwords if tokenizer.normalize(subword).strip() != subword]
    out, decomposes = [], bool(JAMO.search(tokenizer.normalize("한")))
    syllables, jamo = (sum(bool(kind.search(subword)) for subword in subwords) for kind in (SYLLABLE, JAMO))
    if decomposes and syllables > jamo:
        out.append(
            f"Hangul is decomposed to jamo, but {syllables:,} subwords have whole syllables and can never match: "
            "Korean becomes [UNK]. Load it as cased (lowercase=False), or train a vocabulary with "
            "`bertworks tokenizer train`."
        )
    if not decomposes and jamo > syllables:
        out.append(
            f"Hangul stays in syllables, but {jamo:,} subwords are made of jamo and {syllables:,} of syllables: "
            "Korean becomes [UNK]. Load it as uncased (lowercase=True), which decomposes Hangul as the original "
            "code does."
        )
    capitals = [subword for subword in dead if subword != subword.lower()]
    if tokenizer.lowercase and len(capitals) > len(subwords) // 100:
        out.append(
            f"text is lower-cased, but {len(capitals):,} subwords have capitals and can never match "
            f"({', '.join(capitals[:5])}): this is a cased vocabulary, load it with lowercase=False."
        )
    others = [subword for subword in dead if subword == subword.lower() and not SYLLABLE.search(subword)]
    if len(others) > len(subwords) // 100:
        out.append(
            f"{len(others):,} more subwords can never match, the normaliser changes them ({', '.join(others[:5])})."
        )
    return out


def _text_warnings(tokenizer: Tokenizer, chunks: dict[str, int], scripts: list[ScriptCount]) -> list[str]:
    """Warnings about this text with this vocabulary."""
    if not scripts:
        return ["there is no text to check."]
    out = []
    words = sum(row.words for row in scripts)
    for row in scripts:
        if row.words >= words / 1000 and row.unknown > row.words / 20:
            out.append(f"{row.unknown / row.words:.0%} of the {row.script} words are [UNK]: the vocabulary lacks them.")
    cased = sum(count for chunk, count in chunks.items() if chunk != chunk.lower())
    special = {*tokenizer.roles.values()}
    subwords = map(tokenizer.readable, range(tokenizer.vocab_size))
    no_capitals = all(
        subword == subword.lower() for subword in subwords if subword[:1] != "[" and subword not in special
    )
    if cased and no_capitals and not tokenizer.lowercase:
        out.append(
            f"{cased:,} words of the text have capitals, the vocabulary has none and text is not lower-cased: "
            "this is an uncased vocabulary, load it with lowercase=True."
        )
    return out

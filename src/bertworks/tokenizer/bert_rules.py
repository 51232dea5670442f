"""The text rules of the original BERT (google-research/bert, tokenization.py) as steps of a tokenizer.json.

The `tokenizers` library has these rules too (BertNormalizer, BertPreTokenizer), with older Unicode tables, without
final sigma, and with one block of Chinese characters missing. The steps here spell the rules out, so that transformers
reads the same rules from the file. White space needs no step before WhitespaceSplit.

unicode14.toml has the classes of characters as ranges of code points in Unicode 14.0, the version of the recorded
outputs of the original code. `unicodedata` has another version in each version of Python, and the `tokenizers` library
has older tables: ids must not depend on either. tests/tokenizer/test_tokenizer.py makes the classes again where Python
has Unicode 14, and compares.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .pipeline import steps

Step = dict[str, Any]
CLASSES: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("unicode14.toml").read_text(encoding="utf-8"))
# The blocks that the original calls Chinese characters: no kana, no Hangul.
CHINESE = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"


def characters(ranges: str) -> str:
    """Ranges of code points ("0041-005A 00DF") as the inside of a regular expression's [...].

    The escapes are those that Oniguruma (the library's engine), Python and JavaScript have in common. The expressions
    of this file are read by Oniguruma and by JavaScript (flags "gu", as in transformers.js).
    """
    return re.sub("[0-9A-F]+", lambda code: _escaped(int(code[0], 16)), ranges).replace(" ", "").replace("\n", "")


def _escaped(code: int) -> str:
    return f"\\u{code:04X}" if code < 0x10000 else chr(code)


def _replace(pattern: Step, content: str) -> Step:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _remove(ranges: str) -> Step:
    return _replace({"Regex": f"[{characters(ranges)}]"}, "")


_CASED, _BETWEEN = characters(CLASSES["cased"]), characters(CLASSES["case_ignorable"])
# Python lower-cases a capital sigma to the final form after a cased letter, unless another one follows in the word.
# The lookbehind ends at the first character to the left that is not "between". If that is a letter, group 1 is empty;
# if not, group 1 is that character and fails to match the sigma. A lookbehind for the letter alone would search on to
# the text's beginning, at every sigma.
_AFTER_CASED = f"(?=\u03a3)(?<=([^{_CASED}{_BETWEEN}]|(?<=[{_CASED}]))[{_BETWEEN}]*)\\1"
_FINAL_SIGMA = _replace({"Regex": f"{_AFTER_CASED}\u03a3(?![{_BETWEEN}]*[{_CASED}])"}, "\u03c2")
# The same step as bertworks wrote it before; JavaScript has no *+ and no \\K.
_OLD_FINAL_SIGMA = _replace({"Regex": f"[{_CASED}][{_BETWEEN}]*+\\K\u03a3(?![{_BETWEEN}]*+[{_CASED}])"}, "\u03c2")
# The one character whose decomposition is newer than the library's tables (Dives Akuru, vowel sign O).
_NEW_DECOMPOSITION = _replace({"String": "\U00011938"}, "\U00011935\U00011930")
_CLEAN, _STRIP_MARKS = _remove(CLASSES["control"]), _remove(CLASSES["nonspacing_mark"])


def _split_at(ranges: list[str]) -> Step:
    """White space ends a word; each of these characters is a word."""
    pattern = {"Regex": f"[{''.join(map(characters, ranges))}]"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, split]}


# Chinese characters are split off like punctuation: they are words by themselves too.
PRE_TOKENIZER, _NOT_CHINESE = _split_at([CLASSES["punctuation"], CHINESE]), _split_at([CLASSES["punctuation"]])


@dataclass(frozen=True)
class BertRules:
    """Which of the original's rules hold, and whether Hangul stays whole."""

    lowercase: bool
    compose: bool = False  # NFC at the end: Hangul is whole again, accents do not come back
    strip_accents: bool | None = None  # None: as `lowercase`, which is the original's rule
    chinese: bool = True  # each Chinese character is a word

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> "BertRules | None":
        """The rules of a tokenizer.json with the steps of this file or the library's own; None if it has others."""
        normalizer = [_FINAL_SIGMA if step == _OLD_FINAL_SIGMA else step for step in steps(parts, "normalizer")]
        kinds = [step["type"] for step in normalizer]
        if kinds in (["BertNormalizer"], ["BertNormalizer", "NFC"]):
            bert = normalizer[0]
            rules = cls(bert["lowercase"], "NFC" in kinds, bert["strip_accents"], bert["handle_chinese_chars"])
        else:
            lowercase, strip = "Lowercase" in kinds, "NFD" in kinds
            chinese = parts.get("pre_tokenizer") != _NOT_CHINESE
            rules = cls(lowercase, "NFC" in kinds, None if strip == lowercase else strip, chinese)
        if {**parts, **rules.library_steps} == parts:
            return rules
        now = {**parts, "normalizer": {"type": "Sequence", "normalizers": normalizer}}
        return rules if {**parts, **rules.steps} == now else None

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @cached_property
    def steps(self) -> dict[str, Step]:
        """The entries "normalizer" and "pre_tokenizer" of a tokenizer.json."""
        normalizer = [_CLEAN]
        normalizer += [_FINAL_SIGMA, {"type": "Lowercase"}] if self.lowercase else []
        if self.strips_accents:
            normalizer += [_NEW_DECOMPOSITION, {"type": "NFD"}, _STRIP_MARKS]
        normalizer += [{"type": "NFC"}] if self.compose else []
        split = PRE_TOKENIZER if self.chinese else _NOT_CHINESE
        return {"normalizer": {"type": "Sequence", "normalizers": normalizer}, "pre_tokenizer": split}

    @property
    def library_steps(self) -> dict[str, Step]:
        """The same entries in the library's own words, as bertworks wrote them before; equal on nearly all text."""
        bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": self.chinese}
        bert |= {"strip_accents": self.strip_accents, "lowercase": self.lowercase}
        composed = {"type": "Sequence", "normalizers": [bert, {"type": "NFC"}]}
        return {"normalizer": composed if self.compose else bert, "pre_tokenizer": {"type": "BertPreTokenizer"}}

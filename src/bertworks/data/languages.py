"""Which rules cut the sentences of a language: those of sentencex for 31 languages, or our own for Korean (korean.py).

For other languages sentencex uses the rules of a related language, or the English ones, without a warning. So a build
reports a language without rules of its own.
"""

import re

from ..files import InputError

KOREAN = "ko"
_OWN = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
OWN = frozenset(_OWN.split())  # languages with rules of their own in sentencex 1.0


def base_of(language: str) -> str:
    """The language of a code with a region: `de` of `de-AT`."""
    return language.partition("-")[0]


def check_language(language: str) -> None:
    """Raises InputError for what is no language code."""
    if not re.fullmatch("[a-z]{2,3}(-[A-Za-z]+)*", language):
        raise InputError(f"--language {language!r}: not a language code; expected an ISO code such as en, ko or de")


def missing_rules(language: str) -> str:
    """A warning that a language has no sentence rules of its own; "" if it has."""
    base = base_of(language)
    if base in OWN or base == KOREAN:
        return ""
    return f"there are no sentence rules for {base!r}; those of a related language or of English are used"

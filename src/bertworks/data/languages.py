"""Codes of languages; sentences.py cuts Korean by rules of its own, other languages by those of sentencex."""

import re

from ..files import InputError

KOREAN = "ko"


def base_of(language: str) -> str:
    """The language of a code with a region: `de` of `de-AT`."""
    return language.partition("-")[0]


def check_language(language: str) -> None:
    """Raises InputError for what is no language code."""
    if not re.fullmatch("[a-z]{2,3}(-[A-Za-z]+)*", language):
        raise InputError(f"--language {language!r}: not a language code; expected an ISO code such as en, ko or de")

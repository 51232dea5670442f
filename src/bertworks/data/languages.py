"""Codes of languages; sentences.py cuts Korean by rules of its own, other languages by those of sentencex."""

import re

from ..files import InputError

KOREAN = "ko"
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj
kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""  # ISO 639-1, and bh and sh, which Wikipedia uses


def base_of(language: str) -> str:
    """The language of a code with a region: `de` of `de-AT`."""
    return language.partition("-")[0]


def check_language(language: str) -> None:
    """Raises InputError for an unknown code: three letters are not looked up, a script and a region may follow."""
    match = re.fullmatch("([a-z]{2,3})(-[A-Z][a-z]{3})?(-[A-Z]{2}|-[0-9]{3})?", language)
    if match is None or (len(match[1]) == 2 and match[1] not in _TWO_LETTERS.split()):
        raise InputError(f"--language {language!r}: not a language code; expected an ISO code such as en, ko or de")

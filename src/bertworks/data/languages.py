"""Which rules cut the sentences of a language: its own ones, or those that it borrows from another language.

sentencex has rules of its own for 31 languages. For all others it takes those of a related language, or the English
ones, without a word. So the choice is made here, where a build can report it, and the library only gets codes that it
has rules for. Korean has rules of ours (korean.py).
"""

import re

from ..files import InputError

KOREAN = "ko"
_OWN = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
_BORROWED = {  # by the language whose rules they take, as sentencex chooses it
    "ar": "acm apc arq ary arz",
    "bn": "bpy",
    "ca": "oc",
    "da": "kl",
    "de": "bar dsb frr gsw hsb ksh lb nds pdc rm stq",
    "es": "an arn ast ay gn lad nah qu",
    "fi": "fit krl olo",
    "fr": "bm frp ht kab ln mg sg ty wa wo",
    "hi": "awa bho mag mai sa",
    "it": "co fur lij lmo nap pms scn vec",
    "kk": "kaa",
    "kn": "tcy",
    "my": "ksw mnw",
    "nl": "li vls zea",
    "pl": "csb szl",
    "pt": "gl mwl",
    "ru": "ab av ba bxr ce cv krc kv mdf myv os sah tt tyv udm xal",
    "sk": "cs",
    "uk": "rue",
}
_ENGLISH = """
aa ae af ak as az be bi bo br bs ch cr cu cy dv dz ee eo et eu fa ff fj fo fy ga gd gv ha he ho hr hu hz ia id ie
ig ii ik io is iu jv ka kg ki kj km kr ks ku kw ky la lg lo lt lu lv mh mi mk mn ms mt na nb nd ne ng nn no nr nv
ny oj om or pi ps rn ro rw sc sd se sh si sl sm sn so sq sr ss st su sv sw tg th ti tk tl tn to tr ts tw ug ur uz
ve vi vo xh yi yo za zh zu ceb chr ckb fil hak haw hmn ilo kmr lus mni nan pam pnb sat sco tpi war wuu yue
"""
MISTAKEN = {  # codes of countries and names that are given for languages
    "kr": "ko", "kor": "ko", "korean": "ko", "jp": "ja", "jpn": "ja", "japanese": "ja", "cn": "zh", "chinese": "zh",
    "eng": "en", "english": "en", "ger": "de", "german": "de", "gr": "el", "ua": "uk", "cz": "cs", "dk": "da",
}  # fmt: skip
OWN = frozenset(_OWN.split())  # languages with rules of their own in sentencex 1.0
BORROWED = {language: rules for rules, languages in _BORROWED.items() for language in languages.split()}
ENGLISH_RULES = frozenset(
    _ENGLISH.split()
)  # other languages with a code of two letters in ISO 639, and some with three


def rules_for(language: str) -> str:
    """The language whose rules cut a text of `language`: itself if it has its own, as Korean does."""
    base = language.partition("-")[0]
    return base if base in OWN or base == KOREAN else BORROWED.get(base, "en")


def check_language(language: str) -> None:
    """Raises InputError for what is no code of a known language."""
    base = language.partition("-")[0]
    known = base in OWN or base == KOREAN or base in BORROWED or base in ENGLISH_RULES
    if not known or not re.fullmatch("[a-z]+(-[A-Za-z]+)*", language):
        advice = "for a language that is missing give the code of one that ends its sentences alike"
        if meant := MISTAKEN.get(base.lower()):
            advice = f"did you mean {meant}?"
        raise InputError(f"--language {language!r}: unknown; expected an ISO code such as en, ko or de; {advice}")


def borrowing(language: str) -> str:
    """What a user should know about the rules for `language`, in words; "" if it has its own."""
    rules, base = rules_for(language), language.partition("-")[0]
    if rules == base:
        return ""
    meant = f"; did you mean --language {MISTAKEN[base]}?" if base in MISTAKEN else ""
    return f"there are no sentence rules for {base!r}; those of {rules!r} are used{meant}"

"""The files beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json.

Where there is a tokenizer.json, it decides. A setting is refused by name if it means rules that are not computed here.
tests/tokenizer/test_settings.py compares ids with those of transformers.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import InputError, read_json_object, shorten
from ..typed import check_fields
from .bert_rules import BertRules
from .pipeline import ROLES, Kind

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_RULES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")  # settings of classes that rebuild BERT's rules
_LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ADDED_TOKEN = {"content": str} | {f"{flag}?": bool for flag in _TOKEN_FLAGS}
_TOKEN = (str, _ADDED_TOKEN)
_FORM = {
    **{f"{flag}?": (bool, None) for flag in (*_RULES, "add_prefix_space")},
    **{f"{key}?": ([_TOKEN], {str: _TOKEN}, None) for key in _LISTS},
    "added_tokens_decoder?": ({str: _ADDED_TOKEN}, None),
    "model_input_names?": ([str], None),
    "tokenizer_class?": (str, None),
}
ONLY: dict[str, tuple[Any, ...]] = {  # refused with another value than these
    "truncation_side": ("right", None),
    "split_special_tokens": (False, None),
    "do_basic_tokenize": (True, None),
    "never_split": ([], None),
    "word_tokenizer_type": ("basic", None),  # of BertJapaneseTokenizer
    "subword_tokenizer_type": ("wordpiece", None),
}
CLASSES: dict[Kind, tuple[str, ...]] = {  # without "Tokenizer" and "Fast": those that rebuild the rules from settings
    "wordpiece": ("Bert", "DistilBert", "Electra", "ConvBert", "MobileBert", "SqueezeBert", "LayoutLM"),
    "bpe": ("Roberta", "Longformer", "Bart", "LED", "GPT2"),
    "unigram": ("Albert", "XLMRoberta", "Camembert"),
}
_AS_IS = ("PreTrained", "TokenizersBackend", "PythonBackend")  # classes that add nothing to tokenizer.json
AS_FAST = "save it with the software it comes from as a fast tokenizer (tokenizer.json)"


def check_only(settings: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]], where: str) -> None:
    """Raise InputError for a setting with another value than the ones listed for it; a missing one counts as None."""
    for key, expected in only.items():
        if settings.get(key) not in expected:
            value, usual = shorten(settings[key]), json.dumps(expected[0])
            raise InputError(f"{where}: {key} = {value}; expected {usual}: nothing else is computed here")


@dataclass(frozen=True)
class Settings:
    """What the files of a folder say beside its vocabulary."""

    where: str = CONFIG  # opens every message
    values: Mapping[str, Any] = field(default_factory=dict)  # of tokenizer_config.json
    name: str = ""  # the class, without "Tokenizer" and "Fast"; "": unknown
    named: bool = False  # whether a file names the class; else it follows from the model type
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # special and added tokens: flags, id
    roles: Mapping[str, str] = field(default_factory=dict)  # texts of special tokens by role

    @property
    def segments(self) -> bool:
        """Whether a model gets type ids: transformers gives it the inputs that are named, or all."""
        return "token_type_ids" in (self.values.get("model_input_names") or ["token_type_ids"])

    def check(self, parts: Mapping[str, Any], kind: Kind, is_bare: bool) -> None:
        """Raise InputError if transformers gives other ids by these settings than a tokenizer.json does.

        is_bare: `parts` were made of a vocabulary and these settings, because there is no tokenizer.json.
        """
        if self.name in _AS_IS and not parts["post_processor"]:
            raise InputError(
                f"{self.where}: tokenizer_class = {self.values.get('tokenizer_class')}, and tokenizer.json has no "
                "post_processor: other software adds no special tokens to a text; expected one that adds them"
            )
        if self.named and self.name not in (*CLASSES[kind], *_AS_IS):
            expected = ", ".join(f"{name}Tokenizer" for name in CLASSES[kind])
            raise InputError(
                f"{self.where}: tokenizer_class = {self.name}Tokenizer, but the vocabulary is {kind}; expected "
                f"{expected} or PreTrainedTokenizerFast"
            )
        if self.name in CLASSES["wordpiece"] and not is_bare and (rules := BertRules.of(parts)):
            self._check_rules(rules)
        self._check_added({token["content"]: token for token in parts["added_tokens"]})

    def _check_rules(self, rules: BertRules) -> None:
        """Raise InputError for a setting by which BERT's classes replace a rule of tokenizer.json."""
        for key, rule in zip(_RULES, (rules.lowercase, rules.strips_accents, rules.chinese), strict=True):
            if self.values.get(key) not in (None, rule):
                value, expected = json.dumps(self.values[key]), json.dumps(rule)
                raise InputError(
                    f"{self.where}: {key} = {value}, but tokenizer.json says {expected}; correct one of them"
                )

    def _check_added(self, tokens: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise InputError for a token that the pipeline lacks, or finds by other flags.

        The special tokens of the layout are never found in a text, so only their ids count.
        """
        controls = {*self.roles.values(), *itertools.chain.from_iterable(ROLES.values())}
        for text, token in self.added.items():
            if text in controls:
                fits = text not in tokens or token.get("id") in (None, tokens[text]["id"])
            else:
                fits = text in tokens and all(tokens[text][key] == value for key, value in token.items())
            if not fits:
                raise InputError(
                    f"{self.where}: the added token {shorten(text)} is not in the vocabulary, or is another one there; "
                    f"{AS_FAST}, which has all added_tokens"
                )


def read_settings(folder: Path) -> Settings:
    """The settings of a folder. Raises InputError for a class or a setting that is not computed here."""
    path = folder / CONFIG
    values = read_json_object(path) if path.exists() else {}
    check_only(values, ONLY, str(path))
    check_fields(values, _FORM, str(path))
    name, is_named = _class_of(folder, values)
    tokens = dict(values)
    if values.get("added_tokens_decoder") is None and (folder / MAP).exists():  # as in transformers
        tokens |= read_json_object(folder / MAP)
        check_fields(tokens, _FORM, str(folder / MAP))
    special = {key: _token(value, f"{folder}: {key}") for key, value in tokens.items() if _is_token(key, value)}
    added = {text: dict[str, Any]() for text in special.values()}
    for key in _LISTS:
        listed = tokens.get(key) or []
        added |= {_token(one, key): {} for one in (listed.values() if isinstance(listed, dict) else listed)}
    if (folder / ADDED).exists():
        table = read_json_object(folder / ADDED)
        check_fields(table, {str: int}, str(folder / ADDED))
        added |= {text: {"id": number} for text, number in table.items()}
    for number, token in (values.get("added_tokens_decoder") or {}).items():
        flags = {flag: token[flag] for flag in _TOKEN_FLAGS if flag in token}
        added[token["content"]] = {**flags, "id": int(number) if number.isdecimal() else number}
    roles = {role: special[f"{role}_token"] for role in ROLES if f"{role}_token" in special}
    return Settings(str(path), values, name, is_named, added, roles)


def _class_of(folder: Path, values: Mapping[str, Any]) -> tuple[str, bool]:
    """The class, without "Tokenizer" and "Fast", "" if it is not known; and whether a file names it.

    Raises InputError for a class whose rules are not computed here.
    """
    path, config = folder / CONFIG, folder / "config.json"
    model = read_json_object(config) if config.exists() else {}
    code = values.get("auto_map")
    if code and (not isinstance(code, dict) or code.get("AutoTokenizer")):
        raise InputError(f"{path}: auto_map names the program {shorten(code)}, which is not run here; {AS_FAST}")
    class_name = values.get("tokenizer_class") or model.get("tokenizer_class")
    classes = [*CLASSES["wordpiece"], *CLASSES["bpe"], *CLASSES["unigram"]]
    if class_name is None:  # the class follows from the model type: "xlm-roberta" is that of XLMRoberta
        kind = str(model.get("model_type")).replace("-", "")
        return next((name for name in classes if name.lower() == kind), ""), False
    name = str(class_name).removesuffix("Fast").removesuffix("Tokenizer")
    if name not in (*classes, *_AS_IS):
        where = path if values.get("tokenizer_class") else config
        raise InputError(
            f"{where}: tokenizer_class = {shorten(class_name)}, whose rules are not computed here; expected one of "
            f"{', '.join(f'{name}Tokenizer' for name in classes)}; {AS_FAST} and the class PreTrainedTokenizerFast"
        )
    return name, True


def _is_token(key: str, value: Any) -> bool:
    """Whether transformers takes a setting for a special token, whatever its name."""
    return key.endswith("_token") and (isinstance(value, str) or (isinstance(value, dict) and "content" in value))


def _token(value: Any, where: str) -> str:
    """The text of a token that is given as text, or with its flags."""
    check_fields(value, _TOKEN, where)
    return str(value if isinstance(value, str) else value["content"])

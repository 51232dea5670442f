"""The files beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json.

What transformers' class computes by them is computed here (`Settings.applied`), or refused by name. Other keys change
no id, or are ignored by transformers too. tests/tokenizer/test_settings.py compares ids with those of transformers.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import InputError, read_json_object, shorten
from ..typed import check_fields
from .bert_rules import BertRules
from .pipeline import KINDS, ROLES, Kind, bert_template, library_of, lowercases, steps

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_FLAGS = ("do_lower_case", "strip_accents", "keep_accents", "add_prefix_space", "tokenize_chinese_chars")
_LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_ADDED_TOKEN = {"content": str} | dict.fromkeys(("single_word?", "lstrip?", "rstrip?", "normalized?", "special?"), bool)
_TOKEN = (str, _ADDED_TOKEN)
_FORM = {
    **dict.fromkeys((f"{flag}?" for flag in _FLAGS), (bool, None)),
    **dict.fromkeys((f"{key}?" for key in _LISTS), ([_TOKEN], {str: _TOKEN}, None)),
    "added_tokens_decoder?": ({str: _ADDED_TOKEN}, None),
    "model_input_names?": ([str], None),
    "tokenizer_class?": (str, None),
}
# Settings that are refused with another value than these; the second table without a tokenizer.json alone.
ONLY: dict[str, tuple[Any, ...]] = {
    "truncation_side": ("right", None),
    "split_special_tokens": (False, None),
    "fast_tokenizer_files": (["tokenizer.json"], None),
    "word_tokenizer_type": ("basic", None),  # of BertJapaneseTokenizer
    "subword_tokenizer_type": ("wordpiece", None),
}
ONLY_WITHOUT_PIPELINE: dict[str, tuple[Any, ...]] = {
    "do_basic_tokenize": (True, None),
    "never_split": ([], None),
    "sp_model_kwargs": ({}, None),
    "remove_space": (True, None),
}
_AS_IS = ("PreTrained", "TokenizersBackend", "PythonBackend")  # classes that add nothing to tokenizer.json
_LIKE_BERT = "Bert DistilBert Electra ConvBert MobileBert SqueezeBert LayoutLM DPRContextEncoder DPRQuestionEncoder"
CLASSES: dict[Kind, tuple[str, ...]] = {  # those that rebuild the rules, without "Tokenizer" and "Fast"
    "wordpiece": (*_LIKE_BERT.split(), "DPRReader"),
    "bpe": ("Roberta", "Longformer", "Bart", "LED", "GPT2"),
    "unigram": ("Albert", "XLMRoberta", "Camembert"),
}
_ONLY_PIPELINE = ("GPT2", "XLMRoberta", "Camembert")  # their bare vocabularies have ids or a layout of their own
AddedToken = dict[str, Any]


def check_only(settings: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]], where: str) -> None:
    """Raise InputError for a setting with another value than the ones listed for it; a missing one counts as None."""
    for key, expected in only.items():
        if settings.get(key) not in expected:
            found, usual = shorten(settings[key]), json.dumps(expected[0])
            raise InputError(f"{where}: {key} = {found}; expected {usual}: nothing else is computed here")


@dataclass(frozen=True)
class Settings:
    """What the files of a folder say beside its vocabulary."""

    where: str = CONFIG  # opens every message
    values: Mapping[str, Any] = field(default_factory=dict)  # of tokenizer_config.json
    rebuilds: str = ""  # the class that rebuilds the rules from `values`, without "Tokenizer" and "Fast"; "": none does
    added: tuple[AddedToken, ...] = ()  # with "id" if a file gives it
    names: Mapping[str, str] = field(default_factory=dict)  # texts of special tokens by role
    named: bool = False  # whether a file names the class; else it follows from the model type
    whole: bool = False  # whether there is a tokenizer.json

    @classmethod
    def of(cls, folder: Path, file: Path) -> "Settings":
        """The settings of a folder whose vocabulary is in `file`. Raises InputError for a setting not computed here."""
        path, whole = folder / CONFIG, file.name == "tokenizer.json"
        values = read_json_object(path) if path.exists() else {}
        check_only(values, ONLY if whole else ONLY | ONLY_WITHOUT_PIPELINE, str(path))
        check_fields(values, _FORM, str(path))
        rebuilds, is_named = _class_of(folder, values, whole)
        named, added = _tokens(folder, values)
        names = {role: text for role in ROLES if (text := named.get(f"{role}_token"))}
        return cls(str(path), values, rebuilds, tuple(added), names, is_named, whole)

    def applied(self, pipeline: str) -> str:
        """A checked tokenizer.json as transformers' class changes it. Raises InputError for a contradiction."""
        before, parts = json.loads(pipeline), json.loads(pipeline)
        kind = KINDS[parts["model"]["type"]]
        fits = self.rebuilds in CLASSES[kind]
        if self.named and self.rebuilds and not fits:
            expected = ", ".join(f"{name}Tokenizer" for name in CLASSES[kind])
            raise InputError(
                f"{self.where}: tokenizer_class = {self.rebuilds}Tokenizer, but the vocabulary is {kind}; expected "
                f"{expected} or PreTrainedTokenizerFast"
            )
        if self.named and not self.rebuilds and self.whole and not parts["post_processor"]:
            raise InputError(
                f"{self.where}: tokenizer_class = {self.values.get('tokenizer_class')}, and tokenizer.json has no "
                "post_processor: other software adds no special tokens to a text; expected one that adds them"
            )
        if fits and self.whole and kind == "wordpiece":
            self._rebuild_bert(parts)
        if fits and self.whole and kind == "bpe":
            self._rebuild_bpe(parts)
        if fits and kind != "bpe":
            self._check_rules(parts)
        self._add(parts)
        if fits and kind == "wordpiece":
            self._frame_like_bert(parts)
        if "token_type_ids" not in (self.values.get("model_input_names") or ["token_type_ids"]):
            _without_segments(parts)
        return pipeline if parts == before else library_of(json.dumps(parts), self.where).to_str()

    def _rebuild_bert(self, parts: dict[str, Any]) -> None:
        """The rules with these settings, which win over those of tokenizer.json in transformers."""
        rules = BertRules.of(parts)
        if rules is None:
            return
        lower, chinese = self.values.get("do_lower_case"), self.values.get("tokenize_chinese_chars")
        new = replace(
            rules,
            lowercase=rules.lowercase if lower is None else lower,
            strip_accents=self.values.get("strip_accents", rules.strip_accents),
            chinese=rules.chinese if chinese is None else chinese,
        )
        if new.steps != rules.steps:
            library = parts["pre_tokenizer"] == rules.library_steps["pre_tokenizer"]
            parts |= new.library_steps if library else new.steps

    def _rebuild_bpe(self, parts: dict[str, Any]) -> None:
        prefix = self.values.get("add_prefix_space")
        for step in [*steps(parts, "pre_tokenizer"), parts["post_processor"] or {}]:
            if step.get("type") in ("ByteLevel", "RobertaProcessing") and prefix is not None:
                step["add_prefix_space"] = prefix

    def _check_rules(self, parts: dict[str, Any]) -> None:
        """Raise InputError for a setting that contradicts the rules of a tokenizer.json, which are not rebuilt."""
        kinds = {step["type"] for step in steps(parts, "normalizer")}
        found: dict[str, bool] = {}
        if self.whole and self.rebuilds in ("Albert", *CLASSES["wordpiece"]):
            found["do_lower_case"] = lowercases(parts)
        if self.whole and self.rebuilds == "Albert":
            found["keep_accents"] = not {"NFKD", "StripAccents"} & kinds
        if self.rebuilds in CLASSES["unigram"]:
            found["add_prefix_space"] = True
        for key, expected in found.items():
            if self.values.get(key) not in (None, expected):
                raise InputError(
                    f"{self.where}: {key} = {json.dumps(self.values[key])}, but the vocabulary's rules say "
                    f"{json.dumps(expected)}; correct one of the two"
                )

    def _add(self, parts: dict[str, Any]) -> None:
        """Added tokens as added_tokens of tokenizer.json: those without an id come after all others."""
        vocab = parts["model"]["vocab"]
        ids = {token: i for i, (token, _) in enumerate(vocab)} if isinstance(vocab, list) else dict(vocab)
        entries = {token["content"]: token for token in parts["added_tokens"]}
        ids |= {text: token["id"] for text, token in entries.items()}
        wins = self.values.get("added_tokens_decoder") is not None  # over tokenizer.json; added_tokens.json does not
        for token in self.added:
            text = token["content"]
            number = ids.setdefault(text, len(ids))
            if token.get("id", number) != number:
                raise InputError(
                    f"{self.where}: the added token {shorten(text)} has the id {token['id']}; expected {number}, which "
                    "the vocabulary and the tokens before it leave: use the vocabulary of the same folder"
                )
            if text not in entries or (wins and "id" in token):
                flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
                flags["normalized"] = not token.get("special")
                entries[text] = {**flags, **token, "id": number}
        parts["added_tokens"] = sorted(entries.values(), key=lambda token: int(token["id"]))

    def _frame_like_bert(self, parts: dict[str, Any]) -> None:
        """[UNK], [CLS] and [SEP] under the names that these settings give them."""
        ids = {token["content"]: token["id"] for token in parts["added_tokens"]}
        usual = {role: next((text for text in texts if text in ids), "") for role, texts in ROLES.items()}
        cls, sep, unk = (self.names.get(role, usual[role]) for role in ("cls", "sep", "unk"))
        if unk in ids:
            parts["model"]["unk_token"] = unk
        step = parts["post_processor"] or {}
        template = step.get("type") == "TemplateProcessing" and {*step["special_tokens"]}
        if template and template != {cls, sep} <= ids.keys():
            parts["post_processor"] = json.loads(bert_template(ids, cls, sep).__getstate__())


def _class_of(folder: Path, values: Mapping[str, Any], whole: bool) -> tuple[str, bool]:
    """The class that rebuilds the rules, without "Tokenizer" and "Fast", "" if none does; and whether a file names it.

    whole: whether there is a tokenizer.json. Raises InputError for a class whose rules are not computed here.
    """
    path, config = folder / CONFIG, folder / "config.json"
    model = read_json_object(config) if config.exists() else {}
    advice = "save it as a fast tokenizer (tokenizer.json) with the software it comes from, if that can"
    if whole:
        advice = "if tokenizer.json alone gives the same ids, name PreTrainedTokenizerFast and remove auto_map"
    code = values.get("auto_map")
    code = code.get("AutoTokenizer") if isinstance(code, dict) else code
    if code and (not isinstance(code, list) or any(code)):
        raise InputError(f"{path}: auto_map names the program {shorten(code)}, which is not run here; {advice}")
    if model.get("model_type") == "modernbert":  # of which transformers takes tokenizer.json, whatever class is named
        return "", True
    where = config if values.get("tokenizer_class") is None else path
    found = values.get("tokenizer_class") or model.get("tokenizer_class")
    classes = [name for names in CLASSES.values() for name in names]
    if found is None:  # the class follows from the model type: "xlm-roberta" is that of XLMRoberta
        kind = str(model.get("model_type")).replace("-", "")
        name = next((name for name in classes if name.lower() == kind), "")
    else:
        name = str(found).removesuffix("Fast").removesuffix("Tokenizer")
        if name in _AS_IS:
            return "", True
        if name not in classes:
            raise InputError(
                f"{where}: tokenizer_class = {shorten(found)}, whose rules are not computed here; expected one of "
                f"{', '.join(f'{name}Tokenizer' for name in classes)}; {advice}"
            )
    if name in _ONLY_PIPELINE and not whole:
        raise InputError(f"{where}: {name}Tokenizer without a tokenizer.json, which is not read; {advice}")
    return name, found is not None


def _tokens(folder: Path, values: Mapping[str, Any]) -> tuple[dict[str, str], list[AddedToken]]:
    """Texts of special tokens by their keys, and added tokens in the order in which transformers adds them.

    As there, special_tokens_map.json and added_tokens.json are read only where tokenizer_config.json has no
    added_tokens_decoder.
    """
    values, decoder, listed = dict(values), values.get("added_tokens_decoder"), {*_LISTS[:2]}
    added: list[AddedToken] = []
    if decoder is not None:
        if wrong := [key for key in decoder if not key.isdecimal() or len(key) > 9]:
            raise InputError(
                f"{folder / CONFIG}: added_tokens_decoder has the key {shorten(wrong[0])}; expected a token's id"
            )
        added = [{**token, "id": int(key)} for key, token in sorted(decoder.items(), key=lambda item: int(item[0]))]
    elif (folder / MAP).exists():
        found = read_json_object(folder / MAP)
        check_fields(found, _FORM, str(folder / MAP))
        values |= {key: value for key, value in found.items() if key in _LISTS[:2] or _is_token(key, value)}
        listed -= {"additional_special_tokens"} & found.keys()
    named = {key: _special(value, f"{folder}: {key}") for key, value in values.items() if _is_token(key, value)}
    lists = {key: value.values() if isinstance(value := values.get(key) or (), dict) else value for key in _LISTS}
    extra = {key: [_special(token, f"{folder}: {key}") for token in tokens] for key, tokens in lists.items()}
    if decoder is None and (folder / ADDED).exists():
        table = read_json_object(folder / ADDED)
        check_fields(table, {str: int}, str(folder / ADDED))
        # As transformers 5 does, which overlooks the additional_special_tokens of special_tokens_map.json here.
        texts = {token["content"] for token in [*named.values(), *(one for key in listed for one in extra[key])]}
        for text, number in sorted(table.items(), key=lambda item: int(item[1])):
            added.append({"content": text, "id": number, "special": text in texts, "normalized": text not in texts})
    special = [*named.values(), *itertools.chain.from_iterable(extra.values())]
    return {key: str(token["content"]) for key, token in named.items()}, [*added, *special]


def _is_token(key: str, value: Any) -> bool:
    """Whether transformers takes a setting for a special token, whatever its name."""
    return key.endswith("_token") and (isinstance(value, str) or (isinstance(value, dict) and "content" in value))


def _special(value: Any, where: str) -> AddedToken:
    """A special token that is given as its text, or with its flags (and keys of transformers such as __type)."""
    check_fields(value, _TOKEN, where)
    token = {"content": value} if isinstance(value, str) else value
    return {key: token[key] for key in token if f"{key}?" in _ADDED_TOKEN or key == "content"} | {"special": True}


def _without_segments(parts: dict[str, Any]) -> None:
    """Type id 0 for both texts: without token_type_ids among its inputs, transformers gives none to the model."""
    step = parts.get("post_processor") or {}
    if step.get("type") == "BertProcessing":
        (cls, i), (sep, j) = step["cls"], step["sep"]
        step = parts["post_processor"] = json.loads(bert_template({cls: i, sep: j}, cls, sep).__getstate__())
    for one in step.get("processors", [step]):
        for cell in one.get("pair", ()) if one.get("type") == "TemplateProcessing" else ():
            next(iter(cell.values()))["type_id"] = 0

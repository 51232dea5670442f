"""Settings of other software beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json.

Every key that is known is in one of four tables. `READ` is computed as in transformers; `WITHOUT_EFFECT` changes no id,
type id or offset; `ONLY` and `ONLY_WITHOUT_PIPELINE` are refused with another value than those. transformers ignores
any other key, and so does bertworks, with a note that names it. tests/tokenizer/test_settings.py compares all of it
with transformers.
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
from .foreign import check_only, unread_note
from .pipeline import KINDS, ROLES, Kind, bert_template, library_of, lowercases, steps

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_TOKENS = tuple(f"{role}_token" for role in ("bos", "eos", *ROLES))  # and any other text under a key in `_token`
_LISTS = ("additional_special_tokens", "extra_special_tokens")  # the second is the name in transformers 5
_FLAGS = ("do_lower_case", "strip_accents", "keep_accents", "add_prefix_space", "tokenize_chinese_chars")
_READ = "tokenizer_class auto_map added_tokens_decoder model_specific_special_tokens model_input_names"
READ = frozenset([*_READ.split(), "model_max_length", "max_len", *_TOKENS, *_LISTS, *_FLAGS])  # lengths: metadata.py
ONLY: dict[str, tuple[Any, ...]] = {
    "truncation_side": ("right", None),
    "split_special_tokens": (False, None),
    "init_inputs": ([], None),
    "fast_tokenizer_files": (["tokenizer.json"], None),
    "word_tokenizer_type": ("basic", None),  # of BertJapaneseTokenizer, which config.json may name
    "subword_tokenizer_type": ("wordpiece", None),
    "do_word_tokenize": (True, None),
    "do_subword_tokenize": (True, None),
}
ONLY_WITHOUT_PIPELINE: dict[str, tuple[Any, ...]] = {  # a tokenizer.json has what these would change
    "do_basic_tokenize": (True, None),
    "never_split": ([], None),
    "sp_model_kwargs": ({}, None),
    "remove_space": (True, None),
}
# In this order: decoding, padding (ours is at the end) and what callers ask for; where a file came from; settings of
# classes that are refused, and of classes without [CLS] and [SEP].
_WITHOUT_EFFECT = """
clean_up_tokenization_spaces wordpieces_prefix errors padding_side padding pad_token_type_id pad_to_multiple_of
max_length stride truncation truncation_strategy return_tensors verbose trim_offsets chat_template clean_text
pad_token_segment_id cls_token_segment_id sequence_a_segment_id sequence_b_segment_id mask_padding_with_zero legacy
name_or_path special_tokens_map_file tokenizer_file vocab_file merges_file full_tokenizer_file backend is_local
local_files_only processor_class from_slow use_fast device device_map slow_tokenizer_class transformers_version revision
use_auth_token trust_remote_code cache_dir _commit_hash _from_auto model_type vocab_size
mecab_kwargs sudachi_kwargs jumanpp_kwargs add_bos_token add_eos_token unk_id
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
_AS_IS = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")  # classes that add nothing to tokenizer.json
_LIKE_BERT = "Bert DistilBert Electra ConvBert MobileBert SqueezeBert LayoutLM DPRContextEncoder DPRQuestionEncoder"
CLASSES: dict[Kind, tuple[str, ...]] = {  # those that rebuild the rules, without "Tokenizer" and "Fast"
    "wordpiece": (*_LIKE_BERT.split(), "DPRReader"),
    "bpe": ("Roberta", "Longformer", "Bart", "LED", "GPT2"),
    "unigram": ("Albert", "XLMRoberta", "Camembert"),
}
_OF_MODEL = {  # where no file names a class
    **{"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "albert": "Albert"},
    **{"xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
}
_ONLY_PIPELINE = ("GPT2", "XLMRoberta", "Camembert")  # their bare vocabularies have ids or a layout of their own
_ADDED_TOKEN = {
    "content": str,
    **{f"{flag}?": bool for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")},
}
AddedToken = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the files of a folder say beside its vocabulary."""

    where: str = CONFIG  # opens every message
    values: Mapping[str, Any] = field(default_factory=dict)  # of READ
    rebuilds: str = ""  # the class that rebuilds the rules from `values`, without "Tokenizer" and "Fast"; "": none does
    added: tuple[AddedToken, ...] = ()  # with "id" if a file gives it
    names: Mapping[str, str] = field(default_factory=dict)  # texts of special tokens by role
    note: str = ""  # names the keys that are in no table
    named: bool = False  # whether a file names the class; else it follows from the model type
    whole: bool = False  # whether there is a tokenizer.json

    @classmethod
    def of(cls, folder: Path, file: Path) -> "Settings":
        """The settings of a folder whose vocabulary is in `file`. Raises InputError for a setting not computed here."""
        path, whole = folder / CONFIG, file.name == "tokenizer.json"
        found = read_json_object(path) if path.exists() else {}
        values = {key: value for key, value in found.items() if key in READ or _is_token(key, value)}
        for key in _FLAGS:
            if not isinstance(values.get(key), bool | None):
                raise InputError(f"{path}: {key} = {shorten(values[key])}; expected true, false or null")
        check_only(found, ONLY if whole else ONLY | ONLY_WITHOUT_PIPELINE, str(path))
        known = READ | ONLY.keys() | ONLY_WITHOUT_PIPELINE.keys() | WITHOUT_EFFECT
        note = unread_note({key: value for key, value in found.items() if not _is_token(key, value)}, known, str(path))
        rebuilds, is_named = _class_of(folder, values, whole)
        named, added = _tokens(folder, values)
        names = {role: text for role in ROLES if (text := named.get(f"{role}_token"))}
        check_fields(values, {"model_input_names?": ([str], None)}, str(path))
        return cls(str(path), values, rebuilds, tuple(added), names, note, is_named, whole)

    def applied(self, pipeline: str) -> str:
        """A checked tokenizer.json as transformers' class changes it. Raises InputError for a contradiction."""
        before, parts = json.loads(pipeline), json.loads(pipeline)
        kind = KINDS[parts["model"]["type"]]
        fits = self.rebuilds in CLASSES[kind]
        if self.rebuilds and self.named and not fits:
            expected = ", ".join(f"{name}Tokenizer" for name in CLASSES[kind])
            raise InputError(
                f"{self.where}: tokenizer_class = {self.rebuilds}Tokenizer, but the vocabulary is {kind}; expected "
                f"{expected} or PreTrainedTokenizerFast"
            )
        if self.whole and self.named and not self.rebuilds and not parts["post_processor"]:
            raise InputError(
                f"{self.where}: tokenizer_class = {self.values.get('tokenizer_class')}, and tokenizer.json has no "
                "post_processor: other software adds no special tokens to a text; expected one that adds them"
            )
        if fits and kind == "unigram" and self.values.get("add_prefix_space") is False:
            self._refuse("add_prefix_space", False, True)
        if fits and self.whole:
            {"wordpiece": self._rebuild_bert, "bpe": self._rebuild_bpe, "unigram": self._check_albert}[kind](parts)
        self._add(parts)
        if fits and kind == "wordpiece":
            self._frame_like_bert(parts)
        if "token_type_ids" not in (self.values.get("model_input_names") or ["token_type_ids"]):
            _without_segments(parts)
        return pipeline if parts == before else library_of(json.dumps(parts), self.where).to_str()

    def _rebuild_bert(self, parts: dict[str, Any]) -> None:
        """The rules with these settings. In transformers they win over those of tokenizer.json."""
        rules, lower = BertRules.of(parts), self.values.get("do_lower_case")
        if rules is None:
            if lower not in (None, lowercases(parts)):
                self._refuse("do_lower_case", lower, lowercases(parts))
            return
        lower = rules.lowercase if lower is None else lower
        strips = self.values.get("strip_accents", rules.strip_accents)
        chinese = self.values.get("tokenize_chinese_chars")
        new = replace(rules, lowercase=lower, strip_accents=strips)
        new = new if chinese is None else replace(new, chinese=chinese)
        if new.steps != rules.steps:
            library = parts["pre_tokenizer"] == rules.library_steps["pre_tokenizer"]
            parts |= new.library_steps if library else new.steps

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

    def _rebuild_bpe(self, parts: dict[str, Any]) -> None:
        prefix = self.values.get("add_prefix_space")
        for step in [*steps(parts, "pre_tokenizer"), parts["post_processor"] or {}]:
            if step.get("type") in ("ByteLevel", "RobertaProcessing") and prefix is not None:
                step["add_prefix_space"] = prefix

    def _check_albert(self, parts: dict[str, Any]) -> None:
        kinds = {step["type"] for step in steps(parts, "normalizer")}
        found = {"do_lower_case": lowercases(parts), "keep_accents": not {"NFKD", "StripAccents"} & kinds}
        for key, value in found.items():
            if self.rebuilds == "Albert" and self.values.get(key) not in (None, value):
                self._refuse(key, self.values[key], value)

    def _refuse(self, key: str, found: Any, expected: Any) -> None:
        raise InputError(
            f"{self.where}: {key} = {json.dumps(found)}, but the vocabulary's rules say {json.dumps(expected)}; "
            "correct one of the two"
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
                entries[text] = {**_filled(token), "id": number}
        parts["added_tokens"] = sorted(entries.values(), key=lambda token: int(token["id"]))


def _is_token(key: str, value: Any) -> bool:
    """Whether transformers takes a setting for a special token, whatever its name."""
    return key.endswith("_token") and (isinstance(value, str) or (isinstance(value, dict) and "content" in value))


def _class_of(folder: Path, values: Mapping[str, Any], whole: bool) -> tuple[str, bool]:
    """The class that rebuilds the rules, without "Tokenizer" and "Fast", "" if none does; and whether a file names it.

    whole: whether there is a tokenizer.json. Raises InputError for a class whose rules are not computed here.
    """
    path, config = folder / CONFIG, folder / "config.json"
    model = read_json_object(config) if config.exists() else {}
    found, where = values.get("tokenizer_class"), path
    if found is None and model.get("tokenizer_class") is not None:
        found, where = model["tokenizer_class"], config
    code = values.get("auto_map")
    code = code.get("AutoTokenizer") if isinstance(code, dict) else code
    if code and (not isinstance(code, list) or any(code)):
        raise InputError(f"{path}: auto_map names the program {shorten(code)}, which is not run here; {_advice(whole)}")
    kind = model.get("model_type")
    if kind == "modernbert":  # of which transformers takes tokenizer.json as it is, whatever class is named
        return "", True
    if found is None:
        name = _OF_MODEL.get(kind, "") if isinstance(kind, str) else ""
    elif isinstance(found, str) and found.removesuffix("Fast") in _AS_IS:
        return "", True
    else:
        name = found.removesuffix("Fast").removesuffix("Tokenizer") if isinstance(found, str) else ""
        if not name or not any(name in names for names in CLASSES.values()):
            known = ", ".join(f"{name}Tokenizer" for names in CLASSES.values() for name in names)
            raise InputError(
                f"{where}: tokenizer_class = {shorten(found)}, whose rules are not computed here; expected one of "
                f"{known}; {_advice(whole)}"
            )
    if name in _ONLY_PIPELINE and not whole:
        raise InputError(f"{where}: {name}Tokenizer without a tokenizer.json, which is not read; {_advice(whole)}")
    return name, found is not None


def _advice(whole: bool) -> str:
    if whole:
        return "if tokenizer.json alone gives the same ids, name PreTrainedTokenizerFast and remove auto_map"
    return "save it as a fast tokenizer (tokenizer.json) with the software it comes from, if that can"


def _tokens(folder: Path, values: Mapping[str, Any]) -> tuple[dict[str, str], list[AddedToken]]:
    """Texts of special tokens by their keys, and added tokens in the order in which transformers adds them.

    As there, special_tokens_map.json and added_tokens.json are read only where tokenizer_config.json has no
    added_tokens_decoder.
    """
    values, decoder, listed = dict(values), values.get("added_tokens_decoder"), {*_LISTS}
    added: list[AddedToken] = []
    if decoder is not None:
        check_fields(decoder, {str: _ADDED_TOKEN}, f"{folder / CONFIG}: added_tokens_decoder")
        numbered = {_number(key, folder / CONFIG): token for key, token in decoder.items()}
        added = [{**numbered[number], "id": number} for number in sorted(numbered)]
    elif (folder / MAP).exists():
        found = read_json_object(folder / MAP)
        values |= {key: value for key, value in found.items() if key in _LISTS or _is_token(key, value)}
        listed -= {"additional_special_tokens"} & found.keys()
    named = {key: _token(value, f"{folder}: {key}") for key, value in values.items() if _is_token(key, value)}
    extra = {key: _listed(values.get(key), f"{folder}: {key}") for key in (*_LISTS, "model_specific_special_tokens")}
    special = [*named.values(), *itertools.chain.from_iterable(extra.values())]
    if decoder is None and (folder / ADDED).exists():
        table = read_json_object(folder / ADDED)
        check_fields(table, {str: int}, str(folder / ADDED))
        # As transformers 5 does, which overlooks the additional_special_tokens of special_tokens_map.json here.
        texts = {token["content"] for token in [*named.values(), *(one for key in listed for one in extra[key])]}
        for text, number in sorted(table.items(), key=lambda item: int(item[1])):
            added.append({"content": text, "id": number, "special": text in texts, "normalized": text not in texts})
    return {key: str(token["content"]) for key, token in named.items()}, [*added, *special]


def _number(key: str, path: Path) -> int:
    if not key.isdecimal() or len(key) > 9:
        raise InputError(f"{path}: added_tokens_decoder has the key {shorten(key)}; expected a token's id")
    return int(key)


def _listed(value: Any, where: str) -> list[AddedToken]:
    """The tokens of a list, or of a table of tokens by name."""
    if not isinstance(value, list | dict | None):
        raise InputError(f"{where} = {shorten(value)}; expected a list of tokens")
    return [_token(one, where) for one in (value.values() if isinstance(value, dict) else value or ())]


def _token(value: Any, where: str) -> AddedToken:
    """A special token that is given as its text, or with its flags."""
    check_fields(value, (str, _ADDED_TOKEN), where)
    token = {"content": value} if isinstance(value, str) else {**value}
    return {**token, "special": True}


def _filled(token: AddedToken) -> AddedToken:
    """A token as tokenizer.json has it, with all flags."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    flags["normalized"] = not token.get("special")
    return {"content": token["content"], **flags, **{name: token[name] for name in flags if name in token}}


def _without_segments(parts: dict[str, Any]) -> None:
    """Type id 0 for both texts: without token_type_ids among its inputs, transformers gives none to the model."""
    step = parts.get("post_processor") or {}
    if step.get("type") == "BertProcessing":
        (cls, i), (sep, j) = step["cls"], step["sep"]
        step = parts["post_processor"] = json.loads(bert_template({cls: i, sep: j}, cls, sep).__getstate__())
    for one in step.get("processors", [step]):
        for cell in one.get("pair", ()) if one.get("type") == "TemplateProcessing" else ():
            next(iter(cell.values()))["type_id"] = 0

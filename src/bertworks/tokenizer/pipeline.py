"""A tokenizer.json as data: which kind it is, which of its tokens is which special one, how it lays pairs out.

Special tokens are identified by what they do (their role), not by their text: BERT's [CLS] is RoBERTa's <s>.
"""

import contextlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import tokenizers
from tokenizers import processors

from ..encodings import read_lines
from ..files import InputError

Kind = Literal["wordpiece", "bpe", "unigram"]
KINDS: dict[str, Kind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}
ROLES = {  # the texts a special token goes by, BERT's first
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
SPACE, METASPACE = "\u0120", "\u2581"  # how a token begins if there is a space before it: byte-level BPE, Unigram

MAX_GROWTH = 20  # of a text by a normalizer
NO_TOKEN = "[no token has id"  # how the names of ids without a token begin


@dataclass(frozen=True)
class Layout:
    """How one or two texts are framed by special tokens."""

    pair_separators: int = 1  # separators between the two texts: one for BERT and ALBERT, two for RoBERTa
    segments: bool = True  # whether the second text has type id 1


def check_pipeline(pipeline: str, where: str) -> str:
    """`pipeline` as the library writes it, without padding and truncation (both are ours). Raises InputError."""
    try:
        parsed = json.loads(pipeline)
        kind = parsed["model"]["type"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{where}: not a tokenizer.json (no model.type in it)") from None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{where}: its model is {kind}; expected one of {', '.join(KINDS)}")
    vocab, added = parsed["model"].get("vocab"), parsed.get("added_tokens")
    count = sum(len(part) for part in (vocab, added) if isinstance(part, dict | list))
    if isinstance(vocab, dict) and any(type(one) is int and one > 2 * count for one in vocab.values()):
        # the library would count to the highest id, which takes minutes and all memory
        raise InputError(f"{where}: the {len(vocab)} tokens do not have the ids 0 to {len(vocab) - 1}, each once")
    read = library_of(pipeline, where).to_str()
    parts = json.loads(read)
    model, prefix = parts["model"], parts["model"].get("continuing_subword_prefix")
    cut = parsed.get("truncation") or {}
    byte_level = any(step["type"] == "ByteLevel" for step in steps(parts, "pre_tokenizer"))
    faults = {
        "its BPE is not on bytes; expected WordPiece, Unigram, or BPE like RoBERTa's": kind == "BPE" and not byte_level,
        "its BPE leaves out merges at random (model.dropout); expected null": model.get("dropout"),
        f"its model.continuing_subword_prefix is {prefix!r}; expected '##'": kind == "WordPiece" and prefix != "##",
        "its model.unk_id is null; expected an id": kind == "Unigram" and model["unk_id"] is None,
        'its truncation.direction is "Left"; expected "Right"': cut.get("direction") == "Left",
    }
    for fault, is_found in faults.items():
        if is_found:
            raise InputError(f"{where}: {fault}")
    _check_growth(steps(parts, "normalizer"), where)
    return read


def read_id_lines(path: Path, expected: str) -> list[str]:
    """The lines of a file in which a line's number has a meaning. Raises InputError as `read_lines`, and for a BOM."""
    lines = read_lines(path, expected)
    if lines and lines[0].startswith("\ufeff"):
        raise InputError(
            f"{path}: begins with a byte order mark (U+FEFF), which would be part of its first line; expected UTF-8 "
            "without one; save the same lines as UTF-8 without a byte order mark"
        )
    return lines


def without_gaps(vocab: Mapping[str, int], others: Iterable[int] = ()) -> dict[str, int]:
    """`vocab` with names for the ids below its highest one that neither it nor `others` have.

    With their spaces the names match no text.
    """
    free = sorted({*range(max(vocab.values(), default=0))} - {*vocab.values(), *others})
    return {**vocab, **{f"{NO_TOKEN} {number}]": number for number in free}}


def _check_growth(normalizer: Sequence[dict[str, Any]], where: str) -> None:
    """Raise InputError if a normalizer makes a text MAX_GROWTH times as long, as 34 times "a" by "aa" does.

    It is applied to printable ASCII, and to what its replacements find and write, step by step.
    """
    replaced = [step for step in normalizer if step["type"] == "Replace"]
    words = [text for step in replaced for text in (*step["pattern"].values(), step["content"])]
    text = " ".join([*map(chr, range(33, 127)), *words])
    longest = MAX_GROWTH * len(text)
    empty = json.loads(tokenizers.Tokenizer(tokenizers.models.WordPiece()).to_str())
    for step in normalizer if replaced else ():
        apply = library_of(json.dumps({**empty, "normalizer": step}), where).normalizer
        with library_errors_named(where):
            text = apply.normalize_str(text) if apply else text
        if len(text) > longest:
            raise InputError(f"{where}: its normalizer makes a text more than {MAX_GROWTH} times as long")


def library_of(pipeline: str, where: str) -> tokenizers.Tokenizer:
    """The library's object for a tokenizer.json, without padding and truncation. Raises InputError if it has none."""
    with library_errors_named(where, "cannot read this file"):
        library = tokenizers.Tokenizer.from_str(pipeline)
    library.no_padding()
    library.no_truncation()
    return library


@contextlib.contextmanager
def library_errors_named(where: str, failure: str = "stopped at a text") -> Iterator[None]:
    """Turns an error of the library into an InputError.

    The library raises Exception itself, or panics, which is no Exception, for example if an expression in the file
    does not end on a text.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{where}: the tokenizers library {failure} ({error})") from None


def steps(parts: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The steps of "normalizer" or "pre_tokenizer", one after the other."""
    step = parts.get(name)
    if not step:
        return []
    inner = step.get("normalizers" if name == "normalizer" else "pretokenizers")
    return [step] if step["type"] != "Sequence" else [one for part in inner for one in steps({name: part}, name)]


def lowercases(parts: Mapping[str, Any]) -> bool:
    """Whether text is lower-cased."""
    return any(step.get("lowercase") or step["type"] == "Lowercase" for step in steps(parts, "normalizer"))


def ordered(ids: dict[str, int], where: str) -> list[str]:
    """Tokens in the order of their ids. Raises InputError if an id is missing or used twice."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{where}: the {len(ids)} tokens do not have the ids 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def roles_of(vocab: Mapping[str, int], where: str, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The text of each special token by its role: that of `names`, or a usual one. Raises InputError."""
    usual = {role: (names[role],) if role in names else texts for role, texts in ROLES.items()}
    roles = {role: next((text for text in texts if text in vocab), "") for role, texts in usual.items()}
    missing = [" or ".join(usual[role]) for role, text in roles.items() if not text]
    if missing:
        raise InputError(
            f"{where}: the vocabulary lacks {', '.join(missing)}; is this a vocabulary of BERT, RoBERTa or ALBERT?"
        )
    return roles


def layout_of(library: tokenizers.Tokenizer, sep_id: int, kind: Kind) -> Layout:
    """How pairs are laid out: as the post-processor does it, without one as the kind's first model does."""
    if library.post_processor is None:
        return Layout(2, segments=False) if kind == "bpe" else Layout()
    pair = library.encode("a", "a")
    between = pair.ids[1:-1]  # the first token may be the separator too
    return Layout(between.count(sep_id), segments=1 in pair.type_ids)


def bert_template(ids: Mapping[str, int], cls: str, sep: str) -> processors.TemplateProcessing:
    """The post-processor of BERT's layout, with the texts of its [CLS] and [SEP]."""
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
    )


def without_controls(parts: Mapping[str, Any], controls: Container[str]) -> tuple[str, frozenset[str]]:
    """The pipeline for plain text, in which nothing written becomes one of `controls`; and the other added tokens.

    With the library's `encode_special_tokens` it finds no special token in a text: so the others are not special here.
    WordPiece and BPE never spell a control out of a text. A Unigram model would: its special tokens are tokens with the
    best score of all. SentencePiece never takes them from a text, so here they get names with a line break, which text
    between white space cannot have.
    """
    plain = {token["content"] for token in parts["added_tokens"] if token["special"] and token["content"] in controls}
    added = [token if token["content"] in plain else {**token, "special": False} for token in parts["added_tokens"]]
    others, model = frozenset(token["content"] for token in added) - plain, dict(parts["model"])
    out = {**parts, "added_tokens": added, "model": model}
    if model["type"] == "Unigram":
        hidden = {text: f"\n{text}" for text in plain}
        model["vocab"] = [[hidden.get(token, token), score] for token, score in model["vocab"]]
        out["added_tokens"] = [{**token, "content": hidden.get(token["content"], token["content"])} for token in added]
        out["post_processor"] = None
    return json.dumps(out), others

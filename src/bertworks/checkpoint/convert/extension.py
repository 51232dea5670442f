"""New words for a WordPiece vocabulary, and rows for them in the model's tables (`bertworks tokenizer extend`).

A word replaces an [unused] entry while there is one, as the original's authors advise; later words get new ids at the
end. A word's row is the mean of the rows of its former subwords: a better start than chance, still to be trained.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import InputError, read_lines
from ...tokenizer import Tokenizer
from ..folder import CONFIG, find_model, load_model, read_config, save_folder
from ..locate import new_folder
from ..metadata import metadata_of
from ..pooling import read_pooling, write_pooling
from .resize import with_rows

_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Extended:
    """A vocabulary with new words."""

    tokenizer: Tokenizer
    subwords: dict[int, list[int]]  # id of each new word: the ids of the subwords it had before
    slots: int  # how many of these ids were [unused] entries
    skipped: dict[str, str]  # words that were not added: why


def extend_folder(folder: Path | str, words: Path | str, out: Path | str) -> Extended:
    """Write to `out` the model or tokenizer in `folder`, with the words of a file, a word a line.

    A model keeps its heads, labels, task and (of sentence-transformers) pooling. Raises InputError if no word is left
    to add, the vocabulary is not a WordPiece one, or `out` holds anything.
    """
    with new_folder(out) as staging:
        return _extended(Path(folder), Path(words), staging)


def _extended(folder: Path, words: Path, out: Path) -> Extended:
    folder, pooling = read_pooling(find_model(folder))
    found = extend(Tokenizer.load(folder), read_words(words), f"{words}")
    if not (folder / CONFIG).exists():
        found.tokenizer.save(out)
        return found
    model = with_rows(load_model(folder), found.subwords)
    _, settings = read_config(folder)
    facts = {"title": "Encoder with an extended vocabulary", "made": "whose vocabulary bertworks extended"}
    save_folder(
        out, model, found.tokenizer, facts | {"new words": len(found.subwords)}, **metadata_of(folder, settings, model)
    )
    if pooling:
        write_pooling(out, pooling, model.encoder.width)
    return found


def read_words(file: Path) -> list[str]:
    """The words of a file, a line each; empty lines are none. Raises InputError if it is missing or not UTF-8."""
    lines = read_lines(file, "one word per line in UTF-8")
    return [word for line in lines if (word := line.removeprefix("\ufeff").strip())]  # after a byte order mark


def extend(tokenizer: Tokenizer, words: Iterable[str], where: str) -> Extended:
    """The tokenizer with `words`, as its rules write them (an uncased one lower-cases them first).

    Raises InputError if it is not a WordPiece one, or none of the words can be added.
    """
    parts = json.loads(tokenizer.pipeline)
    if parts["model"]["type"] != "WordPiece":
        raise InputError(
            f"{where}: the vocabulary is of the kind {parts['model']['type']}; only WordPiece vocabularies are "
            "extended: the others follow from merges or probabilities that a new word does not have"
        )
    added: dict[str, list[int]] = {}
    skipped: dict[str, str] = {}
    for word in words:
        written = tokenizer.normalize(word).strip()
        why = "given twice" if written in added else _obstacle(tokenizer, written, parts["model"])
        if why:
            skipped[word] = why
        else:
            added[written] = tokenizer.ids_of([written])[0]
    if not added:
        shown = "; ".join(f"{word}: {why}" for word, why in list(skipped.items())[:5]) or "there are none"
        raise InputError(f"{where}: no word to add ({shown})")
    slots = _add_words(parts, [*added])
    new = Tokenizer(json.dumps(parts, ensure_ascii=False), where, tokenizer.roles, tokenizer.layout.segments)
    subwords = {parts["model"]["vocab"][word]: ids for word, ids in added.items()}
    return Extended(new, subwords, slots, skipped)


def _obstacle(tokenizer: Tokenizer, word: str, model: Mapping[str, Any]) -> str:
    """Why a word cannot be added; empty if it can."""
    split = tokenizer.split(word)
    if split != [word]:
        return f"always split before the vocabulary is used, into {' '.join(split) or 'nothing'}"
    if word in model["vocab"]:
        return "already in the vocabulary"
    limit = model["max_input_chars_per_word"]
    return f"longer than {limit} characters" if len(word) > limit else ""


def _add_words(parts: dict[str, Any], words: list[str]) -> int:
    """Add the words to a pipeline's vocabulary; returns how many replaced an [unused] entry."""
    vocab: dict[str, int] = parts["model"]["vocab"]
    special = {token["content"] for token in parts["added_tokens"]}
    vocab |= {token["content"]: token["id"] for token in parts["added_tokens"]}  # the library counts these alone
    size = len(vocab)
    free = sorted((i, entry) for entry, i in vocab.items() if _UNUSED.fullmatch(entry) and entry not in special)
    for word, (number, slot) in zip(words, free, strict=False):
        del vocab[slot]
        vocab[word] = number
    for number, word in enumerate(words[len(free) :], size):
        vocab[word] = number
    return min(len(words), len(free))

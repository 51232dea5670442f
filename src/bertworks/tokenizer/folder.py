"""The files of a tokenizer: tokenizer.json, or what published models have instead, and what a saved folder holds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import InputError, not_found, read_json, write_json, write_text
from . import byte_bpe, unigram
from .bert_rules import BertRules
from .pipeline import METASPACE, Layout, lowercases
from .settings import Settings
from .spiece import read_model
from .wordpiece import evidently_syllables, pipeline_of, read_vocab


def read_pipeline(path: Path, lowercase: bool | None) -> tuple[str, Path, Settings]:
    """The tokenizer.json of a folder or file, made from other files if it is not there; its file; a folder's settings.

    lowercase: said by the caller, else by tokenizer_config.json, else see `Tokenizer.load`. Raises InputError if a file
    is missing or damaged, a setting is not computed here, or a vocab.txt is not said to be cased or uncased.
    """
    if not path.exists():
        raise InputError(f"{path}: {not_found(path, 'file or folder')}; expected a run, model or tokenizer folder, a "
                         "tokenizer.json or a vocab.txt")  # fmt: skip
    settings = Settings()
    if path.is_dir():
        path = _file_in(path)
        settings = Settings.of(path.parent, path)
    if path.suffix == ".json" and path.name != "vocab.json":
        found = read_json(path)
        _check_truncation(found, path)
        return json.dumps(found, ensure_ascii=False), path, settings
    said = settings.values.get
    if path.name in ("vocab.json", "merges.txt"):
        vocab, merges = byte_bpe.read_files(path.parent)
        ignored = bool(settings.rebuilds)  # RobertaTokenizer does not lower-case
        lower = (bool(said("do_lower_case")) and not ignored) if lowercase is None else lowercase
        return byte_bpe.pipeline_of(vocab, merges, str(path), lower, bool(said("add_prefix_space"))), path, settings
    lowercase = said("do_lower_case") if lowercase is None else lowercase
    if path.suffix == ".model":
        keep_accents = bool(said("keep_accents"))
        cased = lowercase is False and settings.rebuilds == "Albert"
        return unigram.pipeline_of_model(read_model(path), str(path), lowercase, keep_accents, cased), path, settings
    if lowercase is None:
        raise InputError(
            f"{path}: a vocab.txt does not record whether it is uncased; give --cased or --uncased (in Python "
            "lowercase=False or True), or a folder with tokenizer_config.json"
        )
    tokens = read_vocab(path)
    _check_wordpiece(tokens, path)
    compose = lowercase and evidently_syllables(tokens)
    rules = BertRules(lowercase, compose, said("strip_accents"), said("tokenize_chinese_chars") is not False)
    return pipeline_of(tokens, rules), path, settings


def _check_truncation(found: Any, path: Path) -> None:
    """Raises InputError for a tokenizer.json that cuts texts at their beginning."""
    cut = found.get("truncation") if isinstance(found, dict) else None
    if isinstance(cut, dict) and cut.get("direction") == "Left":
        raise InputError(f'{path}: truncation.direction = "Left"; expected "Right": texts are cut at their end here')


def _check_wordpiece(tokens: Iterable[str], path: Path) -> None:
    """Raises InputError for the pieces of a SentencePiece model, which no class need name (KoBERT)."""
    begin = sum(token[:1] == METASPACE and len(token) > 1 for token in tokens)
    if begin > sum(token.startswith("##") for token in tokens):
        raise InputError(
            f"{path}: {begin:,} tokens begin with U+2581, as the pieces of a SentencePiece model; expected WordPiece, "
            "whose tokens continue a word with ##. Save it as a fast tokenizer (tokenizer.json) with the software it "
            "comes from"
        )


_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
_INSIDE = ("model", "0_Transformer", "tokenizer")  # of a run, of a sentence-transformers folder, of a corpus store


def _file_in(folder: Path) -> Path:
    """The file of a run, model or tokenizer folder that holds its vocabulary."""
    files = [folder / name for name in _VOCABULARIES if (folder / name).exists()] or sorted(folder.glob("*.model"))
    if files and (files[0].suffix != ".model" or len(files) == 1):
        return files[0]
    for name in () if files else _INSIDE:
        if (folder / name).is_dir():
            return _file_in(folder / name)
    found = f"{len(files)} .model files in this folder" if files else "no vocabulary in this folder"
    expected = f"expected a run, model or tokenizer folder, with one of {', '.join(_VOCABULARIES)} and *.model"
    runs = sorted(str(model.parent) for model in folder.glob("*/model"))
    advice = f"; give one of its runs: {', '.join(runs[:8])}{', ...' if len(runs) > 8 else ''}" if runs else ""
    raise InputError(f"{folder}: {found}; {expected}{advice}")


WRITTEN = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")  # by `write_files`


def write_files(
    folder: Path,
    pipeline: str,
    vocab: Sequence[str],
    roles: Mapping[str, str],
    layout: Layout,
    model_max_length: int | None,
) -> None:
    """Write tokenizer.json, the vocabulary as other software wants it, and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = json.loads(pipeline)
    kind = parts["model"]["type"]
    write_text(folder / "tokenizer.json", pipeline + "\n")
    if kind == "WordPiece":
        write_text(folder / "vocab.txt", "".join(token + "\n" for token in vocab))
    elif kind == "BPE":
        merges = "".join(f"{first} {second}\n" for first, second in byte_bpe.merges_of(parts))
        write_json(folder / "vocab.json", {token: i for i, token in enumerate(vocab)})
        write_text(folder / "merges.txt", "#version: 0.2\n" + merges)
    write_json(folder / "tokenizer_config.json", _settings(parts, vocab, roles, layout, model_max_length))


def _settings(
    parts: Mapping[str, Any], vocab: Sequence[str], roles: Mapping[str, str], layout: Layout, length: int | None
) -> dict[str, Any]:
    """tokenizer_config.json.

    "BertTokenizer" and its like rebuild the pipeline from the vocabulary: the Hangul rule, 200 characters, the space
    before <mask> and a trained Unigram's rules would be lost. The class named here takes tokenizer.json as it is.
    """
    lowercase = lowercases(parts)
    own: dict[str, Any] = {}
    if parts["model"]["type"] == "WordPiece":
        # Read only by software that does rebuild it: better to miss accents than every Korean word.
        own["strip_accents"] = False if lowercase and evidently_syllables(vocab) else None
        own["tokenize_chinese_chars"] = True
    names = ["input_ids", *(["token_type_ids"] if layout.segments else []), "attention_mask"]
    tokens = {f"{role}_token": _token(parts, text) for role, text in roles.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        **own,
        "clean_up_tokenization_spaces": False,
        "model_input_names": names,
        **tokens,
        **({"model_max_length": length} if length else {}),
    }


def _token(parts: Mapping[str, Any], text: str) -> Any:
    """A special token as tokenizer_config.json wants it: its text, unless it takes the space beside it."""
    token: dict[str, Any] = next((token for token in parts["added_tokens"] if token["content"] == text), {})
    if not token.get("lstrip") and not token.get("rstrip"):
        return text
    return {"__type": "AddedToken", **{key: value for key, value in token.items() if key != "id"}}

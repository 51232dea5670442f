"""The files of a tokenizer: tokenizer.json, or what published models have instead, and what a saved folder holds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import InputError, not_found, read_json, write_json, write_text
from . import byte_bpe
from .bert_rules import BertRules
from .pipeline import METASPACE, lowercases
from .settings import AS_FAST, Settings, read_settings
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
        settings = read_settings(path.parent)
    if path.suffix == ".model":
        raise InputError(f"{path}: a SentencePiece model, which is not read; expected {AS_JSON}")
    if path.suffix == ".json" and path.name != "vocab.json":
        return json.dumps(read_json(path), ensure_ascii=False), path, settings
    if settings.name == "GPT2":  # its bare vocabulary has a layout of its own
        raise InputError(f"{path}: a vocabulary of GPT2Tokenizer without a tokenizer.json; {AS_FAST}")
    return _pipeline_of(path, lowercase, settings), path, settings


def _pipeline_of(path: Path, lowercase: bool | None, settings: Settings) -> str:
    """The tokenizer.json of a bare vocabulary."""
    said = settings.values.get
    if path.name in ("vocab.json", "merges.txt"):
        vocab, merges = byte_bpe.read_files(path.parent)
        return byte_bpe.pipeline_of(vocab, merges, str(path), bool(lowercase), bool(said("add_prefix_space")))
    lowercase = said("do_lower_case") if lowercase is None else lowercase
    if lowercase is None:
        raise InputError(
            f"{path}: a vocab.txt does not record whether it is uncased; give --cased or --uncased (in Python "
            "lowercase=False or True), or a folder with tokenizer_config.json"
        )
    tokens = read_vocab(path)
    _check_wordpiece(tokens, path)
    compose = lowercase and evidently_syllables(tokens)
    rules = BertRules(lowercase, compose, said("strip_accents"), said("tokenize_chinese_chars") is not False)
    return pipeline_of(tokens, rules)


def _check_wordpiece(tokens: Iterable[str], path: Path) -> None:
    """Raises InputError for the pieces of a SentencePiece model, which no class need name (KoBERT)."""
    begin = sum(token[:1] == METASPACE and len(token) > 1 for token in tokens)
    if begin > sum(token.startswith("##") for token in tokens):
        raise InputError(
            f"{path}: {begin:,} tokens begin with U+2581, as the pieces of a SentencePiece model; expected WordPiece, "
            f"whose tokens continue a word with ##; {AS_FAST}"
        )


AS_JSON = "tokenizer.json, from the Hugging Face Hub (albert/albert-base-v2) or saved by transformers"
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
_INSIDE = ("model", "0_Transformer", "tokenizer")  # of a run, of a sentence-transformers folder, of a corpus store


def _file_in(folder: Path) -> Path:
    """The file of a run, model or tokenizer folder that holds its vocabulary."""
    files = [folder / name for name in _VOCABULARIES if (folder / name).exists()] or sorted(folder.glob("*.model"))
    if files:
        return files[0]
    for name in _INSIDE:
        if (folder / name).is_dir():
            return _file_in(folder / name)
    expected = f"expected a run, model or tokenizer folder, with one of {', '.join(_VOCABULARIES)}"
    raise InputError(f"{folder}: no vocabulary in this folder; {expected}")


WRITTEN = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")  # by `write_files`


def write_files(
    folder: Path, pipeline: str, vocab: Sequence[str], roles: Mapping[str, str], segments: bool, length: int | None
) -> None:
    """Write tokenizer.json, the vocabulary as other software wants it, and tokenizer_config.json.

    segments: whether a model gets type ids. length: its `model_max_length`.

    "BertTokenizer" and its like rebuild the pipeline from the vocabulary: the Hangul rule, 200 characters, the space
    before <mask> and a trained Unigram's rules would be lost. The class named here takes tokenizer.json as it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = json.loads(pipeline)
    lowercase = lowercases(parts)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": lowercase}
    write_text(folder / "tokenizer.json", pipeline + "\n")
    if parts["model"]["type"] == "WordPiece":
        write_text(folder / "vocab.txt", "".join(token + "\n" for token in vocab))
        # Read only by software that does rebuild it: better to miss accents than every Korean word.
        settings["strip_accents"] = False if lowercase and evidently_syllables(vocab) else None
        settings["tokenize_chinese_chars"] = True
    elif parts["model"]["type"] == "BPE":
        merges = "".join(f"{first} {second}\n" for first, second in byte_bpe.merges_of(parts))
        write_json(folder / "vocab.json", {token: i for i, token in enumerate(vocab)})
        write_text(folder / "merges.txt", "#version: 0.2\n" + merges)
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if segments else ["input_ids", "attention_mask"]
    settings |= {"clean_up_tokenization_spaces": False, "model_input_names": inputs}
    settings |= {f"{role}_token": _token(parts, text) for role, text in roles.items()}
    settings |= {"model_max_length": length} if length else {}
    write_json(folder / "tokenizer_config.json", settings)


def _token(parts: Mapping[str, Any], text: str) -> Any:
    """A special token as tokenizer_config.json wants it: its text, unless it takes the space beside it."""
    token: dict[str, Any] = next((token for token in parts["added_tokens"] if token["content"] == text), {})
    if not token.get("lstrip") and not token.get("rstrip"):
        return text
    return {"__type": "AddedToken", **{key: value for key, value in token.items() if key != "id"}}

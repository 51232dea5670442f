"""Byte-level BPE vocabularies (GPT-2's, taken over by RoBERTa): reading vocab.json with merges.txt, and training.

Text becomes its UTF-8 bytes, each written as a printable character (a space as \u0120), so no text is unknown. Words
with the space before them are merged pair by pair, in the order in which the pairs of merges.txt were learned.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from ..files import InputError, read_json
from ..typed import check_fields
from .pipeline import ordered, read_id_lines, roles_of
from .training import TokenizerConfig, no_text, sample_lines

BYTES = frozenset(pre_tokenizers.ByteLevel.alphabet())
Merges = list[tuple[str, str]]


def read_files(folder: Path) -> tuple[dict[str, int], Merges]:
    """vocab.json and merges.txt of a folder. Raises InputError that names the file."""
    path = folder / "vocab.json"
    vocab = read_json(path)
    check_fields(vocab, {str: int}, str(path))
    ordered(vocab, str(path))
    strange = next((token for token in vocab if not BYTES.issuperset(token) and token[:1] != "<"), None)
    if strange is not None:
        raise InputError(f"{path}: the token {strange!r} is not written in bytes; is it another kind of vocabulary?")
    path = folder / "merges.txt"
    lines = [line.rstrip("\r") for line in read_id_lines(path, "a merges.txt in UTF-8 beside its vocab.json")]
    merges: Merges = []
    for number, line in enumerate(lines[bool(lines) and lines[0].startswith("#version") :], 1):
        first, _, second = line.partition(" ")
        if first + second not in vocab or not {first, second} <= vocab.keys():
            raise InputError(f"{path}: merge {number} is {line!r}; expected two tokens of vocab.json that make a third")
        merges.append((first, second))
    if not merges:
        raise InputError(f"{path}: no merge in it; expected two tokens a line")
    return vocab, merges


def pipeline_of(
    vocab: dict[str, int], merges: Merges, where: str, lowercase: bool = False, add_prefix_space: bool = False
) -> str:
    """The tokenizer.json of a byte-level BPE vocabulary in RoBERTa's layout. Raises InputError if it lacks a role."""
    roles = roles_of(vocab, where)
    library = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    if lowercase:
        library.normalizer = _lower()  # type: ignore[assignment]
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)  # type: ignore[assignment]
    library.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    sep, cls = ((roles[role], vocab[roles[role]]) for role in ("sep", "cls"))
    frame = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=add_prefix_space)
    library.post_processor = frame  # type: ignore[assignment]
    # As in fairseq's fill_mask the mask takes the space before it, since a word's first token would have it.
    tokens = [AddedToken(text, lstrip=role == "mask", normalized=False, special=True) for role, text in roles.items()]
    library.add_special_tokens(tokens)
    return library.to_str()


def _lower() -> normalizers.Normalizer:
    """Lower-case and strip accents, Hangul whole again; nothing is cleaned away."""
    bert: Any = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, lowercase=True)
    return normalizers.Sequence([bert, normalizers.NFC()])  # type: ignore[list-item]


def learn(texts: Iterable[str], config: TokenizerConfig) -> str:
    """The tokenizer.json of a vocabulary trained on `texts`. Raises InputError if there is no text.

    The library counts words, and breaks ties between pairs by the ids of their tokens: the same text gives the same
    vocabulary. All 256 bytes are in it. As in RoBERTa's, the mask comes last.
    """
    lines = sample_lines(texts, config.max_chars)
    if not any(line.strip() for line in lines):
        raise no_text()
    *first, mask = config.specials
    least = len(BYTES) + len(config.specials)
    if config.vocab_size < least:
        raise InputError(f"vocab_size = {config.vocab_size}; expected at least {least}, the bytes and special tokens")
    learner = tokenizers.Tokenizer(models.BPE())
    if config.uncased:
        learner.normalizer = _lower()  # type: ignore[assignment]
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size - 1,
        min_frequency=config.min_frequency,
        special_tokens=[*first],
        initial_alphabet=sorted(BYTES),
        show_progress=False,
    )
    learner.train_from_iterator(lines, trainer, length=len(lines))
    learned = json.loads(learner.to_str())
    vocab = learned["model"]["vocab"]
    return pipeline_of({**vocab, mask: len(vocab)}, merges_of(learned), "training", config.uncased)


def merges_of(parts: Mapping[str, Any]) -> Merges:
    """The merges of a tokenizer.json of this kind, of old ones too, which have them as lines."""
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in parts["model"]["merges"])
    return [(first, second) for first, second in pairs]

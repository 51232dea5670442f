"""The tokenizer: load or train a vocabulary, turn text into ids (paper, section 3, "Input/Output Representations").

The `tokenizers` library does the work by the rules of the original code (google-research/bert, tokenization.py): clean,
set Chinese characters apart, lower-case and strip accents (uncased only), split at whitespace and punctuation, then the
longest matching piece first. docs/tokenizer.md lists the few characters on which library and original differ.
"""

import functools
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from .files import InputError, read_json, write_json, write_text
from .wordpiece import (
    SPECIAL_TOKENS,
    TokenizerConfig,
    check_pipeline,
    evidently_syllables,
    learn,
    normalizer_of,
    ordered,
    pipeline_of,
    read_vocab,
)

__all__ = ["SPECIAL_TOKENS", "Encoding", "Tokenizer", "TokenizerConfig"]

KNOWN_WORDS = 1 << 18  # words whose ids a process that calls ids_of keeps: some 50 MB

_ASCII_WORDS = re.compile("[A-Za-z0-9]+|[^ A-Za-z0-9]")
# In mixed text: first all between two spaces if there is a character beyond ASCII in it, then as above. Looking ahead
# for that character makes it quadratic in the length of a chunk without spaces, so it is for short texts only.
_MIXED_WORDS = re.compile("[^ ]*[^\\x00-\\x7f][^ ]*|[A-Za-z0-9]+|[^ A-Za-z0-9]")


class Encoding(NamedTuple):
    """One input as the encoder takes it. Offsets: (start, end) in the caller's string, (0, 0) for [CLS] and [SEP]."""

    ids: list[int]
    type_ids: list[int]  # 0 up to the first [SEP], 1 for the pair's second text
    tokens: list[str]
    offsets: list[tuple[int, int]]
    n_cut: int  # tokens that max_length cut away


class Tokenizer:
    """Text to ids and back. Make one with `load` or `train`; unpickling one in another process gives the same."""

    def __init__(self, pipeline: str, where: str = "tokenizer.json"):
        """`pipeline` is the text of a tokenizer.json; `where` names it in errors. Raises InputError if unusable."""
        self._json = check_pipeline(pipeline, where)
        # Two views of one pipeline: the original splits "[MASK]" in a text like any other text, fill-mask wants its id.
        self._plain, self._special = (tokenizers.Tokenizer.from_str(self._json) for _ in range(2))
        self._plain.encode_special_tokens = True
        self.vocab = ordered(self._plain.get_vocab(with_added_tokens=True), where)
        missing = [token for token in SPECIAL_TOKENS if token not in self.vocab]
        if missing:
            raise InputError(f"{where}: the vocabulary lacks {', '.join(missing)}; is this a BERT vocabulary?")
        self.vocab_size = len(self.vocab)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self.vocab.index, SPECIAL_TOKENS)
        self.continuation = np.array([piece.startswith("##") for piece in self.vocab])
        self.lowercase = any(step.get("lowercase") or step["type"] == "Lowercase" for step in self._normalizers())
        self._known = _KnownWords(self._plain)
        self._splits_like_bert = self._is_bert_pipeline()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self._json,)

    # ---- making one

    @classmethod
    def load(cls, path: Path | str, lowercase: bool | None = None) -> "Tokenizer":
        """Load a folder (tokenizer.json as it is, else vocab.txt with tokenizer_config.json) or one of these files.

        A vocab.txt does not say whether it is cased: then `lowercase` must be given. It follows the original's rules:
        lower-casing decomposes Hangul into jamo, unless the vocabulary was evidently made of lower-cased syllables.
        Raises InputError if a file is missing, damaged, or contradicts `lowercase`.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(f"{path}: no such file; expected a folder with a tokenizer.json, or a vocab.txt")
        if path.is_dir() and (path / "tokenizer.json").exists():
            path = path / "tokenizer.json"
        if path.suffix == ".json":
            tokenizer = cls(json.dumps(read_json(path), ensure_ascii=False), str(path))
            if lowercase not in (None, tokenizer.lowercase):
                raise InputError(f"{path}: lowercase is {tokenizer.lowercase} here, not {lowercase}; leave it out")
            return tokenizer
        settings: dict[str, Any] = {}
        if path.is_dir():
            path, config = path / "vocab.txt", path / "tokenizer_config.json"
            if not path.exists():
                raise InputError(f"{path.parent}: neither tokenizer.json nor vocab.txt in this folder")
            settings = read_json(config) if config.exists() else {}
        lowercase = settings.get("do_lower_case") if lowercase is None else lowercase
        if lowercase is None:
            raise InputError(f"{path}: a vocab.txt does not say whether it is uncased; say lowercase=True or False")
        vocab = read_vocab(path)
        compose = lowercase and evidently_syllables(vocab)
        return cls(pipeline_of(vocab, normalizer_of(lowercase, compose, settings.get("strip_accents"))), str(path))

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig | None = None) -> "Tokenizer":
        """Train a vocabulary: same texts, same config, same bytes. Raises InputError if there is no text.

        Uncased text loses capitals and accents, but Hangul syllables stay whole (in the original they fall into jamo).
        """
        return cls(learn(texts, config or TokenizerConfig()), "training")

    def save(self, folder: Path | str, model_max_length: int | None = None) -> None:
        """Write tokenizer.json, vocab.txt, tokenizer_config.json; transformers.AutoTokenizer then gives our ids.

        `model_max_length` is the encoder's number of positions, to which other software truncates.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "tokenizer.json", self._json + "\n")
        write_text(folder / "vocab.txt", "".join(piece + "\n" for piece in self.vocab))
        write_json(
            folder / "tokenizer_config.json",
            {
                # "BertTokenizer" rebuilds the pipeline from vocab.txt: Hangul rule and 200 characters would be lost.
                "tokenizer_class": "PreTrainedTokenizerFast",
                "do_lower_case": self.lowercase,
                # Read only by software that does rebuild it: better to miss accents than every Korean word.
                "strip_accents": False if self.lowercase and evidently_syllables(self.vocab) else None,
                "tokenize_chinese_chars": True,
                "clean_up_tokenization_spaces": False,
                "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
                **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
                **({"model_max_length": model_max_length} if model_max_length else {}),
            },
        )

    # ---- using one

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of `text`, no special tokens added; a literal "[MASK]" is split as the original splits it."""
        return self._plain.encode(text, add_special_tokens=False).tokens

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of `tokenize(text)` for each text, quickly: what the corpus store is built with.

        In printable text what stands between two spaces is tokenized by itself, and in ASCII every character that is no
        letter or digit is a word. So a regular expression finds the words, and a dictionary has the ids of most. Other
        text goes to the library: control characters, or not mostly ASCII (there, words repeat too seldom to gain).
        """
        if not self._splits_like_bert:
            return [encoding.ids for encoding in self._plain.encode_batch_fast(texts, add_special_tokens=False)]
        known, join = self._known.__getitem__, itertools.chain.from_iterable
        out: list[list[int]] = [[]] * len(texts)
        rest = []
        for i, text in enumerate(texts):
            if text.isprintable() and text.isascii():
                words = _ASCII_WORDS.findall(text.lower() if self.lowercase else text)
                out[i] = list(join(map(known, words)))
            elif text.isprintable() and len(text) < 10_000 and 8 * len(text.encode()) < 9 * len(text):
                out[i] = list(join(map(known, _MIXED_WORDS.findall(text))))
            else:
                rest.append(i)
        encodings = self._plain.encode_batch_fast([texts[i] for i in rest], add_special_tokens=False)
        for i, encoding in zip(rest, encodings, strict=True):
            out[i] = encoding.ids
        return out

    def encode(
        self, text: str, pair: str | None = None, max_length: int | None = None, specials: bool = False
    ) -> Encoding:
        """`[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`, cut to `max_length` tokens at the end of the longer one.

        `specials=True` takes a literal "[MASK]" (or other special token) as that token. Cutting is `_truncate_seq_pair`
        of run_classifier.py. Raises ValueError if max_length leaves no room for [CLS] and [SEP].
        """
        return self.encode_batch([text], None if pair is None else [pair], max_length, specials)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_length: int | None = None,
        specials: bool = False,
    ) -> list[Encoding]:
        """`encode` for many texts, on every core. Raises ValueError if `pairs` has another length than `texts`."""
        library = self._special if specials else self._plain
        first = library.encode_batch(texts, add_special_tokens=False)
        if pairs is None:
            return [self._frame([one], max_length) for one in first]
        second = library.encode_batch(pairs, add_special_tokens=False)
        return [self._frame([one, two], max_length) for one, two in zip(first, second, strict=True)]

    def decode(self, ids: Iterable[int], skip_specials: bool = True) -> str:
        """Text for `ids`: pieces joined, [CLS], [SEP], [PAD], [MASK] left out unless told otherwise."""
        return self._special.decode([int(i) for i in ids], skip_special_tokens=skip_specials)

    def normalize(self, text: str) -> str:
        """The text as the vocabulary sees it, before it is split into words."""
        return self._plain.normalizer.normalize_str(text) if self._plain.normalizer else text

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides which ids a text gets: tokenizers with the same one agree everywhere."""
        pipeline = json.loads(self._json)
        parts = {key: pipeline[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()

    # ---- inside

    def _frame(self, parts: list[tokenizers.Encoding], max_length: int | None) -> Encoding:
        """Add [CLS] and [SEP] round one or two encodings and cut them to size."""
        lengths = [len(part.ids) for part in parts]
        if max_length is not None:
            if max_length < len(parts) + 1:
                raise ValueError(f"max_length = {max_length} leaves no room for [CLS] and {len(parts)} [SEP]")
            lengths = cut_lengths(lengths, max_length - len(parts) - 1)
        framed = Encoding([self.cls_id], [0], ["[CLS]"], [(0, 0)], sum(len(part.ids) for part in parts) - sum(lengths))
        for kind, (part, length) in enumerate(zip(parts, lengths, strict=True)):
            framed.ids.extend([*part.ids[:length], self.sep_id])
            framed.type_ids.extend([kind] * (length + 1))
            framed.tokens.extend([*part.tokens[:length], "[SEP]"])
            framed.offsets.extend([*part.offsets[:length], (0, 0)])
        return framed

    def _normalizers(self) -> list[dict[str, Any]]:
        step = json.loads(self._json)["normalizer"] or {"type": "Sequence", "normalizers": []}
        return step["normalizers"] if step["type"] == "Sequence" else [step]

    def _is_bert_pipeline(self) -> bool:
        """Whether the pipeline is one that `ids_of` can shortcut."""
        pipeline, steps = json.loads(self._json), self._normalizers()
        return (
            [step["type"] for step in steps] in (["BertNormalizer"], ["BertNormalizer", "NFC"])
            and steps[0]["clean_text"]
            and (pipeline["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
            and all(token["special"] for token in pipeline["added_tokens"])
        )


class _KnownWords(dict[str, tuple[int, ...]]):
    """Ids of words already met; the first `KNOWN_WORDS` stay, among them nearly all frequent ones.

    Tuples, because the garbage collector would walk through that many lists again and again.
    """

    def __init__(self, library: tokenizers.Tokenizer):
        self._library = library

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._library.encode(word, add_special_tokens=False).ids)
        if len(self) < KNOWN_WORDS and len(word) < 40:
            self[word] = ids
        return ids


def continues_letter(char: str) -> bool:
    """Whether a character is part of the letter before it: a combining mark, a vowel or final consonant of Hangul.

    The library counts marks that it strips, and letters that it puts together (Hangul from jamo), to no piece.
    """
    return unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"


def cut_lengths(lengths: list[int], room: int) -> list[int]:
    """Lengths after popping one token at a time from the longer text, the second when equal."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    a, b = lengths
    surplus = max(0, a + b - room)
    level = min(surplus, abs(a - b))  # first the longer one comes down to the shorter
    a, b = (a - level, b) if a > b else (a, b - level)
    rest = surplus - level
    return [a - rest // 2, b - (rest + 1) // 2]

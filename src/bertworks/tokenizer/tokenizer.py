"""The tokenizer: load or train a vocabulary, turn text into ids (paper, section 3, "Input/Output Representations").

The `tokenizers` library does the work: WordPiece by the rules of the original code (google-research/bert,
tokenization.py; bert_rules.py spells them out), RoBERTa's byte-level BPE, and ALBERT's Unigram. Special tokens are
identified by what they do: [CLS] in a comment means RoBERTa's <s> too.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from ..files import InputError, shorten
from . import byte_bpe, unigram, wordpiece
from .bert_rules import BertRules
from .folder import read_pipeline, write_files
from .normalization import with_whole_letters, without_spaces
from .pipeline import (
    KINDS,
    METASPACE,
    ROLES,
    SPACE,
    check_pipeline,
    layout_of,
    library_errors_named,
    library_of,
    lowercases,
    ordered,
    roles_of,
    steps,
    without_controls,
)
from .training import TokenizerConfig
from .wordpiece import SPECIAL_TOKENS, WordCache, splits_like_bert

__all__ = ["SPECIAL_TOKENS", "Encoding", "Tokenizer", "TokenizerConfig"]


class Encoding(NamedTuple):
    """One input as the encoder takes it. Offsets: (start, end) in the caller's string, (0, 0) for [CLS] and [SEP].

    A token's offsets include every character of which it has a part, and the accents of its last letter that the rules
    strip. So where byte-level BPE cuts one character into several tokens, all have the same offsets. The space that a
    token begins with is left out.
    """

    ids: list[int]
    type_ids: list[int]  # 0 up to the first [SEP], 1 for the pair's second text; all 0 if the layout has no segments
    tokens: list[str]
    offsets: list[tuple[int, int]]
    n_cut: int  # tokens that max_length cut away


class Tokenizer:
    """Text to ids and back. Make one with `load` or `train`; unpickling one in another process gives the same."""

    def __init__(
        self,
        pipeline: str,
        where: str = "tokenizer.json",
        roles: Mapping[str, str] | None = None,
        segments: bool = True,
    ):
        """`pipeline` is the text of a tokenizer.json; `where` names it in errors.

        roles: texts of special tokens, by role, that are not the usual ones. segments: whether the second text of a
        pair may have type id 1. Raises InputError if the pipeline is unusable.
        """
        self.pipeline, self._where = check_pipeline(pipeline, where), where  # as the library writes the tokenizer.json
        parts = json.loads(self.pipeline)
        self.kind = KINDS[parts["model"]["type"]]
        self._special = library_of(self.pipeline, where)
        ids = self._special.get_vocab(with_added_tokens=True)
        self.vocab = ordered(ids, where)
        self.vocab_size = len(self.vocab)
        self.roles = roles_of(ids, where, roles or {})
        if self.kind == "wordpiece" and parts["model"]["unk_token"] != self.roles["unk"]:
            unk_token = shorten(parts["model"]["unk_token"])
            raise InputError(f"{where}: its model.unk_token is {unk_token}; expected {self.roles['unk']!r}")
        # Two views of one pipeline: the original splits "[MASK]" in a text like any text; fill-mask needs its id. Other
        # added tokens, such as the [E1] of relation extraction, are found in texts by both.
        controls = {*self.roles.values(), *itertools.chain.from_iterable(ROLES.values())}
        plain, self.added = without_controls(parts, controls)
        self._plain = library_of(plain, where)
        self._plain.encode_special_tokens = True
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[self.roles[role]] for role in ROLES)
        with library_errors_named(where):
            self.layout = layout_of(self._special, self.sep_id, self.kind)
        self.lowercase = lowercases(parts)
        self.continuation = self._continuation()
        # Byte-level BPE keeps the space before a word in the word's first token; a text's first word has no space.
        self.leading_space = any(
            step["type"] == "ByteLevel" and not step["add_prefix_space"] for step in steps(parts, "pre_tokenizer")
        )
        self._cache = WordCache(self._plain, self.lowercase) if splits_like_bert(parts) and not self.added else None
        # Offsets are trimmed here: the library's post-processor cuts the first letter of a word off if white space is
        # split off before byte-level BPE.
        spaced = (token for token in parts["added_tokens"] if token["content"] in self.added)
        self._trims = self.kind != "wordpiece" or any(token["lstrip"] or token["rstrip"] for token in spaced)
        self._check_frame(parts)
        self._plain.post_processor = self._special.post_processor = None  # type: ignore[assignment]
        if not segments:
            self.layout = replace(self.layout, segments=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.pipeline, self._where, self.roles, self.layout.segments)

    # ---- making one

    @classmethod
    def load(cls, path: Path | str, lowercase: bool | None = None) -> "Tokenizer":
        """Load a folder or one of its files: tokenizer.json as it is, else what published models have instead.

        These are BERT's vocab.txt and RoBERTa's vocab.json with merges.txt, with tokenizer_config.json if there is one.
        A vocab.txt does not record whether it is cased: then `lowercase` must be given. It follows the original's
        rules: lower-casing decomposes Hangul into jamo, unless the vocabulary has lower-cased syllables and no jamo.
        Raises InputError if a file is missing, damaged, or contradicts `lowercase`.
        """
        pipeline, file, settings = read_pipeline(Path(path), lowercase)
        tokenizer = cls(pipeline, str(file), settings.roles, settings.segments)
        settings.check(json.loads(tokenizer.pipeline), tokenizer.kind, is_bare=file.name != "tokenizer.json")
        if lowercase not in (None, tokenizer.lowercase):
            raise InputError(f"{file}: lowercase is {tokenizer.lowercase} here, not {lowercase}; leave it out")
        return tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig | None = None) -> "Tokenizer":
        """Train a vocabulary: same texts, same config, same bytes. Raises InputError if there is no text.

        Uncased text loses capitals and accents, but Hangul syllables stay whole (in the original they fall into jamo).
        """
        config = config or TokenizerConfig()
        learn = {"wordpiece": wordpiece.learn, "bpe": byte_bpe.learn, "unigram": unigram.learn}[config.algorithm]
        return cls(learn(texts, config), "training")

    def save(self, folder: Path | str, model_max_length: int | None = None) -> None:
        """Write tokenizer.json, vocab.txt (BPE: vocab.json, merges.txt; Unigram: neither) and tokenizer_config.json.

        transformers.AutoTokenizer then gives our ids. `model_max_length` is the encoder's number of positions, to which
        other software truncates.
        """
        write_files(Path(folder), self.pipeline, self.vocab, self.roles, self.layout.segments, model_max_length)

    def differs_from(self, folder: Path | str) -> bool:
        """Whether the folder holds a tokenizer, but another one."""
        path = Path(folder) / "tokenizer.json"
        if path.exists():
            return path.read_bytes() != (self.pipeline + "\n").encode()
        return any(path.with_name(name).exists() for name in ("vocab.txt", "vocab.json"))

    # ---- using one

    def tokenize(self, text: str) -> list[str]:
        """The tokens of `text`, no special tokens added; a literal "[MASK]" is split as the original splits it."""
        with library_errors_named(self._where):
            return [self.vocab[i] for i in self._plain.encode(text, add_special_tokens=False).ids]

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of `tokenize(text)` for each text, quickly: what the corpus store is built with."""
        with library_errors_named(self._where):
            if self._cache is not None:
                return self._cache.ids_of(texts)
            return [encoding.ids for encoding in self._plain.encode_batch_fast(texts, add_special_tokens=False)]

    def inside(self, text: str) -> str:
        """`text` as it is tokenized after other text and a space: with a leading space if the vocabulary needs it."""
        return " " + text if self.leading_space else text

    def encode(
        self, text: str, pair: str | None = None, max_length: int | None = None, specials: bool = False
    ) -> Encoding:
        """`[CLS] text [SEP]` or `[CLS] text [SEP] pair [SEP]`, cut to `max_length` tokens at the end of the longer one.

        In RoBERTa's layout that is `<s> text </s>` or `<s> text </s></s> pair </s>`, and type ids are all 0.
        `specials=True` takes a literal "[MASK]" (or other special token) as that token. Cutting is `_truncate_seq_pair`
        of run_classifier.py. Raises ValueError if max_length is too small for [CLS] and [SEP].
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
        columns = [texts] if pairs is None else [texts, pairs]
        with library_errors_named(self._where):
            encodings = [zip(one, library.encode_batch(one, add_special_tokens=False), strict=True) for one in columns]
        return [self._frame(parts, max_length) for parts in zip(*encodings, strict=True)]

    def ids_and_words(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """For each text the ids of `encode` without special tokens, and the number of the word of each token."""
        with library_errors_named(self._where):
            encodings = self._plain.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, [number or 0 for number in encoding.word_ids]) for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_specials: bool = True) -> str:
        """Text for `ids`: tokens joined, [CLS], [SEP], [PAD], [MASK] left out if `skip_specials`."""
        return self._special.decode([int(i) for i in ids], skip_special_tokens=skip_specials)

    def normalize(self, text: str) -> str:
        """The text as the vocabulary sees it, before it is split into words."""
        with library_errors_named(self._where):
            return self._plain.normalizer.normalize_str(text) if self._plain.normalizer else text

    def split(self, text: str) -> list[str]:
        """The words of a normalised text, before they are cut into subwords."""
        split = self._plain.pre_tokenizer
        with library_errors_named(self._where):
            return [word for word, _ in split.pre_tokenize_str(text)] if split else [text]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of vocabulary and rules: tokenizers with the same one give the same ids.

        The original BERT's rules count as one, however a tokenizer.json writes them: in the library's own steps, as
        bertworks did before, or spelled out (`BertRules`). So a vocabulary keeps its hash, and stores and models made
        before fit those made now.
        """
        pipeline = json.loads(self.pipeline)
        if rules := BertRules.of(pipeline):
            pipeline |= rules.library_steps
        keys = ["added_tokens", "normalizer", "pre_tokenizer", "model"]
        keys += ["post_processor"] if self.kind != "wordpiece" else []  # so that fingerprints of old stores stay
        parts = {key: pipeline[key] for key in keys}
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def readable(self, token: int) -> str:
        """A token as text, without the mark that it continues or begins a word; "\ufffd" for parts of characters."""
        text = self.vocab[token]
        if text in self.roles.values() or text in self.added:
            return text
        if self.kind == "wordpiece":
            return text.removeprefix("##")
        return self._special.decode([token], skip_special_tokens=False).strip(" ") or text

    def joined(self, before: str, token: int) -> str:
        """`before` and the text of a token after it, with a space between them if the token begins a word."""
        if self.continuation[token]:
            return before.rstrip() + self.readable(token)
        apart = " " if self.kind != "wordpiece" and before.strip() and not before[-1:].isspace() else ""
        return before + apart + self.readable(token)

    # ---- inside

    def _continuation(self) -> NDArray[np.bool_]:
        """(V,) which tokens continue a word: "##" tokens, or tokens that do not begin with the mark for a space.

        So a comma continues the word before it. Special tokens continue nothing.
        """
        if self.kind == "wordpiece":
            return np.array([token.startswith("##") and token not in self.added for token in self.vocab])
        mark = SPACE if self.kind == "bpe" else METASPACE
        special = {*self.roles.values(), *self.added}
        return np.array([token[:1] != mark and token not in special for token in self.vocab])

    def _check_frame(self, parts: dict[str, Any]) -> None:
        """Raises InputError if the pipeline's post-processor frames texts with other tokens or type ids than `encode`.

        A pipeline without one is framed as its kind's first model does.
        """
        if not parts.get("post_processor"):
            return
        for pair in (None, "a"):
            with library_errors_named(self._where):
                encoding = self._special.encode("a", pair)
            framed = self.encode("a", pair, specials=True)
            if framed.ids != encoding.ids or framed.type_ids != encoding.type_ids:
                actual, expected = (" ".join(map(self.vocab.__getitem__, ids)) for ids in (encoding.ids, framed.ids))
                raise InputError(
                    f"{self._where}: its post_processor makes {shorten(actual)} of {'two texts' if pair else 'a text'} "
                    f"(type ids {encoding.type_ids}); expected {expected} (type ids {framed.type_ids})"
                )

    def _frame(self, parts: Sequence[tuple[str, tokenizers.Encoding]], max_length: int | None) -> Encoding:
        """Add [CLS] and [SEP] around the encodings of one or two texts and cut them to size."""
        lengths = [len(part.ids) for _, part in parts]
        between = [self.sep_id] * self.layout.pair_separators
        specials = 2 + len(between) * (len(parts) - 1)
        if max_length is not None:
            if max_length < specials:
                raise ValueError(f"max_length = {max_length} is too small for {specials} special tokens")
            lengths = cut_lengths(lengths, max_length - specials)
        framed = Encoding([self.cls_id], [0], [], [(0, 0)], sum(len(part.ids) for _, part in parts) - sum(lengths))
        for number, ((text, part), length) in enumerate(zip(parts, lengths, strict=True)):
            offsets = without_spaces(text, part.offsets) if self._trims else part.offsets
            offsets = offsets if self.kind == "bpe" else with_whole_letters(text, offsets)
            ends = [self.sep_id] if number == len(parts) - 1 else between
            framed.ids.extend([*part.ids[:length], *ends])
            framed.type_ids.extend([number if self.layout.segments else 0] * (length + len(ends)))
            framed.offsets.extend([*offsets[:length], *[(0, 0)] * len(ends)])
        framed.tokens.extend(map(self.vocab.__getitem__, framed.ids))
        return framed


def cut_lengths(lengths: list[int], limit: int) -> list[int]:
    """Lengths after popping one token at a time from the longer text, the second when equal."""
    if len(lengths) == 1:
        return [min(lengths[0], limit)]
    a, b = lengths
    surplus = max(0, a + b - limit)
    level = min(surplus, abs(a - b))  # first the longer one comes down to the shorter
    a, b = (a - level, b) if a > b else (a, b - level)
    rest = surplus - level
    return [a - rest // 2, b - (rest + 1) // 2]

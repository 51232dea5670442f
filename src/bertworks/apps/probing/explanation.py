"""One's own sentence through a model, step by step: everything that `bertworks probe explain` draws, as a dictionary.

`explain(predictor, a, b)` returns plain values, ready for JSON; explain.js draws them, in the page of `bertworks
explain` and in a tab of the server's page. What a model lacks is None, and `left_out` has the reason as a code, which
explain.js turns into a sentence.

Arrays are {"shape", "float16"} (explanation_arrays.py). The keys:

    model, text, pair   folder, first text, second text or None, as far as they are explained
    cut                 tokens that did not fit
    shape               layers, heads, widths, and what kind of encoder it is
    tokens              a list of {"text", "id", "segment", "special"}
    words               a list of {"text", "first", "last", "segment"}: first token, the one after the last
    embeddings          word, position, segment, total, output: (T, E) each
    attention           query, key, value: (L, N, T, H) each; spans: tokens seen to the left and right, None: all
    masks               for each position {"position", "token", "score", "rank", "top"}: its token hidden, the top k
    next_sentence       does B follow A? (inference/pretraining_heads.py)
    answer              start, end: a probability for each token; best: the answer; A asks, B is the context
    labels, tags        a classifier's result with all scores; every word with its tag
    layers              words by layer, their static vectors first. names; cosines (L + 2, W, W) of all pairs; static
                        (L + 2, W): cosine with the word's static vector; vectors (L + 2, W, 64 or fewer)
    left_out            {part: code}

Shapes: T tokens, E embedding width, L layers, N heads, H head size, W words.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...checkpoint.locate import refuse_export
from ...files import InputError
from ...inference.predictor import Predictor
from ...model.comparators import ConcatenatedEncoders
from ...model.config import ModelConfig
from ...tasks.rows import check_integer, text_of
from ...tokenizer import Encoding, Tokenizer, normalize
from .explanation_arrays import (
    SHOWN,
    embedding_sum,
    head_vectors,
    masked_logits,
    packed,
    states_of,
    visible_spans,
    word_vectors,
)
from .words import Span, WordFinder

LONGEST = 48  # tokens of an explained sequence by default


@dataclass(frozen=True)
class Explained:
    """A model and one sequence: the part of a text or pair that is explained."""

    predictor: Predictor
    a: str
    b: str | None
    encoding: Encoding
    cut: int  # tokens that did not fit
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        return self.predictor.loaded.model

    def leave_out(self, part: str, code: str) -> Any:
        """Note why a part is missing; returns None for it."""
        self.left_out[part] = code
        return None


@torch.no_grad()
def explain(
    predictor: Predictor, a: str, b: str | None = None, max_length: int | None = None, top_k: int = 5
) -> dict[str, Any]:
    """What the model computes on a text or pair, ready for JSON (keys: head of this file).

    max_length: tokens to explain, by default 48 or the model's positions; longer texts are cut. top_k: tokens for each
    mask. A literal [MASK] in the texts is predicted; without one every token is hidden in turn. Raises InputError if
    the folder is an export, a text has no token, or a number is out of range.
    """
    refuse_export(predictor.folder)
    one = keep(predictor, a, b, max_length)
    check_integer(top_k, "top_k", 1)
    states = states_of(one.model.encoder, one.encoding.ids, one.encoding.type_ids)
    spans = WordFinder(predictor.tokenizer).words(one.encoding.ids)
    return {
        "model": str(predictor.folder.name if predictor.folder.name != "model" else predictor.folder.parent.name),
        "text": one.a,
        "pair": one.b,
        "cut": one.cut,
        "shape": _shape(one.model.config),
        "tokens": _tokens(one),
        "words": _words(one, spans),
        "embeddings": _embeddings(one),
        "attention": _attention(one, states),
        "masks": _masks(one, top_k),
        "next_sentence": _next_sentence(one),
        "answer": _answer(one),
        "labels": _labels(one),
        "tags": _tags(one),
        "layers": _layers(one, states, spans),
        "left_out": one.left_out,
    }


def keep(predictor: Predictor, a: str, b: str | None = None, max_length: int | None = None) -> Explained:
    """The texts, composed (NFC) and cut where their last token that fits ends, with their tokens.

    So every head reads what is explained, and no more. Raises InputError as `explain` does.
    """
    tokenizer, most = predictor.tokenizer, predictor.model.config.max_length
    max_length = min(LONGEST, most) if max_length is None else max_length
    check_integer(max_length, "max_length")
    if not min(8, most) <= max_length <= most:
        raise InputError(f"max_length = {max_length}; expected 8 to {most}, the positions of {predictor.folder}")
    texts = [normalize("NFC", text_of(a, "a")), *([] if b is None else [normalize("NFC", text_of(b, "b"))])]
    for name, text in zip("AB", texts, strict=False):
        if not tokenizer.tokenize(text):
            raise InputError(f"text {name}, {text[:40]!r}, has no token; expected a sentence")
    encoding = whole = _encoded(tokenizer, texts, max_length)
    while encoding.n_cut:  # a text cut inside a word can have other tokens at its end
        texts = _shortened(texts, encoding)
        encoding = _encoded(tokenizer, texts, max_length)
    cut = whole.n_cut + len(whole.ids) - len(encoding.ids)
    if cut:
        a, b = texts[0], None if b is None else texts[1]
    return Explained(predictor, a, b, encoding, cut)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> Encoding:
    marked = any(tokenizer.roles["mask"] in text for text in texts)
    return tokenizer.encode(texts[0], texts[1] if len(texts) > 1 else None, max_length, specials=marked)


def _shortened(texts: list[str], encoding: Encoding) -> list[str]:
    """The texts up to the ends of their last tokens; at least a character shorter."""
    parts = [list(part) for real, part in itertools.groupby(encoding.offsets, lambda span: span[1] > 0) if real]
    shorter = [text[: part[-1][1]] for text, part in zip(texts, parts, strict=True)]
    if shorter == texts:  # the last token is a part of a character
        longest = max(range(len(texts)), key=lambda i: len(parts[i]))
        shorter[longest] = shorter[longest][:-1]
    return shorter


# ---- what the model reads


def _shape(config: ModelConfig) -> dict[str, Any]:
    return {
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "embedding_width": config.embedding_width,
        "family": config.family,
        "layer_type": config.layer_type,
        "direction": config.direction,
        "norm": config.norm,
        "positions": config.position_embedding_type,
        "segments": config.type_vocab_size,
    }


def _tokens(one: Explained) -> list[dict[str, Any]]:
    tokenizer, encoding = one.predictor.tokenizer, one.encoding
    special = {tokenizer.cls_id, tokenizer.sep_id}
    return [
        {"text": _shown(tokenizer, i), "id": i, "segment": segment, "special": i in special}
        for i, segment in zip(encoding.ids, encoding.type_ids, strict=True)
    ]


def _shown(tokenizer: Tokenizer, token: int) -> str:
    """A token as the vocabulary has it; of byte-level BPE as text, with a mark where it begins a word."""
    if tokenizer.kind == "wordpiece":
        return tokenizer.vocab[token]
    if tokenizer.vocab[token] in tokenizer.roles.values() or tokenizer.continuation[token]:
        return tokenizer.readable(token)
    return f"▁{tokenizer.readable(token)}".replace("▁▁", "▁")


def _words(one: Explained, spans: Sequence[Span]) -> list[dict[str, Any]]:
    ids, types, decode = one.encoding.ids, one.encoding.type_ids, one.predictor.tokenizer.decode
    return [
        {"text": decode(ids[a:b], skip_specials=False).strip(), "first": a, "last": b, "segment": types[a]}
        for a, b in spans
    ]


# ---- inside the encoder


def _embeddings(one: Explained) -> dict[str, Any] | None:
    if isinstance(one.model.encoder, ConcatenatedEncoders):
        return one.leave_out("embeddings", "pair")
    parts = embedding_sum(one.model.encoder, one.encoding.ids, one.encoding.type_ids)
    for name, code in (("position", "rotary"), ("segment", "no-segments")):
        if parts[name] is None:
            one.leave_out(name, code)
    return {name: None if part is None else packed(part) for name, part in parts.items()}


def _attention(one: Explained, states: list[torch.Tensor]) -> dict[str, Any] | None:
    config = one.model.config
    if isinstance(one.model.encoder, ConcatenatedEncoders):
        return one.leave_out("attention", "pair")
    if config.layer_type != "attention" or not config.num_hidden_layers:
        return one.leave_out("attention", "recurrent" if config.num_hidden_layers else "no-layers")
    heads = head_vectors(one.model.encoder, states)
    return {**{name: packed(part) for name, part in heads.items()}, "spans": visible_spans(config)}


def _layers(one: Explained, states: list[torch.Tensor], spans: Sequence[Span]) -> dict[str, Any]:
    vectors = word_vectors(one.model.encoder, one.encoding.ids, states, spans or [(0, 1)])
    names = ["static", "embeddings", *(str(i + 1) for i in range(len(states) - 1))]
    units = torch.nn.functional.normalize(vectors, dim=-1)
    static = torch.nn.functional.cosine_similarity(vectors, vectors[:1], dim=-1)  # (L + 2, W)
    parts = {"cosines": units @ units.transpose(-1, -2), "static": static, "vectors": vectors[..., :SHOWN]}
    return {"names": names, **{name: packed(part) for name, part in parts.items()}}


# ---- what the heads answer


def _masks(one: Explained, top_k: int) -> list[dict[str, Any]] | None:
    model, tokenizer, ids = one.model, one.predictor.tokenizer, one.encoding.ids
    if "mlm" not in model.heads or model.config.direction != "both":
        return one.leave_out("masks", "no-mlm" if "mlm" not in model.heads else "one-sided")
    given = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
    positions = given or [i for i, token in enumerate(ids) if token not in (tokenizer.cls_id, tokenizer.sep_id)]
    logits = masked_logits(model, ids, one.encoding.type_ids, positions, tokenizer.mask_id)
    logits = one.predictor.loaded.check_finite(logits)[:, : tokenizer.vocab_size].double()
    probabilities, top = logits.softmax(-1), logits.topk(min(top_k, logits.shape[1])).indices
    results = []
    for m, position in enumerate(positions):
        token = ids[position]
        score = None if given else float(probabilities[m, token])
        rank = None if given else int((logits[m] > logits[m, token]).sum()) + 1
        best = zip(top[m].tolist(), probabilities[m, top[m]].tolist(), strict=True)
        some = [{"id": i, "token": _shown(tokenizer, i), "score": p} for i, p in best]
        results.append({"position": position, "token": token, "score": score, "rank": rank, "top": some})
    return results


def _next_sentence(one: Explained) -> dict[str, Any] | None:
    heads = one.model.heads
    if "nsp" not in heads:
        return one.leave_out("next_sentence", "sentence-order" if "sop" in heads else "no-nsp")
    if one.b is None:
        return one.leave_out("next_sentence", "no-second-text")
    return dict(one.predictor.next_sentence(one.a, one.b))


def _answer(one: Explained) -> dict[str, Any] | None:
    loaded, model = one.predictor.loaded, one.model
    if "span" not in model.heads or one.b is None:
        return one.leave_out("answer", "no-span" if "span" not in model.heads else "no-context")
    rows = {"input_ids": one.encoding.ids, "token_type_ids": one.encoding.type_ids}
    batch = {name: torch.tensor([row], device=loaded.device) for name, row in rows.items()}
    out = model.encode({**batch, "attention_mask": torch.ones_like(batch["input_ids"], dtype=torch.bool)})
    scores = loaded.check_finite(model.heads["span"](out).float().cpu())  # (T, 2)
    start, end = scores.softmax(0).T.tolist()
    return {"start": start, "end": end, "best": dict(one.predictor.answer(one.a, one.b))}


def _labels(one: Explained) -> dict[str, Any] | None:
    kind, loaded = one.predictor.kind, one.predictor.loaded
    if "classifier" not in one.model.heads:
        return one.leave_out("labels", "no-classifier")
    named = "name" in loaded.settings  # by bertworks, which knows whether rows are pairs
    if named and kind in ("single", "pair") and (kind == "pair") != (one.b is not None):
        return one.leave_out("labels", "needs-pair" if kind == "pair" else "needs-single")
    return {"kind": kind, **one.predictor.classify(one.a, one.b, all_scores=True)}


def _tags(one: Explained) -> list[dict[str, Any]] | None:
    if "tagger" not in one.model.heads:
        return one.leave_out("tags", "no-tagger")
    return [dict(unit) for unit in next(one.predictor.tag_words([one.a]))]

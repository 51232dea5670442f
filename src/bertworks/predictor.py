"""Raw text in, predictions out: `Predictor(folder)` is what the command line, servers and benchmarks all use.

Results are plain dictionaries, ready for JSON. Inputs are batched by length and given back in the caller's order. Texts
longer than the folder's limit are cut; `cut` in a result, and `truncated` on the predictor, say by how much.

Shapes: N texts, L positions, M masks, D width, V vocabulary.
"""

import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .evaluate import Finetuned
from .files import InputError, atomic_write
from .tasks.base import Example, Task
from .tasks.classification import prepare
from .tasks.inputs import Inputs
from .tasks.scores import compute_scores
from .tasks.table import TABLES, Row, decoded, read_table
from .training.parallel import World

BATCH = 32  # texts a forward pass
CHUNK = 1024  # texts that are put in order of length together
MASK = "[MASK]"


class Candidate(TypedDict):
    """A piece that could stand at a mask."""

    token: str
    score: float  # its probability, 0 to 1
    text: str  # the caller's text with it, and with the best piece at every other mask


class Classified(TypedDict, total=False):
    """The likeliest label."""

    label: str
    score: float  # its probability, 0 to 1; of a model with one output, that output
    scores: dict[str, float]  # of all labels, if asked for
    cut: int  # tokens that did not fit


class Predictor:
    """A model folder ready to use, in float32; on a GPU if there is one and `device` does not say otherwise."""

    def __init__(self, folder: Path | str, max_length: int | None = None, device: str | None = None):
        """`max_length`: tokens an input may have; left out, what the folder was fine-tuned with, or its positions.

        Raises InputError if the folder (or run folder) is incomplete or damaged, or max_length exceeds its positions.
        """
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.world = World(0, 1, torch.device(device))
        self.loaded = Finetuned.load(folder, max_length)
        self.folder, self.tokenizer = self.loaded.folder, self.loaded.tokenizer
        self.model = self.loaded.model.to(self.world.device)
        self.max_length = self.loaded.limits.max_seq_length
        self.truncated = {"examples": 0, "tokens": 0}  # inputs that were cut since this predictor was made

    # ---- masks

    @overload
    def fill_mask(self, text: str, top_k: int = 5) -> list[list[Candidate]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill_mask(self, text: Sequence[str], top_k: int = 5) -> list[list[list[Candidate]]]: ...
    def fill_mask(self, text: str | Sequence[str], top_k: int = 5) -> list[Any]:
        """The `top_k` likeliest pieces for every literal [MASK] of a text: one list a mask, best first.

        A list of texts gives a list of these. Each mask is judged with all others still masked, as in pre-training.
        Raises InputError if the folder has no masked-LM head, or a text has no [MASK] or loses one by being cut.
        """
        if "mlm" not in self.model.heads:
            raise InputError(
                f"{self.folder} has no masked-LM head, so it cannot fill masks; pre-trained folders have one"
            )
        if isinstance(text, str):
            return self._fill(text, top_k)
        return [self._fill(one, top_k) for one in text]

    @torch.no_grad()
    def _fill(self, text: str, top_k: int) -> list[list[Candidate]]:
        encoding = self.tokenizer.encode(text, max_length=self.max_length, specials=True)
        places = [i for i, number in enumerate(encoding.ids) if number == self.tokenizer.mask_id]
        if MASK not in text:
            raise InputError(f"no {MASK} in {text[:80]!r}; write it, in capitals, where a word is to be guessed")
        if len(places) != text.count(MASK):
            raise InputError(
                f"a text of {len(encoding.ids) + encoding.n_cut} tokens loses a {MASK} when cut to {self.max_length}"
            )
        self._note(int(encoding.n_cut > 0), encoding.n_cut)
        ids = torch.tensor([encoding.ids], device=self.world.device)
        hidden = self.model.encoder(ids, hidden_states=False).packed[places]  # (M, D)
        top = self.model.masked_lm_logits(hidden).float().softmax(-1).topk(min(top_k, self.tokenizer.vocab_size))
        tokens = [[self.tokenizer.vocab[i] for i in row] for row in top.indices.tolist()]
        best = [row[0] for row in tokens]
        return [
            [
                Candidate(token=token, score=score, text=_filled(text, [*best[:m], token, *best[m + 1 :]]))
                for token, score in zip(row, scores, strict=True)
            ]
            for m, (row, scores) in enumerate(zip(tokens, top.values.tolist(), strict=True))
        ]

    # ---- labels

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None, all_scores: bool = False
    ) -> Classified: ...
    @overload
    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, all_scores: bool = False
    ) -> list[Classified]: ...
    def classify(self, texts: Any, pairs: Any = None, all_scores: bool = False) -> Any:
        """The label of a text, or of a pair of texts; lists give lists.

        Raises InputError if the folder has no classifier, ValueError if `pairs` has another length than `texts`.
        """
        if isinstance(texts, str):
            return next(self.classify_stream([(texts, pairs)], all_scores))
        rows = zip(texts, itertools.repeat(None) if pairs is None else pairs, strict=pairs is not None)
        return list(self.classify_stream(rows, all_scores))

    def classify_stream(self, rows: Iterable[tuple[str, str | None]], all_scores: bool = False) -> Iterator[Classified]:
        """`classify` for any number of (text, pair or None), in constant memory, in their order."""
        if "classifier" not in self.model.heads:
            raise InputError(
                f"{self.folder} has no classifier; make one with: bertworks finetune --model {self.folder} ..."
            )
        labels = self.loaded.labels
        for inputs in self._chunks(rows):
            scores = compute_scores(self.model, inputs, self.world, BATCH)  # (N, K)
            chances = scores if len(labels) == 1 else scores.softmax(-1)
            for row, cut in zip(chances.tolist(), inputs.cut.tolist(), strict=True):
                best = row.index(max(row))
                result = Classified(label=labels[best], score=row[best], cut=cut)
                if all_scores:
                    result["scores"] = dict(zip(labels, row, strict=True))
                yield result

    # ---- vectors

    @torch.no_grad()
    def embed(
        self, texts: str | Sequence[str], pooling: Literal["mean", "cls"] = "mean", normalize: bool = False
    ) -> NDArray[np.float32]:
        """(N, D) vectors of the last layer: the mean over a text's tokens, or its [CLS]; (D,) for a single text.

        normalize: scale every vector to length 1.
        """
        if pooling not in ("mean", "cls"):
            raise InputError(f"pooling = {pooling!r}; expected mean or cls")
        rows = [(text, None) for text in ([texts] if isinstance(texts, str) else texts)]
        parts = [np.empty((0, self.model.config.hidden_size), np.float32)]
        for inputs in self._chunks(rows):
            part = np.empty((len(inputs), self.model.config.hidden_size), np.float32)
            for batch_rows in inputs.by_length(BATCH):
                batch = {name: value.to(self.world.device) for name, value in inputs.batch(batch_rows).items()}
                mask = batch["attention_mask"]
                states = self.model.encoder(batch["input_ids"], mask, hidden_states=False).last_hidden_state
                pooled = states[:, 0] if pooling == "cls" else states.sum(1) / mask.sum(1, keepdim=True)
                part[batch_rows] = (_unit(pooled) if normalize else pooled).cpu().numpy()
            parts.append(part)
        vectors = np.concatenate(parts)
        return vectors[0] if isinstance(texts, str) else vectors

    # ---- inside

    def _chunks(self, rows: Iterable[tuple[str, str | None]]) -> Iterator[Inputs]:
        """The rows featurised, CHUNK at a time."""
        rows = iter(rows)
        while chunk := list(itertools.islice(rows, CHUNK)):
            examples = [Example(text, pair) for text, pair in chunk]
            inputs = prepare(self.tokenizer, examples, Task("prediction"), self.loaded.limits).inputs
            self._note(*inputs.truncation().values())
            yield inputs

    def _note(self, examples: int, tokens: int) -> None:
        self.truncated["examples"] += examples
        self.truncated["tokens"] += tokens


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


def _filled(text: str, tokens: list[str]) -> str:
    """The text with a piece at each mask; a piece that continues a word is joined to what stands before."""
    parts = text.split(MASK)
    out = parts[0]
    for token, rest in zip(tokens, parts[1:], strict=True):
        out = (out.rstrip() + token[2:] if token.startswith("##") else out + token) + rest
    return out


def predict_file(
    predictor: Predictor, file: str, columns: tuple[str, ...], out: Path | None, all_scores: bool = False
) -> int:
    """Classify every line of a text file ("-": standard input) or row of a table, and write JSON lines; how many.

    columns: the one or two text columns of a table. out: file that is replaced when all is done; None: standard output.
    Raises InputError with file and line.
    """
    lines: deque[int] = deque()  # of the rows that are under way

    def rows() -> Iterator[tuple[str, str | None]]:
        for row in read_texts(file) if file == "-" or Path(file).suffix not in TABLES else read_table(file, columns):
            lines.append(row.line)
            yield row.values[0], row.values[1] if len(row.values) == 2 else None

    count = 0
    with contextlib.nullcontext(sys.stdout) if out is None else atomic_write(out, "w") as target:
        for result in predictor.classify_stream(rows(), all_scores):
            count += 1
            print(json.dumps({"line": lines.popleft(), **result}, ensure_ascii=False), file=target)
    return count


def read_texts(file: str) -> Iterator[Row]:
    """Every line of a text file, blank ones too; "-" is standard input. Raises InputError with file and line."""
    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file}: no such file")
    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as opened:
        for number, line in enumerate(decoded(opened, "standard input" if file == "-" else file), 1):
            yield Row(number, [line.rstrip("\r\n")])

"""Fine-tuning, side by side with transformers: time of training for MRPC, SST-2; and of featurising SQuAD.

    python benchmarks/finetuning.py [--data ../shared/data] [--rounds 3] [--tasks mrpc,sst2,squad] [--smoke]

all-MiniLM-L6-v2 with the settings of finetuning_scores.py: an epoch of MRPC, 200 steps of SST-2 (its first 6,400 rows),
batch 32, dropout 0.1, bfloat16 autocast, all cores. Three sides, each in a fresh process, in turns: ours as `bertworks
finetune` trains; transformers' Trainer as run_glue does by default, every row padded to 128; and with dynamic padding
and batches of similar length. Reading, featurising and evaluation are not in the times; the scores on dev
are reported. Ours is the sum of all steps (fetching, forward, backward, clipping, update), theirs the time of
Trainer.train(), which also makes the optimizer and puts rows in order: a second or so.

The SQuAD part features train-v1.1-13pct.json (384 tokens, stride 128) on one core, against the original script's way
in plain Python: every question's context split into words, each word into pieces, then windows token by token. Both
must give the same tokens. Needs `pip install -e '.[test,bench]'`.
"""

import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import common
import finetuning_scores
from bertworks.tasks.base import Limits
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import read_rows
from bertworks.tasks.span import prepare
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine
from finetuning_settings import TASKS

SIDES = ("ours", "dynamic padding", "padded to 128")
ROWS = {"mrpc": None, "sst2": 6400}
TESTS = str(Path(__file__).resolve().parents[1] / "tests")  # has the original's tokenizer in plain Python
SMOKE = {"tasks": ["mrpc", "squad"], "rounds": 1, "padded_rounds": 1, "questions": 5}


def one_part(task: str, side: str, data: str, model: str, questions: int) -> common.Result:
    """One training run or the SQuAD part, in this process."""
    return featurise(Path(data), questions) if task == "squad" else train(task, side, Path(data), Path(model))


def train(task: str, side: str, data: Path, model: Path) -> common.Result:
    """One training run: its seconds, steps, memory and scores."""
    settings = dataclasses.replace(
        TASKS[task],
        epochs=1,
        rows=ROWS[task],
        padding="max_length" if side == "padded to 128" else False,
        data=data,
        model=model,
    )
    run = finetuning_scores.ours if side == "ours" else finetuning_scores.transformers
    result = run(task, 1, settings)
    memory = machine.peak_memory(torch.device("cpu"))
    kept = {key: result[key] for key in ("seconds", "steps", "metrics")}
    return kept | {"kernels": result.get("kernels", False), "memory": memory}


def featurise(data: Path, questions: int) -> dict[str, Any]:
    """Seconds for the first `questions` of the training file, ours and the plain way; the tokens are compared."""
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(data / "vocab" / "bert-base-uncased.txt", lowercase=True)
    rows = list(read_rows(find_task("squad1"), data / "squad" / "train-v1.1-13pct.json"))[:questions]
    limits, vocab = Limits(max_seq_length=384), {piece: i for i, piece in enumerate(tokenizer.vocab)}
    start = time.perf_counter()
    inputs = prepare(tokenizer, rows, find_task("squad1"), limits).inputs
    ours = time.perf_counter() - start
    start = time.perf_counter()
    plain = [ids for row in rows for ids in plain_windows(row.question, row.context, vocab, limits)]
    theirs = time.perf_counter() - start
    if [i for ids in plain for i in ids] != inputs.ids.tolist():
        raise SystemExit("the two ways gave different tokens")
    return {"questions": len(rows), "windows": len(inputs), "ours": ours, "plain": theirs, "ratio": theirs / ours}


def plain_windows(question: str, context: str, vocab: dict[str, int], limits: Limits) -> list[list[int]]:
    """The windows of one question as run_squad.py makes them, with all features, in plain Python."""
    if TESTS not in sys.path:
        sys.path.append(TESTS)
    from support.reference_tokenizer import basic_words, word_pieces

    def pieces(text: str) -> list[str]:
        return [piece for word in basic_words(text, True) for piece in word_pieces(word, vocab)]

    query = pieces(question)[: limits.max_query_length]
    words = "".join(" " if char in " \t\r\n\u202f" else char for char in context).split(" ")
    tokens, word_of = [], []
    for number, word in enumerate(word for word in words if word):
        for piece in pieces(word):
            tokens.append(piece)
            word_of.append(number)
    room, spans, start = limits.max_seq_length - len(query) - 3, [], 0
    while True:
        length = min(len(tokens) - start, room)
        spans.append((start, length))
        if start + length == len(tokens):
            break
        start += min(length, limits.doc_stride)
    out = []
    for number, (start, length) in enumerate(spans):
        shown = ["[CLS]", *query, "[SEP]"]
        best, words_shown = {}, {}
        for i in range(length):
            words_shown[len(shown)] = word_of[start + i]
            best[len(shown)] = best_window(spans, start + i) == number
            shown.append(tokens[start + i])
        ids = [vocab[token] for token in [*shown, "[SEP]"]]
        mask = [1] * len(ids)
        types = [0] * (len(query) + 2) + [1] * (length + 1)
        padding = [0] * (limits.max_seq_length - len(ids))
        assert len(ids + padding) == len(mask + padding) == len(types + padding)
        out.append(ids)
    return out


def best_window(spans: list[tuple[int, int]], place: int) -> int:
    """The window that shows most of what is around a token."""
    best, number = -1.0, -1
    for i, (start, length) in enumerate(spans):
        if start <= place < start + length:
            score = min(place - start, start + length - 1 - place) + 0.01 * length
            if score > best:
                best, number = score, i
    return number


def part(options: Any, **given: Any) -> common.Result:
    """One part in a fresh process."""
    environment = {"RAYON_NUM_THREADS": "1"} if given["task"] == "squad" else {}  # the tokenizers library's threads
    shared = {"data": options.data, "model": options.model, "questions": options.questions}
    return common.fresh(one_part, {**given, **shared}, options.smoke, environment)


def compare(task: str, options: Any) -> common.Result:
    """All sides in turns; the slowest one fewer times."""
    runs: dict[str, list[common.Result]] = {side: [] for side in SIDES}
    for number in range(options.rounds):
        for side in SIDES:
            if side != SIDES[2] or number < options.padded_rounds:
                runs[side].append(part(options, task=task, side=side))
    seconds = {side: statistics.median(r["seconds"] for r in done) for side, done in runs.items() if done}
    pairs = zip(runs["ours"], runs["dynamic padding"], strict=True)
    return {
        "steps": runs["ours"][0]["steps"],
        "kernels": runs["ours"][0]["kernels"],
        "seconds": {side: [r["seconds"] for r in done] for side, done in runs.items()},
        "times_as_fast_as_dynamic_padding": seconds["dynamic padding"] / seconds["ours"],
        "by_round": [b["seconds"] / a["seconds"] for a, b in pairs],
        "times_as_fast_as_padded_to_128": seconds["padded to 128"] / seconds["ours"] if runs[SIDES[2]] else None,
        "metrics": {side: done[0]["metrics"] for side, done in runs.items() if done},
        "memory": {side: done[0]["memory"] for side, done in runs.items() if done},
    }


def featurise_rounds(options: Any) -> common.Result:
    """The SQuAD part as often as there are rounds."""
    parts = [part(options, task="squad", side="both") for _ in range(options.rounds)]
    ratios = [one["ratio"] for one in parts]
    first = {key: value for key, value in parts[0].items() if key != "tree_mb"}
    return {**first, "ratio": statistics.median(ratios), "by_round": ratios, "machine": common.machine_facts()}


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    if common.answer(one_part, argv):
        return
    parser = common.parser(__doc__, "finetuning.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the model both start from")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=["mrpc", "sst2", "squad"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--padded-rounds", type=int, default=1)
    parser.add_argument("--questions", type=int, default=2000, help="of SQuAD")
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.data, options.model)
        result: common.Result = {"what": (__doc__ or "").splitlines()[0]}
        for task in options.tasks:
            if task == "squad":
                result["squad features"] = featurise_rounds(options)
            else:
                result[task] = compare(task, options)
        common.finish(options, {**result, "machine": common.machine_facts()})


if __name__ == "__main__":
    main(sys.argv[1:])

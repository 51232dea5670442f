"""The demo's report.html: one page that loads nothing, with plots as inline SVG, made from the demo's folder.

report.html beside this file is the page without its content. Everything from a text is escaped.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ...files import write_text
from ...reporting.log import duration
from ...reporting.run_files import PREDICTIONS, read_json_lines, read_log
from ...reporting.tables import counted
from .tables import QUESTION, conditions, held_out_rows, next_commands, score_rows, too_short
from .text import read_lines

WIDTH, LABEL = 480, 170  # of a drawing, and of the names at its left; the page scales both
SHOWN_EXAMPLES = 4  # tagged paragraphs


def write_page(out: Path, results: dict[str, Any]) -> None:
    """Write report.html of a demo whose steps are finished."""
    write_text(out / "report.html", page(results, read_log(out / "pretrain"), tagged_examples(out, results), out))


def page(
    results: dict[str, Any], records: Sequence[dict[str, Any]], examples: Sequence[dict[str, Any]], out: Path
) -> str:
    """The text of the page. records: the log of pre-training. examples: `words`, `gold` and `predicted` tags."""
    how, warning = results["pretraining"], too_short(results)
    (best, score, _), *others = score_rows(results)
    machine = results["machine"]
    note = f"<p class=warning role=note>{escape(warning)}</p>" if warning else ""
    fields = {
        "SCORE": f"{100 * score:.1f} %",
        "ANSWER": escape(f"F1 of {best} on words that name parameters or other code. Others on "
                         f"the same examples: {'; '.join(f'{name}: {100 * mean:.1f}' for name, mean, _ in others)}."),
        "CONDITIONS": escape(f"{machine['cpu']}, {counted(machine['threads'], 'thread')}, "
                             f"{machine['gpu'] or 'no GPU'}, bertworks {machine['bertworks']}, "
                             f"{duration(results['seconds'])}."),
        "FIRST": "" if results["model"] else note,  # the score below it is that of the small BERT
        "WARNING": note if results["model"] else "",
        "MASKS": filled_masks(f"Masks filled by {results['name']}", results.get("masks", {})),
        "QUESTION": QUESTION,
        "BARS": score_bars(results),
        "COUNTS": escape(conditions(results)),
        "EXAMPLES": "".join(map(_tagged, examples)),
        "TAGGER": escape(best),
        "PRETRAINING": f"{how['tokens']:,} tokens in {duration(how['seconds'])}",
        "CURVE": loss_curve(records, how["held_out"]["unigram_entropy"]),
        "HELDOUT": "".join(
            f"<tr><th>{escape(what)}</th><td><b>{value}</b></td><td class=how>{escape(baseline)}</td></tr>"
            for what, value, baseline in held_out_rows(how["held_out"])
        ),
        "OWN": filled_masks("Masks filled by the small BERT", results["own_masks"]),
        "NEXT": escape("\n".join(next_commands(out, results))),
    }  # fmt: skip
    template = (files(__package__) / "report.html").read_text(encoding="utf-8")
    return re.sub("@@([A-Z]+)@@", lambda match: fields[match[1]], template)


def tagged_examples(out: Path, results: dict[str, Any]) -> list[dict[str, Any]]:
    """The development examples with the most different tagged words, and the tags that the first system gives them."""
    run = Path(next(iter(results["tags"]["scores"].values()))["run"])
    predicted = read_json_lines(run / PREDICTIONS, {"gold": [str], "predicted": [str]})
    rows: list[dict[str, Any]] = [
        {"words": row["words"], **tags}
        for row, tags in zip(read_lines(out / "tags" / "dev.jsonl"), predicted, strict=True)
    ]
    rows.sort(key=lambda row: -len({word for word, tag in zip(row["words"], row["gold"], strict=True) if tag != "O"}))
    return rows[:SHOWN_EXAMPLES]


def filled_masks(title: str, masks: dict[str, list[str]]) -> str:
    """Sentences, and what fills their masks: bars as wide as the probabilities."""
    parts = []
    for sentence, words in masks.items():
        items = []
        for word in words:
            token, _, probability = word.rpartition(" ")
            items.append(
                f'<li><span class=bar style="width:{max(1, int(probability.rstrip("%")))}%"></span>'
                f"<b>{escape(token)}</b> <i>{escape(probability)}</i></li>"
            )
        blank = escape(sentence).replace("[MASK]", "<mark>[MASK]</mark>")
        parts.append(f"<div class=mask><p>{blank}</p><ol>{''.join(items)}</ol></div>")
    return (
        f"<section><h2>{escape(title)}</h2><div class='grid masks card'>{''.join(parts)}</div></section>"
        if parts
        else ""
    )


def _tagged(row: dict[str, Any]) -> str:
    """A paragraph whose tags are coloured: found, missed, or wrong."""
    words = []
    for word, gold, predicted in zip(row["words"], row["gold"], row["predicted"], strict=True):
        if gold == predicted == "O":
            words.append(escape(word))
            continue
        state = "right" if gold == predicted else "missed" if predicted == "O" else "wrong"
        kind = (predicted if predicted != "O" else gold).removeprefix("B-").lower()
        words.append(f'<span class="tag {kind} {state}" title="{kind}, {state}">{escape(word)}</span>')
    return f"<p class=tagged>{' '.join(words)}</p>"


# ---- drawings; their colours are variables of the page's style sheet


def score_bars(results: dict[str, Any]) -> str:
    """A bar per system, with a point per seed."""
    rows, height, parts = score_rows(results), 40, []
    scale = (WIDTH - LABEL - 60) / max(0.01, *(score for _, mean, seeds in rows for score in (mean, *seeds)))
    for number, (name, mean, seeds) in enumerate(rows):
        y, (first, _, second) = height * number + 4, name.partition(", ")
        lines = [first, second] if second else [first]
        parts += [
            f'<text class="name" x="{LABEL - 8}" y="{y + 19 - 7 * (len(lines) - 1) + 14 * i}">{escape(line)}</text>'
            for i, line in enumerate(lines)
        ]
        kind = "main" if number == 0 else "other"
        parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{scale * mean:.1f}" height="28" rx="3"/>')
        parts += [f'<circle cx="{LABEL + scale * seed:.1f}" cy="{y + 14}" r="3"/>' for seed in seeds]
        end = LABEL + scale * max(mean, *seeds, 0) + 8
        parts.append(f'<text class="value" x="{end:.1f}" y="{y + 19}">{100 * mean:.1f}</text>')
    return _svg("scores", height * len(rows) + 4, parts, "test scores in per cent; a point is a seed")


def loss_curve(records: Sequence[dict[str, Any]], entropy: float) -> str:
    """The masked-LM loss over tokens of pre-training as a line, that of word frequencies as a broken line."""
    points = [(r["tokens"], r["mlm_loss"]) for r in records if r["kind"] == "train" and r.get("mlm_loss") is not None]
    losses = [loss for _, loss in points] + [entropy]
    low, high, last = np.floor(min(losses)), np.ceil(max(losses)), max([tokens for tokens, _ in points] or [1])
    left, right, top, bottom = 34, WIDTH - 10, 10, 210

    def level(loss: float) -> float:
        return float(bottom - (bottom - top) * (loss - low) / max(1.0, high - low))

    line = " ".join(f"{left + (right - left) * tokens / last:.1f},{level(loss):.1f}" for tokens, loss in points)
    parts = []
    for loss in np.arange(low, high + 1):
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{level(loss)}" y2="{level(loss)}"/>')
        parts.append(f'<text class="name" x="{left - 6}" y="{level(loss) + 4}">{loss:.0f}</text>')
    parts += [
        f'<line class="baseline" x1="{left}" x2="{right}" y1="{level(entropy)}" y2="{level(entropy)}"/>',
        f'<text class="end" x="{right}" y="{level(entropy) - 6}">word frequencies: {entropy:.2f}</text>',
        f'<polyline points="{line}"/>',
        f'<text x="{left}" y="{bottom + 20}">0</text>',
        f'<text class="end" x="{right}" y="{bottom + 20}">{last / 1e6:.2f} M tokens</text>',
    ]
    return _svg("curve", bottom + 28, parts, "masked-LM loss in nats over tokens of pre-training")


def _svg(kind: str, height: float, parts: Iterable[str], title: str) -> str:
    opening = f'<svg class="{kind}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return f"{opening}{''.join(parts)}</svg>"

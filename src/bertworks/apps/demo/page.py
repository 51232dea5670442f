"""The demo's report.html: one page that loads nothing, with plots as inline SVG, made from the run folder.

report.html beside this file is the page without its content. Everything from a text or a package is escaped.
"""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...files import write_text
from ...reporting.run_files import PREDICTIONS, read_json_lines, read_log
from ..probing.model import Attention, ProbedModel, attend
from .drawings import falling_loss, head_maps, score_bars
from .report import (
    ABOUT,
    METRICS,
    TITLES,
    compared_with_guessing,
    conditions,
    effect_of,
    interval_of,
    next_commands,
    setting,
    too_little,
    tuned_folder,
    unit_of,
)

SENTENCE = "Return the index of the largest element along the given axis."
SHOWN_ROWS = 4  # tagged paragraphs to show


def write_page(out: Path, results: dict[str, Any]) -> None:
    """Write report.html of a demo whose steps are finished."""
    attention = attend(ProbedModel(out / "pretrain", device="cpu"), SENTENCE)
    records = read_log(out / "pretrain")
    write_text(out / "report.html", page(results, records, attention, tagged_rows(out, results), out))


def page(
    results: dict[str, Any],
    records: Sequence[dict[str, Any]],
    attention: Attention,
    examples: Sequence[dict[str, Any]],
    out: Path,
) -> str:
    """The text of the page. records: the log of pre-training. examples: `words`, `gold` and `predicted` tags."""
    tags, held, warning = results["tasks"]["tags"], results["heldout"], too_little(results)
    fields = {
        "EFFECT": escape(f"{100 * tags['gain']:+.1f}"),
        "VERDICT": escape(verdict(tags, bool(warning))),
        "WARNING": f"<p class=warning role=note>{escape(warning)}</p>" if warning else "",
        "CONDITIONS": escape(conditions(results)),
        "TASKS": "".join(_task(name, task) for name, task in results["tasks"].items()),
        "UNIT": escape(unit_of(tags)),
        "CURVE": falling_loss(records, held["unigram_entropy"]),
        "HELDOUT": "".join(_cells(row) for row in compared_with_guessing(held)),
        "COUNTS": f"{held['masked']:,} masked words and {held['pairs']:,} pairs of segments",
        "MASKS": "".join(_filled(sentence, words) for sentence, words in results["masks"].items()),
        "DEV": f"{tags['examples']['dev']:,}",
        "EXAMPLES": "".join(map(_tagged, examples)),
        "SENTENCE": escape(attention.text),
        "HEADS": head_maps(attention),
        "NEXT": escape("\n".join(next_commands(out, results))),
    }
    template = (files(__package__) / "report.html").read_text(encoding="utf-8")
    return re.sub("@@([A-Z]+)@@", lambda match: fields[match[1]], template)


def verdict(task: dict[str, Any], untrained: bool = False) -> str:
    """What the main task shows, in one sentence. `untrained`: the encoder has learned nothing, so it shows nothing."""
    interval = interval_of(task["sides"])
    if interval is None:
        return "points of F1 on words that name parameters or are code. One seed gives no interval."
    low, high = (100 * end for end in interval)
    shown = "Pre-training helps." if low > 0 else "Pre-training hurts." if high < 0 else "No effect is shown."
    shown = "It shows nothing: the encoder has learned nothing." if untrained else shown
    seeds = len(task["seeds"])
    return f"points of F1 by pre-training, 95 % over {seeds} fine-tuning seeds: {low:+.1f} to {high:+.1f}. {shown}"


def tagged_rows(out: Path, results: dict[str, Any]) -> list[dict[str, Any]]:
    """A few development rows with the most different tagged words, and the tags that the first encoder gives them."""
    predicted = read_json_lines(tuned_folder(out, results) / PREDICTIONS, {"gold": [str], "predicted": [str]})
    lines = (out / "tags" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [{"words": json.loads(line)["words"], **row} for line, row in zip(lines, predicted, strict=True)]
    rows.sort(key=lambda row: -len({word for word, tag in zip(row["words"], row["gold"], strict=True) if tag != "O"}))
    return rows[:SHOWN_ROWS]


def _task(name: str, task: dict[str, Any]) -> str:
    labels = f" The packages: {', '.join(task['labels'])}." if name == "packages" else ""
    return (
        f"<article><h3>{escape(TITLES[name])}</h3>{score_bars(name, task)}"
        f"<p class=effect>Effect of pre-training: <b>{escape(effect_of(task))}</b></p>"
        f"<p class=note>Test {METRICS[task['metric']]}. {escape(f'{ABOUT[name]}{labels} {setting(name, task)}')}</p>"
        "</article>"
    )


def _cells(row: Sequence[str]) -> str:
    what, model, guess, how = map(escape, row)
    return f"<tr><th>{what}</th><td><b>{model}</b></td><td>{guess}</td><td class=how>{how}</td></tr>"


def _filled(sentence: str, words: Sequence[str]) -> str:
    """A sentence, and what fills its mask: each word as wide as its probability."""
    chips = []
    for word in words:
        token, _, share = word.rpartition(" ")
        chips.append(
            f'<li><span class=bar style="width:{max(1, int(share.rstrip("%")))}%"></span>'
            f"<b>{escape(token)}</b> <i>{escape(share)}</i></li>"
        )
    blank = escape(sentence).replace("[MASK]", "<mark>[MASK]</mark>")
    return f"<div class=mask><p>{blank}</p><ol>{''.join(chips)}</ol></div>"


def _tagged(row: dict[str, Any]) -> str:
    """A paragraph whose tags are coloured: what was found, what was missed, what was wrongly found."""
    words = []
    for word, gold, found in zip(row["words"], row["gold"], row["predicted"], strict=True):
        if gold == found == "O":
            words.append(escape(word))
            continue
        state = "right" if gold == found else "missed" if found == "O" else "wrong"
        kind = (found if found != "O" else gold).removeprefix("B-").lower()
        words.append(f'<span class="tag {kind} {state}" title="{kind}, {state}">{escape(word)}</span>')
    return f"<p class=tagged>{' '.join(words)}</p>"

"""The tables of a study, from its results alone: claim, figures, differences, the paper's curves, costs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import RECIPES
from ..files import InputError, write_text
from ..reporting.run_files import RESULTS
from ..reporting.tables import ResultTable, counted
from ..typed import check_fields
from .claims import LEVEL, Difference, claim_results, claim_table, claimed_rows, difference, difference_text, holm
from .engine import failure_notes
from .recipe import Study, load_study

_MAYBE = (float, None)
SHOWN = {  # of a study's results.json, besides what is drawn of it (figures.py)
    **dict.fromkeys(("study", "size"), str),
    "minute": bool,
    "seeds": [int],
    "columns": [{"draw?": bool}],
    "rows": [
        {"start": str, "weights?": str}
        | dict.fromkeys(("parameters", "tokens", "pretrain_seconds", "finetune_seconds"), _MAYBE)
    ],
    "measured": [{"sd": _MAYBE, "paper": _MAYBE, "collapsed": int, "failed": [{"outcome": str}]}],
    "notes": [str],
    "cells": {str: {"what": str}},
    "left": [{"what": str}],
    "failed": [{"what": str, "outcome": str, "message": str}],
}


def tables(results: dict[str, Any]) -> list[ResultTable]:
    """The claim first, the figures, the differences from the base variant, the paper's curves, and the costs."""
    claim = claim_table(results)
    figures = _figures(results, "Figures" if claim else results["title"])
    found = [*([claim] if claim else []), figures, _differences(results), *_paper_curves(results)]
    found += [*_chosen(results), _costs(results)]
    return [sheet for sheet in found if sheet.rows]


def report_study(folder: Path) -> dict[str, Any]:
    """Write study.md anew from the results.json in a study's folder, and return those results."""
    results = load_results(folder)
    write_tables(results, folder)
    return results


def load_results(folder: Path) -> dict[str, Any]:
    """Read the results.json in a study's folder. Raises InputError if the folder has no study's results.

    Results from before studies had claims get the claim of the recipe of that name that comes with bertworks, marked as
    named after the runs, if the folder has the recipe.toml of that time and it has equal settings for the claim's rows.
    """
    from .figures import read_study  # matplotlib, which a study's tables can do without

    results = read_study(folder)
    if results is None:
        raise InputError(
            f"{folder}: no results of a study; expected its --out, with the results.json of `bertworks study`"
        )
    check_fields(results, SHOWN, str(folder / RESULTS), "run the study again: it writes the file anew")
    return results if "claim" in results else {"claim": _late_claim(results, folder)} | results


def _late_claim(results: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The claim of our study of that name, if these results have its rows and its column, with equal settings."""
    name = results["study"] if results["size"] == "cpu" else f"{results['size']}/{results['study']}"
    path = RECIPES / "study" / f"{name}.toml"
    study = load_study(path) if path.is_file() else None
    if study is None or study.claim is None:
        return None
    claim = claim_results(study.claim, study.base, named_before=False)
    pairs = {(name, claim["column"]) for name in claimed_rows(claim)}
    if not pairs <= {(entry["row"], entry["column"]) for entry in results["measured"]}:
        return None
    try:
        then = load_study(folder / "recipe.toml")
    except InputError:  # missing, or of a version whose settings had other names
        return None
    return claim if all(_settings(study, *pair) == _settings(then, *pair) for pair in pairs) else None


def _settings(study: Study, row: str, column: str) -> list[Any] | None:
    """What a study's file says of a row's runs in a column, but for names and points of curves; None: no such row."""
    variants = {variant.name: variant for variant in study.variants}
    name, _, step = (row, "", "") if row in variants else row.partition(", step ")
    if name not in variants:
        return None
    names = (name, *variants[name].concat)
    made_of = [replace(variants[one], name="", line="", x=None, snapshots=()) for one in names]
    columns = [replace(one, panel="", x=None) for one in study.columns if one.name == column]
    return [study.pretrain, study.finetune, study.pretrain_seeds, step, made_of, columns]


def write_tables(results: dict[str, Any], folder: Path) -> None:
    """Write study.md in a study's folder."""
    write_text(folder / "study.md", tables_text(results, folder))


def tables_text(results: dict[str, Any], folder: Path) -> str:
    """The tables of a study as study.md has them, with the study's picture if the folder has it."""
    text = "\n".join("#" * (number > 0) + sheet.markdown() for number, sheet in enumerate(tables(results)))
    picture = f"\n![{results['title']}](study.png)\n" if (folder / "study.png").exists() else ""
    return text + picture


def _figures(results: dict[str, Any], title: str) -> ResultTable:
    rows = [
        (
            row["name"],
            *(_cell(_entry(results, row["name"], column["name"]), column, results) for column in results["columns"]),
        )
        for row in results["rows"]
    ]
    header = ("variant", *(column["name"] for column in results["columns"]))
    return ResultTable(title, header, rows, tuple(_notes(results)))


def _differences(results: dict[str, Any]) -> ResultTable:
    found = differences(results)
    tested = {key: one.p for key, one in found.items() if one.p is not None}
    holding = {key for key, p in zip(tested, holm([*tested.values()]), strict=True) if p <= LEVEL}
    rows = []
    for name in (row["name"] for row in results["rows"]):
        if any((name, column["name"]) in found for column in results["columns"]):
            keys = [((name, column["name"]), column) for column in results["columns"]]
            shown = (_difference(found.get(k), _entry(results, *k), column, k in holding) for k, column in keys)
            rows.append((name, *shown))
    header = ("variant", *(column["name"] for column in results["columns"]))
    notes = ["In brackets: 95 % interval over equal seeds, of each comparison alone."]
    if len(tested) > 1:
        count = {0: "none of them holds", 1: "one of them holds"}.get(len(holding), f"{len(holding)} of them hold")
        notes.append(f"‡ p at most 0.05 after Holm's correction over the table's {len(tested)} comparisons: {count}.")
    if any(entry["against"] != results["base"] for entry in results["measured"]):
        notes.append(f"Snapshots: from {results['base']} at the same step.")
    return ResultTable(f"Differences from {results['base']}", header, rows, tuple(notes))


def differences(results: dict[str, Any]) -> dict[tuple[str, str], Difference]:
    """Each row's difference from the row that it is compared with, by row and column, where both have been run."""
    values = {(entry["row"], entry["column"]): entry["values"] for entry in results["measured"]}
    pairs = ((e, difference(values[e["against"], e["column"]], e["values"])) for e in results["measured"])
    return {(e["row"], e["column"]): found for e, found in pairs if found and e["row"] != e["against"]}


def _paper_curves(results: dict[str, Any]) -> list[ResultTable]:
    """The paper's curves, a table for each column."""
    sheets = []
    for column, curves in results["paper_curves"].items():
        axis = sorted({x for pairs in curves.values() for x, _ in pairs})
        rows = [
            (line, *(next((f"{y:.1f}" for x, y in pairs if x == at), "-") for at in axis))
            for line, pairs in curves.items()
        ]
        title = f"{column} in {results['source']}, by {results['paper_axis'] or results['axis']}"
        sheets.append(ResultTable(title, ("", *(f"{x:g}" for x in axis)), rows))
    return sheets


def _chosen(results: dict[str, Any]) -> list[ResultTable]:
    """Which setting each variant has in each column, if some were chosen."""
    entries = {(e["row"], e["column"]): e["chosen"] for e in results["measured"] if e.get("chosen")}
    columns = [c["name"] for c in results["columns"] if any(column == c["name"] for _, column in entries)]
    rows = [
        (row["name"], *(entries.get((row["name"], column), "-") for column in columns))
        for row in results["rows"]
        if any(name == row["name"] for name, _ in entries)
    ]
    note = "Chosen on a fifth of the training rows that was kept back, never on development rows."
    return [ResultTable("Chosen settings", ("variant", *columns), rows, (note,))] if rows else []


def _costs(results: dict[str, Any]) -> ResultTable:
    header = ("variant", "parameters", "training tokens", "minutes of pre-training", "minutes of fine-tuning")
    rows = []
    for row in results["rows"]:
        numbers = ["-" if row[key] is None else f"{row[key]:,.0f}" for key in ("parameters", "tokens")]
        minutes = ["-" if s is None else f"{s / 60:.1f}" for s in (row["pretrain_seconds"], row["finetune_seconds"])]
        rows.append((row["name"], *numbers, *minutes))
    note = "Parameters with the heads of pre-training; fine-tuning of all columns and seeds together."
    return ResultTable("Costs", header, rows, (note,))


def _entry(results: dict[str, Any], row: str, column: str) -> dict[str, Any]:
    return next(e for e in results["measured"] if (e["row"], e["column"]) == (row, column))


def _number(value: float, column: dict[str, Any]) -> str:
    return f"{100 * value:.1f}" if column["percent"] else f"{value:.2f}"


def _cell(entry: dict[str, Any], column: dict[str, Any], results: dict[str, Any]) -> str:
    """63.1 ± 0.4 (n 2) †1 *84.4*: ours, of how many seeds if not all, collapsed ones among them, the paper's."""
    parts = []
    if entry["n"]:
        spread = f" ± {_number(entry['sd'], column)}" if entry["sd"] is not None else ""
        parts.append(_number(entry["mean"], column) + spread)
    several = results.get("pretrain_seeds") or []
    expected = 1 if "" in entry["values"] else len(several or results["seeds"])
    if entry["failed"]:
        parts.append("/".join(dict.fromkeys(one["outcome"] for one in entry["failed"])))
    if 0 < entry["n"] < expected:
        parts.append(f"(n {entry['n']})")
    if entry["collapsed"]:
        parts.append(f"†{entry['collapsed']}")
    parts = parts or ["-"]
    if entry["paper"] is not None:
        parts.append(f"*{entry['paper']:.{1 if column['percent'] else 2}f}*")
    return " ".join(parts)


def _difference(found: Difference | None, entry: dict[str, Any], column: dict[str, Any], holds: bool) -> str:
    """-1.2 (-3.0 to +0.6) ‡ *-0.5*: ours, whether it holds after Holm's correction, the paper's."""
    parts = [difference_text(found, column["percent"])] if found else []
    parts += ["‡"] * holds
    if entry["paper_difference"] is not None:
        parts.append(f"*{entry['paper_difference']:+.{1 if column['percent'] else 2}f}*")
    return " ".join(parts) or "-"


def _on_test(results: dict[str, Any]) -> str:
    """Which columns are of test data."""
    tested = [column["name"] for column in results["columns"] if column.get("metric", "").endswith("_test")]
    return f" ({', '.join(tested)}: on test data)" if tested else ""


def _notes(results: dict[str, Any]) -> list[str]:
    """Sentences below the figures."""
    seeds, measured = results["seeds"], results["measured"]
    notes = ["Made with --minute: this shows that the study runs; its figures mean nothing."] * results["minute"]
    if any("" not in entry["values"] and entry["n"] for entry in measured):
        names = ", ".join(map(str, seeds))
        once = "A variant is pre-trained once: what another seed of pre-training would change is in no interval."
        over = f"{counted(len(seeds), 'seed')} of fine-tuning ({names}), on development data{_on_test(results)}"
        several = results.get("pretrain_seeds") or []
        each = f"over {counted(len(several), 'seed')} of pre-training. Each value is a mean over {over}."
        notes.append(
            f"Mean ± standard deviation {each}" if several else f"Mean ± standard deviation over {over}. {once}"
        )
    if drawn := [column["name"] for column in results["columns"] if column.get("draw")]:
        notes.append(f"In {', '.join(drawn)} each seed also draws its training rows.")
    if any(entry["paper"] is not None for entry in measured):
        notes.append(f"In italics: {results['source']}.")
    if any(entry["collapsed"] for entry in measured):
        notes.append("† so many of the runs collapsed to the same answer everywhere; they are in the mean.")
    notes += failure_notes(results)
    if left := len(results["left"]):
        empty = f"{sum(not entry['n'] for entry in measured)} of {len(measured)}"
        cells = len(results["cells"])
        notes.append(f"A dash is a missing figure: {empty}. Of the study's {cells} runs {left} have not been run.")
    return [*notes, *results["notes"]]

"""The tables of a study, from its results alone: claim, figures, differences, the paper's curves, settings, costs.

All tables of variants and columns are made by one builder, `_grid`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import InputError, shorten, write_text
from ..reporting.run_files import RESULTS, read_results
from ..reporting.tables import ResultTable, counted
from .claims import claim_table
from .recipe import FORMAT
from .statistics import LEVEL, Difference, difference, difference_text, holm

REPAIR = "give `bertworks study run` another --out, and --cells with the finished runs, to write it again"

# ---- results


def load_results(folder: Path) -> dict[str, Any]:
    """The results in a study's folder, finished or not.

    Raises InputError if there are none, or if they are of another version.
    """
    path = folder / RESULTS
    if not path.exists():
        raise InputError(f"{folder}: no {RESULTS} of a study; expected the --out of `bertworks study run`")
    results: dict[str, Any] = read_results(path, {}, REPAIR)
    if (results.get("kind"), results.get("format")) != ("study", FORMAT):
        kind = f"{shorten(results.get('kind'))} in format {shorten(results.get('format'))}"
        raise InputError(f"{path}: results of a {kind}; expected those of a study in format {FORMAT}; {REPAIR}")
    return results


def write_tables(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write study.md in a study's folder; returns the results."""
    write_text(folder / "study.md", tables_text(results, folder))
    return results


def tables_text(results: dict[str, Any], folder: Path) -> str:
    """The tables of a study as study.md has them, with the study's picture if the folder has it."""
    text = "\n".join("#" * (number > 0) + sheet.markdown() for number, sheet in enumerate(tables(results)))
    picture = f"\n![{results['title']}](study.png)\n" if (folder / "study.png").exists() else ""
    return text + picture


# ---- tables


def tables(results: dict[str, Any]) -> list[ResultTable]:
    """The claim first, the figures, the differences from the base variant, the paper's curves, settings, and costs."""
    claim = claim_table(results)
    figures = _figures(results, "Figures" if claim else results["title"])
    sheets = [*([claim] if claim else []), figures, _differences(results), *_paper_curves(results)]
    sheets += [_settings(results), *([] if results.get("best") else [_costs(results)])]
    return [sheet for sheet in sheets if sheet.rows]


Show = Callable[[dict[str, Any], dict[str, Any]], str]  # an entry of a column as text, "-" if there is nothing to show


def _grid(results: dict[str, Any], title: str, show: Show, notes: Sequence[str], sparse: bool = False) -> ResultTable:
    """A table of all variants and columns; sparse: without the variants and columns that have nothing to show.

    The columns of a single variant become the lines of the table.
    """
    entries = {(entry["row"], entry["column"]): entry for entry in results["measured"]}
    columns, names = results["columns"], [row["name"] for row in results["rows"]]
    shown = {name: [show(entries[name, column["name"]], column) for column in columns] for name in names}
    used = [i for i in range(len(columns)) if not sparse or any(texts[i] != "-" for texts in shown.values())]
    if len(names) == 1 and len(columns) > 1:
        lines = [(columns[i]["name"], shown[names[0]][i]) for i in used]
        return ResultTable(title, ("column", names[0]), lines, tuple(notes))
    rows = [(name, *(texts[i] for i in used)) for name, texts in shown.items() if not sparse or {*texts} != {"-"}]
    return ResultTable(title, ("variant", *(columns[i]["name"] for i in used)), rows, tuple(notes))


def _figures(results: dict[str, Any], title: str) -> ResultTable:
    pretrain_seeds = results.get("pretrain_seeds") or []

    def show(entry: dict[str, Any], column: dict[str, Any]) -> str:
        """63.1 ± 0.4 (n 2) †1 *84.4*: ours, the number of seeds if not all, of collapsed runs, the paper's."""
        parts = []
        if entry["n"]:
            deviation = f" ± {_number(entry['sd'], column)}" if entry["sd"] is not None else ""
            parts.append(_number(entry["mean"], column) + deviation)
        if entry["failed"]:
            parts.append("/".join(dict.fromkeys(one["outcome"] for one in entry["failed"])))
        expected = 1 if "" in entry["values"] else len(pretrain_seeds or results["seeds"])
        if 0 < entry["n"] < expected:
            parts.append(f"(n {entry['n']})")
        if entry["collapsed"]:
            parts.append(f"†{entry['collapsed']}")
        if results.get("chosen", {}).get(column["name"]) == entry["row"]:
            parts.append("chosen")
        parts = parts or ["-"]
        if entry["paper"] is not None:
            parts.append(f"*{entry['paper']:.{1 if column['percent'] else 2}f}*")
        return " ".join(parts)

    return _grid(results, title, show, _notes(results))


def _differences(results: dict[str, Any]) -> ResultTable:
    compared = differences(results)
    tested = {key: one.p for key, one in compared.items() if one.p is not None}
    holding = {key for key, p in zip(tested, holm([*tested.values()]), strict=True) if p <= LEVEL}

    def show(entry: dict[str, Any], column: dict[str, Any]) -> str:
        """-1.2 (-3.0 to +0.6) ‡ *-0.5*: ours, whether it holds after Holm's correction, the paper's."""
        key = (entry["row"], entry["column"])
        parts = [difference_text(compared[key], column["percent"])] if key in compared else []
        parts += ["‡"] * (key in holding)
        if entry["paper_difference"] is not None:
            parts.append(f"*{entry['paper_difference']:+.{1 if column['percent'] else 2}f}*")
        return " ".join(parts) or "-"

    notes = ["In brackets: 95 % interval over equal seeds, of each comparison alone."]
    if len(tested) > 1:
        count = {0: "none of them holds", 1: "one of them holds"}.get(len(holding), f"{len(holding)} of them hold")
        notes.append(f"‡ p at most 0.05 after Holm's correction over the table's {len(tested)} comparisons: {count}.")
    if any(entry["against"] != results["base"] for entry in results["measured"]):
        notes.append(f"Snapshots: from {results['base']} at the same step.")
    sheet = _grid(results, f"Differences from {results['base']}", show, notes)
    names = {row for row, _ in compared}
    return replace(sheet, rows=[row for row in sheet.rows if row[0] in names])


def differences(results: dict[str, Any]) -> dict[tuple[str, str], Difference]:
    """Each row's difference from the row that it is compared with, by row and column, where both have been run."""
    values = {(entry["row"], entry["column"]): entry["values"] for entry in results["measured"]}
    pairs = ((e, difference(values[e["against"], e["column"]], e["values"])) for e in results["measured"])
    return {(e["row"], e["column"]): one for e, one in pairs if one and e["row"] != e["against"]}


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


def _settings(results: dict[str, Any]) -> ResultTable:
    """The setting of each variant in each column that was chosen on training rows."""
    note = "Chosen on a fifth of the training rows that was kept back, never on development rows."
    return _grid(results, "Chosen settings", lambda entry, column: entry.get("chosen") or "-", [note], sparse=True)


def _costs(results: dict[str, Any]) -> ResultTable:
    header = ("variant", "parameters", "training tokens", "minutes of pre-training", "minutes of fine-tuning")
    rows = []
    for row in results["rows"]:
        numbers = ["-" if row[key] is None else f"{row[key]:,.0f}" for key in ("parameters", "tokens")]
        minutes = ["-" if s is None else f"{s / 60:.1f}" for s in (row["pretrain_seconds"], row["finetune_seconds"])]
        rows.append((row["name"], *numbers, *minutes))
    note = "Parameters with the heads of pre-training; fine-tuning of all columns and seeds together."
    return ResultTable("Costs", header, rows, (note,))


def _number(value: float, column: dict[str, Any]) -> str:
    return f"{100 * value:.1f}" if column["percent"] else f"{value:.2f}"


# ---- notes


def _notes(results: dict[str, Any]) -> list[str]:
    """Sentences below the figures."""
    measured = results["measured"]
    notes = ["Made with --minute: this shows that the study runs; its figures mean nothing."] * results["minute"]
    if any("" not in entry["values"] and entry["n"] for entry in measured):
        notes.append(_seeds_note(results))
    if drawn := [column["name"] for column in results["columns"] if column.get("draw")]:
        notes.append(f"In {', '.join(drawn)} each seed also draws its training rows.")
    if any(entry["paper"] is not None for entry in measured):
        notes.append(f"In italics: {results['source']}.")
    if any(entry["collapsed"] for entry in measured):
        notes.append("† so many of the runs collapsed to the same answer everywhere; they are in the mean.")
    if results.get("chosen"):
        notes.append("chosen: the best mean on development data, so that every figure here is a little too good.")
    for task, best in results.get("best", {}).items():
        collapsed = " (collapsed)" if best["collapsed"] else ""
        value = f"{best['metric']} {100 * best['value']:.2f}{collapsed}"
        notes.append(f"{task}: the best run is {best['what']}, {value}; its model is in {best['model']}/.")
    notes += [f"{one['what']} {one['outcome']}: {one['message']}" for one in results.get("failed", [])]
    if left := len(results["left"]):
        empty = f"{sum(not entry['n'] for entry in measured)} of {len(measured)}"
        runs = len(results["cells"])
        notes.append(f"A dash is a missing figure: {empty}. Of the study's {runs} runs {left} have not been run.")
    return [*notes, *results["notes"]]


def _seeds_note(results: dict[str, Any]) -> str:
    """The seeds over which the means and deviations are taken."""
    tested = [column["name"] for column in results["columns"] if column.get("metric", "").endswith("_test")]
    on_test = f" ({', '.join(tested)}: on test data)" if tested else ""
    seeds, pretrain_seeds = results["seeds"], results.get("pretrain_seeds")
    over = f"{counted(len(seeds), 'seed')} of fine-tuning ({', '.join(map(str, seeds))}), on development data{on_test}"
    if pretrain_seeds:
        pretrained = counted(len(pretrain_seeds), "seed")
        return f"Mean ± standard deviation over {pretrained} of pre-training. Each value is a mean over {over}."
    once = " A variant is pre-trained once: what another seed of pre-training would change is in no interval."
    return f"Mean ± standard deviation over {over}." + ("" if results.get("best") else once)

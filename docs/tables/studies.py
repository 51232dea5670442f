"""The tables of docs/results.md that show studies."""

from typing import Any

from sources import Lines, spread, study, table, values_in

from bertworks.experiments.claims import claim_table
from bertworks.experiments.statistics import difference, difference_text, holm
from bertworks.experiments.tables import differences, tables


def figures(name: str) -> Lines:
    """The claim, the figures and how many of them were not run."""
    found = study(name)
    sheet = next(one for one in tables(found) if one.header[0] == "variant")
    missing = [note for note in sheet.notes if note.startswith("A dash")]
    return [*claim(found), *table(sheet.header, sheet.rows), *(line for note in missing for line in ("", note))]


def claim(results: dict[str, Any]) -> Lines:
    sheet = claim_table(results)
    if sheet is None:
        return []
    found = {what: said for what, said in sheet.rows}
    effect = found["effect size, Hedges's g of paired differences"]
    said = (
        f"Claim: {found['comparison']}. In the source: {found['finding of the source']}. Here: {found['difference']}, "
        f"p {found['p, paired t-test']}, Hedges's g {effect}, n {found['n']}. "
        f"Verdict: {found['verdict']}. {sheet.notes[0]}"
    )
    return [said, ""]


def with_differences(name: str, column: str) -> Lines:
    """The figures, and beside them one column's differences."""
    found, lines = study(name), []
    sheet = next(one for one in tables(found) if one.header[0] == "variant")
    compared = differences(found)
    for cells in sheet.rows:
        one = compared.get((cells[0], column))
        lines.append((*cells, difference_text(one) if one else ""))
    return [*claim(found), *table((*sheet.header, f"{column}: difference (95 %)"), lines)]


def steps() -> Lines:
    found = study("steps")
    values = {(e["row"], e["column"]): e for e in found["measured"]}
    asked = [(line, column) for column in ("NER", "MNLI") for line in ("masked LM", "left-to-right")]
    rows = []
    for step in ("step 150", "step 300", "step 600", "step 1,200", ""):
        entries = [values[f"{line}, {step}".removesuffix(", "), column] for line, column in asked]
        rows.append((step.removeprefix("step ") or "3,020, the end", *(spread(e["mean"], e["sd"]) for e in entries)))
    return [*claim(found), *table(("step", *(f"{line}, {column}" for line, column in asked)), rows)]


def korean_tasks() -> Lines:
    """The recipe's encoder beside the usual start and random weights, with Holm's correction over the tasks."""
    found = study("korean")
    values = {(e["row"], e["column"]): e for e in found["measured"]}
    names = [column["name"] for column in found["columns"] if column["name"] != "perplexity"]
    variants = ("korean", "korean, usual start, 15 % masked", "random weights")
    effects = [difference(*(values[row, name]["values"] for row in ("random weights", "korean"))) for name in names]
    corrected = holm([one.p for one in effects if one is not None and one.p is not None])
    rows = []
    for name, one, p in zip(names, effects, corrected, strict=True):
        sides = [spread(values[row, name]["mean"], values[row, name]["sd"]) for row in variants]
        rows.append((name, *sides, difference_text(one) + (" ‡" if p <= 0.05 else "")))
    note = f"‡: p at most 0.05 after Holm's correction over the {len(names)} tasks. Intervals are not corrected."
    header = ("task", "this encoder (%)", "usual start (%)", "random weights (%)", "gain on random weights (95 %)")
    return [*claim(found), *table(header, rows), "", note]


def examples_against_others() -> Lines:
    """The pre-trained encoder against the rows without an encoder, with Holm's correction over all comparisons."""
    others = ("word2vec + BiLSTM", "logistic regression")
    finished = [
        {e["column"] for e in study("examples")["measured"] if e["row"] == row and len(e["values"]) == 5}
        for row in ("pre-trained", *others)
    ]
    columns = [e["column"] for e in study("examples")["measured"] if e["row"] == "pre-trained"]
    columns = [column for column in columns if all(column in one for one in finished)]
    found = [
        difference(values_in("examples", other, column), values_in("examples", "pre-trained", column))
        for column in columns
        for other in others
    ]
    corrected = holm([one.p for one in found if one is not None and one.p is not None])
    cells = [difference_text(one) + (" ‡" if p <= 0.05 else "") for one, p in zip(found, corrected, strict=True)]
    rows = [(column, *cells[2 * i : 2 * i + 2]) for i, column in enumerate(columns)]
    return table(("data", *(f"pre-trained minus {other}" for other in others)), rows)

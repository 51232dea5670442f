"""The tables of docs/results.md that show studies."""

from typing import Any

from sources import Lines, spread, study, table, values_in

from bertworks.experiments.claims import claim_table, difference, difference_text
from bertworks.experiments.study_tables import differences, tables


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


def features_at_equal_updates() -> Lines:
    tuned = values_in("tasks", "BERT, batches of 8", "NER")
    rows = []
    entries = {e["row"]: e for e in study("features")["measured"] if e["column"] == "NER dev"}
    for name, entry in entries.items():
        if name not in ("fine-tuning", "random weights, last hidden"):
            paper = f"{entry['paper_difference']:+.1f}"
            rows.append((name, difference_text(difference(tuned, entry["values"])), paper))
    return table(("features", "difference on NER dev from fine-tuning in batches of 8", "the paper"), rows)

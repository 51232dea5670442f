"""The tables of docs/results/studies.md and docs/results/encoders.md that show studies."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from findings import claim_text, judged
from sources import RESULTS, Lines, result, spread, study, table

import bertworks
from bertworks.experiments.claims import claim_table
from bertworks.experiments.statistics import LEVEL, Difference, difference, difference_text, holm
from bertworks.experiments.tables import differences, tables

RECIPES = Path(bertworks.__file__).parent / "recipes"
OVERLAP = "linear model, overlap of characters"


def figures(name: str, columns: Sequence[str] = (), without: Sequence[str] = (), missing: int = 0) -> Lines:
    """The claim and the figures: of these columns, or all; without some rows. So many figures are missing."""
    found = study(name)
    sheet = next(one for one in tables(found) if one.header[0] == "variant")
    shown = [i for i, column in enumerate(sheet.header) if column in ("variant", *(columns or sheet.header))]
    rows = [tuple(cells[i] for i in shown) for cells in sheet.rows if cells[0] not in without]
    dashes = [cell for cells in rows for cell in cells if re.match("-( |$)", cell)]
    assert len(dashes) == missing, f"{name}: {len(dashes)} figures are missing"
    return [*claim(name), *table([sheet.header[i] for i in shown], rows)]


def claim(name: str) -> Lines:
    """The claim of a study that was named before its runs."""
    sheet = claim_table(study(name))
    ours = next((f for f in judged() if f.planned and f.one.source == name), None)
    if sheet is None or ours is None:
        return []
    found = {what: said for what, said in sheet.rows}
    return [claim_text(ours, found["comparison"], found["n"]), ""]


def with_differences(name: str, column: str, columns: Sequence[str] = ()) -> Lines:
    """The figures, and beside them one column's differences from the base variant."""
    lines = figures(name, columns)
    compared = differences(study(name))
    holding = holding_of(compared)
    head = next(i for i, line in enumerate(lines) if line.startswith("|"))
    lines[head] += f" {column}: minus {study(name)['base']} (95 %) |"
    lines[head + 1] += " ---: |"
    for i in range(head + 2, len(lines)):
        key = (lines[i].split("|")[1].strip(), column)
        shown = difference_text(compared[key]) + " ‡" * (key in holding) if key in compared else ""
        lines[i] += f" {shown} |"
    return lines


def holding_of(compared: Mapping[tuple[str, str], Difference | None]) -> set[tuple[str, str]]:
    """The differences that hold after Holm's correction for all of them."""
    tested = {key: one.p for key, one in compared.items() if one is not None and one.p is not None}
    return {key for key, p in zip(tested, holm([*tested.values()]), strict=True) if p <= LEVEL}


def named_entities() -> Lines:
    """F1 on CoNLL-2003's development sentences by encoder and fine-tuning: the same model has many scores."""
    short, batches, long = "5,000 sentences, 97 updates", "the same in batches of 8", "14,041 sentences, 1,149 updates"
    two, both = "2 layers, 6 M tokens", "2 layers, 18 M tokens"
    asked = [
        (two, short, "tasks", "NER", "BERT", "random weights"),
        (two, batches, "tasks", "NER", "BERT, batches of 8", ""),
        (two, long, "tasks-longer", "NER", "BERT", "random weights"),
        (f"{two}, three pre-trainings", long, "pretraining-seeds", "NER", "BERT", "random weights"),
        (both, short, "tasks", "NER", "BERT, 18 million tokens", "random weights"),
        (both, long, "tasks-longer", "NER", "BERT, 18 million tokens", "random weights"),
    ]
    rows = []
    for encoder, tuning, name, column, *variants in asked:
        found = {e["row"]: spread(e["mean"], e["sd"]) for e in study(name)["measured"] if e["column"] == column}
        rows.append((encoder, tuning, f"`{name}`", *(found.get(variant, "-") for variant in variants)))
    relatives = result("benchmarks/relatives")["sides"]
    ten = [relatives[side]["scores"]["conll2003"] for side in ("BERT", "random weights")]
    encoder = "4 layers, ten minutes, rotary positions"
    rows.append((encoder, "5,000 sentences", "relatives", *(spread(one["mean"], one["sd"]) for one in ten)))
    runs = [result(f"finetune-cpu-rotary/ner_{side}/results") for side in ("pretrained", "random")]
    scores = [spread(run["metrics"]["f1"], run["std"]["f1"]) for run in runs]
    rows.append(("`cpu` of version 0.1", "14,041 sentences, batches of 32", "-", *scores))
    return table(("encoder", "fine-tuning", "study", "pre-trained", "random weights"), rows, words=3)


def encoder(name: str, *others: str) -> Lines:
    """A bundled encoder beside others: settings and scores of columns with several seeds, then the differences."""
    found = study(name)
    values = {(e["row"], e["column"]): e for e in found["measured"] if e["n"] > 1}
    columns = [column for column in found["columns"] if (name, column["name"]) in values]
    effects = {
        (other, column["name"]): difference(
            values[other, column["name"]]["values"], values[name, column["name"]]["values"]
        )
        for other in others
        for column in columns
        if (other, column["name"]) in values
    }
    holding = holding_of(effects)

    def cell(row: str, column: str) -> str:
        entry = values.get((row, column))
        if entry is None:
            return "-"
        fewer = f"(n {entry['n']})" if entry["n"] != values[name, column]["n"] else ""
        collapsed = f"†{entry['collapsed']}" if entry["collapsed"] else ""
        return " ".join(filter(None, (spread(entry["mean"], entry["sd"]), fewer, collapsed)))

    scores, minus = [], []
    for column in columns:
        one, entry = column["name"], values[name, column["name"]]
        task = (
            f"{column['panel'].split(',')[0]}, {column['x']:,.0f}"
            if column.get("x")
            else one.replace(" 1,000", ", 1,000")
        )
        set_to = settings(name, one, entry.get("chosen"))
        scores.append((task, set_to, str(entry["n"]), *(cell(row, one) for row in (name, *others))))
        keys = [(other, one) for other in others]
        minus.append((task, *(difference_text(effects.get(key)) + " ‡" * (key in holding) for key in keys)))
    heads = ["overlap" if other == OVERLAP else other for other in others]
    return [
        *claim(name),
        *table(("task, examples", "epochs, batch, learning rate", "n", f"`{name}`", *heads), scores, words=2),
        "",
        f"`{name}` minus the others, with 95 % intervals:",
        "",
        *table(("task, examples", *heads), minus),
    ]


def settings(name: str, column: str, chosen: str | None) -> str:
    """Epochs, batch size and learning rate of a bundled encoder in a column of its study."""
    recipe, default = (
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in (RESULTS / f"encoders/{name}/study/recipe.toml", RECIPES / "finetune/study.toml")
    )
    own = next(one.get("finetune", {}) for one in recipe["columns"] if one["name"] == column)
    lr = (
        float(match[1])
        if (match := re.search(r"optim\.lr = (\S+)", chosen or ""))
        else own.get("optim", default["optim"])["lr"]
    )
    epochs, batch = (own.get(key, default[key]) for key in ("epochs", "batch_size"))
    return f"{epochs:g}, {batch}, {f'{lr:.0e}'.replace('e-0', 'e-')}"


def steps() -> Lines:
    """The scores of both lines at each snapshot and at the end."""
    found = study("steps")
    values = {(e["row"], e["column"]): e for e in found["measured"]}
    asked = [(line, column) for column in ("NER", "MNLI") for line in ("masked LM", "left-to-right")]
    rows = []
    for row in (one for one in found["rows"] if one["line"] == "masked LM"):
        step = row["name"].partition(", step ")[2]
        entries = [values[f"{line}, step {step}" if step else line, column] for line, column in asked]
        rows.append((step or f"{row['steps']:,}, the end", *(spread(e["mean"], e["sd"]) for e in entries)))
    return [*claim("steps"), *table(("step", *(f"{line}, {column}" for line, column in asked)), rows)]

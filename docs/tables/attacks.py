"""The tables of docs/reliability.md: how commands end on hostile input, and what kills leave."""

from typing import Any

from sources import Lines, result, table

ATTACKED = {  # what is damaged, by the beginnings of its readers' names: the commands that read it
    "tensorflow": ("TensorFlow checkpoints", "`convert`"),
    "vocab.txt tokenizer.json merges.txt": ("files of tokenizers", "`tokenizer check`"),
    "model": ("model folders", "`convert`, `features`, `predict fill-mask`, `finetune`"),
    "finetuned": ("fine-tuned model folders", "`predict`"),
    "table evaluate": ("tables of every kind of task: CSV, TSV, JSON lines", "`finetune`, `evaluate`"),
    "task": ("official files of GLUE, SQuAD, CoNLL-2003, SWAG", "`finetune`"),
    "corpus": ("text, WikiExtractor, JSON lines, Parquet, archives", "`corpus build`, `tokenizer train`"),
    "store": ("corpus stores, with matching checksums", "`corpus show`, `pretrain`"),
    "recipe study": ("recipes, studies", "`pretrain`, `finetune`, `study run`"),
    "run": ("run folders: log, results, recipe, state", "`study plot`, `study report`, `compare`, `pretrain`"),
    "predict": ("texts and tables to predict", "`predict`, `features`, `probe neighbours`"),
    "doctor": ("runs, stores, tables", "`doctor`"),
    "export": ("exported folders", "`predict`, `export --verify`"),
}
NO_LONGER_ATTACKED = {  # readers of hostile.json that benchmarks/hostile.py has no longer
    *("sentencepiece", "table-parquet", "corpus-markdown", "vectors", "words", "frames", "export-verified", "xlsx"),
    *("explain", "explain-pair", "grids", "class-weights", "encodings", "ensemble", "thresholds", "card", "track"),
    *("doctor-fix", "doctor-fix-table", "doctor-study", "doctor-export", "features-pooling"),
}
REMOVED = {"doctor, run", "doctor, table", "track"}  # commands of kills.json: `doctor --fix` and `track`
RENAMED = {  # commands of kills.json whose name is another one now
    "sweep": "study sweep",
    "study": "study run",
    "explain": "probe explain",
    "finetune in Python": "bertworks.finetune",
}


def hostile() -> Lines:
    """Readers of each kind: how their cases ended, and the most memory beyond the start."""
    readers: dict[str, Any] = result("benchmarks/hostile")["readers"]
    present = {name: one for name, one in readers.items() if name not in NO_LONGER_ATTACKED}
    rows = []
    for kinds, titles in {**ATTACKED, " ".join(ATTACKED): ("all", "")}.items():
        found = [one for name, one in present.items() if name.partition("-")[0] in kinds.split()]
        cases = sum(one["cases"] for one in found)
        taken, refused = (sum(one["ends"].get(end, 0) for one in found) for end in ("ok", "refused"))
        numbers = (len(found), cases, taken, refused, cases - taken - refused)
        rows.append((*titles, *map(str, numbers), f"{max(one['most_memory'] for one in found) / 1e6:.0f}"))
    header = ("damaged", "read by", "readers", "cases", "accepted", "refused", "findings", "peak memory, MB")
    return table(header, rows, words=2)


def kills() -> Lines:
    """Commands with all their forms: runs, kills, and how many runs differed in any way."""
    commands: dict[str, dict[str, list[Any]]] = {}
    for name, one in result("benchmarks/kills")["commands"].items():
        if name not in REMOVED:
            command, _, form = name.partition(", ")
            if command == "pretrain korean":
                command, form = "pretrain", f"korean {form}"
            commands.setdefault(RENAMED.get(command, command), {})[form or "plain"] = one
    rows = [(f"`{command}`", ", ".join(forms), *_counts([*forms.values()])) for command, forms in commands.items()]
    rows.append(("all", "", *_counts([one for forms in commands.values() for one in forms.values()])))
    return table(("command", "forms", "number of forms", "runs", "kills", "findings"), rows, words=2)


def _counts(forms: list[Any]) -> tuple[str, ...]:
    runs, killed = (sum(one[key] for one in forms) for key in ("runs", "kills"))
    findings = sum(one[key] for one in forms for key in ("mismatches", "leftovers", "half", "changed", "refused"))
    return tuple(map(str, (len(forms), runs, killed, findings)))

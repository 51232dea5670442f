"""What `--fix` does: it removes what killed processes left, and writes anew what follows from other files.

It changes no data, no weights and no settings. A table is never changed: a copy without repeated and empty rows is
written beside it.
"""

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..checkpoint.card import model_card
from ..checkpoint.folder import CONFIG, load_model, part_sizes, read_config
from ..files import InputError, atomic_write, read_json_object, temporaries, try_lock, write_text
from ..reporting.run_files import RESULTS
from ..tasks.table import part_of
from ..training.run import LOCK, STATE_FOLDER
from .alike import key_of
from .findings import Finding
from .folders import CARD, VOCAB, ModelFolder, differing_vocab
from .rows import repeated
from .tables import Table

COPY = "deduplicated"  # in the name of a copy


def left_behind(folder: Path) -> list[Path]:
    """What killed processes left in a run, model or store folder, while no process uses the run."""
    inside = [folder, *(folder / name for name in ("model", STATE_FOLDER, "tokenizer"))]
    found = [path for one in inside if one.is_dir() for path in temporaries(one)]
    unfinished = folder / ".model.tmp"  # of write_files
    found += [unfinished] if unfinished.is_dir() else []
    results = folder / RESULTS
    if results.is_file() and (folder / STATE_FOLDER).is_dir():
        kind = read_json_object(results).get("kind")
        found += [folder / STATE_FOLDER] if kind == "finetune" else []  # a finished one keeps no state
    return found


def leftovers(folder: Path) -> Iterator[Finding]:
    """Files of killed processes."""
    found = left_behind(folder)
    if found and not in_use(folder):
        size = sum(file.stat().st_size for path in found for file in ([path] if path.is_file() else path.rglob("*")))
        names = ", ".join(path.name for path in found[:3])
        yield Finding(
            "note",
            f"{len(found)} leftovers of a killed process ({names}), {size / 1e6:,.1f} MB",
            "--fix removes them",
            {"files": len(found), "bytes": size},
        )


def in_use(folder: Path) -> bool:
    """Whether a process uses this run folder."""
    if not (folder / LOCK).exists():
        return False
    with try_lock(folder / LOCK) as mine:
        return not mine


def clean(folder: Path) -> Iterator[str]:
    """Remove leftovers, unless a process uses the run."""
    if in_use(folder):
        return
    for path in left_behind(folder):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        yield f"removed {path}"


def mend_folder(found: ModelFolder) -> Iterator[str]:
    """Write vocab.txt anew from tokenizer.json where they disagree, and a card where there is none."""
    folder = found.folder
    try:
        own = found.tokenizer
        if differing_vocab(folder, own):
            write_text(folder / VOCAB, "".join(token + "\n" for token in own.vocab))
            yield f"wrote {folder / VOCAB} from tokenizer.json"
    except InputError:  # a finding already
        pass
    if not (folder / CARD).exists():
        try:
            model = load_model(folder)
            results = folder.parent / RESULTS
            facts = read_json_object(results) if results.is_file() and folder.name == "model" else {"made": "of others"}
            facts = {key: value for key, value in facts.items() if key not in ("model", "data")}  # paths of a machine
            config = read_json_object(folder / CONFIG)
            write_text(folder / CARD, model_card(config, read_config(folder)[0], part_sizes(model), facts))
            yield f"wrote {folder / CARD} from config.json and the weights"
        except (InputError, KeyError):
            return


def copy_of_table(table: Table) -> Iterator[str]:
    """Write a copy of a table without repeated and empty rows; texts with several labels stay, and are not decided."""
    path, part = part_of(table.path)
    if part or path.suffix in (".parquet", ".xlsx") or not table.rows.classes:
        return
    rows = table.rows.train
    keys = [(key_of(row.text), row.label) for row in rows]
    again = {*repeated(keys)}
    dropped = {rows[i].line for i in again} | {row.line for row in rows if not "".join(row.texts).strip()}
    if not dropped:
        return
    out = path.with_name(f"{path.stem}.{COPY}{path.suffix}")
    if out.exists():
        raise InputError(f"{out} exists; move it away, so that --fix can write it")
    with atomic_write(out, "w") as file:
        file.write(_without(path, dropped, table.columns.form.encoding))
    yield f"wrote {out}, {len(rows) - len(dropped):,} of {len(rows):,} rows; {path.name} is as it was"


def _without(path: Path, dropped: set[int], encoding: str) -> str:
    """The text of a table without the rows that begin in these lines."""
    lines = re.findall(r"[^\n]*\n|[^\n]+$", path.read_bytes().decode(encoding).removeprefix("\ufeff"))
    if path.suffix != ".csv":
        return "".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    reader, start, kept = csv.reader(lines, strict=True), 0, []
    for _ in reader:
        if start + 1 not in dropped:
            kept += lines[start : reader.line_num]
        start = reader.line_num
    return "".join(kept)

"""What `--fix` does: it removes what killed processes left, and writes anew what follows from other files.

It changes no data, no weights and no settings. A table is never changed: a copy without repeated and empty rows is
written beside it. What cannot be done is kept in the report, with the reason.
"""

import codecs
import csv
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...checkpoint.card import model_card
from ...checkpoint.folder import CONFIG, load_model, part_sizes, read_config
from ...data.encodings import UTF8, codec_of
from ...files import InputError, atomic_write, read_json_object, temporaries, try_lock, write_text
from ...reporting.run_files import RESULTS
from ...tasks.table import ending_of, next_record, part_of
from ...tokenizer import normalize
from ...training.run import LOCK, STATE_FOLDER
from .findings import Finding, NotChecked, Report
from .folders import CARD, VOCAB, ModelFolder, differing_vocab
from .rows import repeated
from .tables import Table

COPY = "deduplicated"  # in the name of a copy


def left_behind(folder: Path) -> list[Path]:
    """What killed processes left in a run, model or store folder, while no process uses the run.

    Links are not followed and not listed: what they lead to may belong to another run.
    """
    inside = [folder, *(folder / name for name in ("model", STATE_FOLDER, "tokenizer") if _is_own(folder / name))]
    found = [path for one in inside for path in temporaries(one)]
    unfinished = folder / ".model.tmp"  # of write_files
    found += [unfinished] if _is_own(unfinished) else []
    results = folder / RESULTS
    if results.is_file() and _is_own(folder / STATE_FOLDER):
        with suppress(InputError):  # a finding already
            kind = read_json_object(results).get("kind")
            found += [folder / STATE_FOLDER] if kind == "finetune" else []  # a finished one keeps no state
    return [path for path in found if not path.is_symlink()]


def _is_own(folder: Path) -> bool:
    """Whether there is such a folder, which is no link."""
    return folder.is_dir() and not folder.is_symlink()


def leftovers(folder: Path) -> Iterator[Finding]:
    """Files of killed processes."""
    try:
        found = left_behind(folder)
        if not found or in_use(folder):
            return
        size = sum(file.lstat().st_size for path in found for file in ([path] if path.is_file() else path.rglob("*")))
    except OSError as error:
        raise NotChecked(f"{error.filename or folder}: {error.strerror or error}") from None
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


def clean(folder: Path, report: Report) -> None:
    """Remove leftovers, unless a process uses the run."""
    with report.fixing(f"leftovers in {folder}"):
        found = left_behind(folder)
        if not found or in_use(folder):
            return
        for path in found:
            with report.fixing(f"{path} is not removed"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                report.fixed.append(f"removed {path}")


def mend_folder(found: ModelFolder, report: Report) -> None:
    """Write vocab.txt anew from tokenizer.json where they disagree, and a card where there is none."""
    folder = found.folder
    with report.fixing(f"{folder / VOCAB} is not written"), suppress(InputError):  # a finding already
        own = found.tokenizer
        if differing_vocab(folder, own):
            write_text(folder / VOCAB, "".join(token + "\n" for token in own.vocab))
            report.fixed.append(f"wrote {folder / VOCAB} from tokenizer.json")
    if (folder / CARD).exists():
        return
    with report.fixing(f"{folder / CARD} is not written"), suppress(InputError, KeyError):
        model = load_model(folder)
        results = folder.parent / RESULTS
        facts = read_json_object(results) if results.is_file() and folder.name == "model" else {"made": "of others"}
        facts = {key: value for key, value in facts.items() if key not in ("model", "data")}  # paths of a machine
        config = read_json_object(folder / CONFIG)
        write_text(folder / CARD, model_card(config, read_config(folder)[0], part_sizes(model), facts))
        report.fixed.append(f"wrote {folder / CARD} from config.json and the weights")


def copy_of_table(table: Table, report: Report) -> None:
    """Write a copy of a table without repeated and empty rows; texts with several labels stay, and are not decided.

    A row is repeated if each of its texts and its label equal an earlier row's, but for white space at their ends and
    Unicode composition (NFC). Cells that are not read, such as numbers of rows, are not compared.
    """
    path, _ = part_of(table.path)
    out = path.with_name(f"{path.stem}.{COPY}{path.suffix}")
    with report.fixing(f"{out} is not written"):
        if not is_copied(table.path):
            raise InputError("copies are written of whole .csv, .tsv, .txt and .jsonl files alone")
        if not table.rows.classes:
            raise InputError(
                f"copies are written of rows with one class each; these are of the kind {table.rows.task.kind}"
            )
        rows, keys = table.rows.train, table.rows.keys
        cells = [[normalize("NFC", cell).strip() for cell in (*row.texts, row.label or "")] for row in rows]
        blank = {i for i, row in enumerate(rows) if not "".join(row.texts).strip()}
        again = {*repeated([*map(tuple, cells)])} - blank
        dropped = {rows[i].line for i in again | blank}
        if not dropped:
            raise InputError("no row is empty, and none equals an earlier one cell by cell")
        if out.exists() or out.is_symlink():
            raise InputError("a file of this name exists; move it away, so that --fix can write it")
        content = _without(path, dropped, table.columns.form.encoding)
        with atomic_write(out) as file:
            file.write(content)
        kept = f"{len(rows) - len(dropped):,} of {len(rows):,} rows"
        alike = {*repeated([(key, row.label) for row, key in zip(rows, keys, strict=True)])} - again - blank
        bare = {i for i, row in enumerate(rows) if row.is_bare} - again - blank
        left_out = _listed({"equal to an earlier row cell by cell": len(again), "without text": len(blank)})
        similar = {"with the words and the label of an earlier row": len(alike), "without a letter or digit": len(bare)}
        more = f"; kept: {listed}" if (listed := _listed(similar)) else ""
        report.fixed.append(f"wrote {out}, {kept}; left out: {left_out}{more}; {path.name} is as it was")


def is_copied(table: Path) -> bool:
    """Whether `copy_of_table` writes copies of such a file, if its rows have one class each."""
    path, part = part_of(table)
    return not part and ending_of(path) not in (".parquet", ".xlsx")


def _listed(counts: Mapping[str, int]) -> str:
    """Numbers of rows in words; what does not occur is left out."""
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def _without(path: Path, dropped: set[int], encoding: str) -> bytes:
    """The bytes of a table, in its encoding, without the rows that begin in these lines."""
    data = path.read_bytes()
    codec = _exact_codec(data, encoding)
    try:
        text = data.decode(codec)
        lines = re.findall(r"[^\n]*\n|[^\n]+$", text.removeprefix("\ufeff"))
        kept = "".join(_kept(lines, dropped, ending_of(path) == ".csv"))
        return ("\ufeff" * text.startswith("\ufeff") + kept).encode(codec)
    except (UnicodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from None


def _exact_codec(data: bytes, encoding: str) -> str:
    """The codec that keeps a byte order mark and the byte order, so that a copy has the same ones."""
    codec = codec_of(encoding)
    if codec in ("utf-16", "utf-32"):
        return codec + ("-be" if data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) else "-le")
    return "utf-8" if codec in UTF8 else codec


def _kept(lines: list[str], dropped: set[int], quoted: bool) -> Iterator[str]:
    """The lines of the rows that are not dropped. quoted: cells may contain line ends, as in .csv."""
    if not quoted:
        yield from (line for number, line in enumerate(lines, 1) if number not in dropped)
        return
    reader, start = csv.reader(lines, strict=True), 0
    while next_record(reader) is not None:
        if start + 1 not in dropped:
            yield from lines[start : reader.line_num]
        start = reader.line_num

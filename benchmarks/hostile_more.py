"""Further readers for hostile.py: exports, workbooks, texts to explain, settings of fine-tuned folders, odd arguments.

Some of them attack no file: their commands are odd themselves (`sound=False`, because no command is valid).
"""

import io
import json
import random
import re
import shlex
import zipfile
from typing import Any
from xml.sax.saxutils import escape

import mutations
from box import Files
from hostile_inputs import FEATURES, PREDICT, SMALL, Reader, finetuned

EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in an archive
PARTS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
    'ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/sharedStrings.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
    "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://'
    'schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="S" sheetId="1" r:id="rId1"/>'
    "</sheets></workbook>",
}
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
CELLS = [  # of a sheet, instead of a text
    '<c r="{0}"><v>1.5</v></c>', '<c r="{0}" t="b"><v>1</v></c>', '<c r="{0}" t="e"><v>#N/A</v></c>',
    '<c r="{0}"><f>A1</f></c>', '<c r="{0}" t="str"><f>A1</f><v></v></c>', '<c r="{0}" t="s"><v>99999</v></c>',
    '<c r="{0}" t="s"><v>-1</v></c>', '<c r="{0}" t="s"><v>x</v></c>', '<c r="{0}"><v>1e999</v></c>', '<c r="{0}"/>',
    '<c r="{0}" s="99"><v>43831</v></c>', '<c r="{0}" t="d"><v>2020-02-30</v></c>', '<c r="XFD99"><v>1</v></c>',
    '<c r="ZZZZ1"><v>1</v></c>', '<c r="{0}" t="odd"><v>1</v></c>', '<c t="inlineStr"><is><t>a</t></is></c>', "",
    '<c r="{0}" t="inlineStr"><is><t>_x0000_&#10;</t></is></c>', "<c><v>", "</row>", "&#0;",
]  # fmt: skip


def workbook(rows: list[list[str]], odd: dict[tuple[int, int], str], more: str = "") -> bytes:
    """An .xlsx file with one sheet of texts; `odd`: XML of single cells; `more`: behind the rows."""
    texts = [cell for row in rows for cell in row]
    lines = []
    for i, row in enumerate(rows):
        places = [f"{'ABCDEFGHIJ'[j]}{i + 1}" for j in range(len(row))]
        number = len(row) * i
        cells = (f'<c r="{place}" t="s"><v>{number + j}</v></c>' for j, place in enumerate(places))
        found = (odd[i, j].replace("{0}", places[j]) if (i, j) in odd else cell for j, cell in enumerate(cells))
        lines.append(f'<row r="{i + 1}">{"".join(found)}</row>')
    strings = "".join(f"<si><t>{escape(text)}</t></si>" for text in texts)
    parts = {
        **PARTS,
        "xl/sharedStrings.xml": f"<sst {MAIN}>{strings}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {MAIN}><sheetData>{''.join(lines)}</sheetData>{more}</worksheet>",
    }
    return zipped({name: text.encode() for name, text in parts.items()})


def zipped(parts: dict[str, bytes]) -> bytes:
    """An archive with the same bytes at any time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)
    return out.getvalue()


def odd_workbook(rng: random.Random, files: Files) -> Files:
    """A workbook with odd cells, merged ones, damaged parts or none; or a file of another kind with its name."""
    rows = [["text", "label"], *([f"good film {i}", ("good", "bad")[i % 2]] for i in range(8))]
    how = rng.random()
    if how < 0.5:
        odd = {(rng.randrange(9), rng.randrange(2)): rng.choice(CELLS) for _ in range(rng.choice((1, 1, 3)))}
        merged = rng.choice(("", "", '<mergeCells><mergeCell ref="A2:B3"/></mergeCells>', "<odd/>", "</worksheet>"))
        return {**files, "t.xlsx": workbook(rows, odd, merged)}
    if how < 0.8:
        with zipfile.ZipFile(io.BytesIO(workbook(rows, {}))) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice([*parts])
        parts[name] = mutations.mutate_bytes(rng, parts[name])
        if rng.random() < 0.3:
            del parts[name]
        return {**files, "t.xlsx": zipped(parts)}
    locked = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(5000)
    other = (b"", b"text,label\na,b\n", locked, workbook([], {}), workbook([[""]], {}), zipped({"a.txt": b"a"}))
    return {**files, "t.xlsx": rng.choice(other)}


def odd_task(rng: random.Random, files: Files) -> Files:
    """What config.json of the first model says of labels, thresholds and columns, changed; or that of another model."""
    name = "a/config.json"
    data = files[name]
    assert isinstance(data, bytes)
    whole = json.loads(data)
    part: dict[str, Any] = {key: whole.pop(key, None) for key in ("bertworks_task", "id2label", "problem_type")}
    if rng.random() < 0.4:
        part["problem_type"] = "multi_label_classification"
        part["bertworks_task"] |= {"kind": "multilabel", "thresholds": {"good": 0.4, rng.choice(("bad", "other")): 0.6}}
    part = mutations.mutate_tree(rng, part)
    return {**files, name: mutations.dump_json(rng, {**whole, **(part if isinstance(part, dict) else {})})}


def odd_card(rng: random.Random, files: Files) -> Files:
    """A card whose front matter is odd."""
    values = [*mutations.STRINGS, "[a, b]", "{a: 1}", "&a *a", "!!python/object:x", "- a\n- b", "|\n  a", "'", '"']
    keys = ("license", "base_model", "datasets", "model-index", "---", "")
    lines = [f"{rng.choice(keys)}: {rng.choice(values)}" for _ in range(rng.choice((1, 2, 9)))]
    text = rng.choice(("---\n", "", "--- \n", "\ufeff---\n")) + "\n".join(lines) + rng.choice(("\n---\n# a\n", ""))
    return {**files, "model/README.md": text.encode("utf-8", "surrogatepass")}


def without_card(rng: random.Random, files: Files) -> Files:
    """So that `doctor --fix` writes one from what is left."""
    return {name: data for name, data in files.items() if name != "run/model/README.md"}


TEXTS = [
    "", " ", "x" * 100_000, "word " * 20_000, "😀" * 300, "👩\u200d👧", "\x00", "a\x00b", "\ud800", "a\udfffb",
    "[MASK]" * 99, "[CLS] [SEP] [PAD]", "\u0301" * 2_000, "\u200b", "\n", "<script>alert(1)</script>", "a\u2028b",
    "한" * 3_000, "\ufffd",
]  # fmt: skip
GRIDS = [
    "", " ", "=", "a=", "=1", "optim.lr", "optim.lr=", "optim.lr=,", "optim.lr=1e-4,0.0001", "optim.lr=nan", "epochs=0",
    "optim.lr=1e400", "batch_size=0", "batch_size=99999999999999999999", "optim.lr=1 optim.lr=2", "optim=1", "loop=1",
    "loop.seed=1", "../x=1", "a..b=1", "optim.lr=../../x", "x" * 5_000, "a.b.c=1", "frozen=yes", "\ud800=1", "seeds=1",
    "loop.precision=float99", "patience=1", "dropout=2", "top.kind=x", "\x00=1", "épochs=1", "epochs=١",
]  # fmt: skip
WEIGHTS = ["missing=3", "good", "good=", "good=nan", "good=0", "=3", "good=1e7", "balanced good=2", "good=1 good=2"]
CODECS = [
    "utf-8", "cp949", "utf-16", "utf-32", "ascii", "latin-1", "johab", "cp037", "utf-7", "idna", "rot13", "hex", "zip",
    "", "x" * 999, "\x00", "../etc", "undefined", "mbcs", "\ud800", "UTF8", "shift_jis", "iso2022_kr", "big5hkscs",
]  # fmt: skip


def lines(form: str, values: list[str], **more: str) -> tuple[str, ...]:
    """A command for each value, quoted."""
    return tuple(form.format(shlex.quote(value), **more) for value in values)


SWEPT = finetuned("single.csv", "single.csv", "--max-seq-length 24 --sweep {}")
WEIGHED = finetuned("single.csv", "single.csv", f"{SMALL} --class-weights {{}}")
ENSEMBLE = "--model in/a in/b"
MORE = [
    Reader("frames", "model run-single=run", "^$", tuple(f"frames {i}" for i in range(100_000)), sound=False),
    Reader("export", "exported=ex text.txt", "^ex/", (PREDICT.format("text.txt").replace("/run", "/ex"),)),
    Reader("export-verified", "exported=ex", "^ex/", ("export --verify in/ex",)),
    Reader(
        "xlsx",
        "run-single=run single.csv=t.xlsx",
        "xlsx",
        (PREDICT.format("t.xlsx"), "doctor in/t.xlsx", "evaluate in/run --dev in/t.xlsx"),
        odd_workbook,
        sound=False,
    ),
    Reader("explain", "run-single=run", "^$", lines("explain in/run {} --out out/a.html", TEXTS), sound=False),
    Reader("explain-pair", "run-span=run", "^$", lines("explain in/run who {} --out out/a.json", TEXTS), sound=False),
    Reader("grids", "model single.csv", "^$", lines(SWEPT, GRIDS), sound=False),
    Reader("class-weights", "model single.csv", "^$", tuple(WEIGHED.format(one) for one in WEIGHTS), sound=False),
    Reader("encodings", "run-single=run single.csv", "csv", (
        *lines(f"{PREDICT.format('single.csv')} --encoding {{}}", CODECS),
        *lines("doctor in/single.csv --encoding {}", CODECS),
        *lines("tokenizer train in/single.csv --out out/t --input.format text --encoding {}", CODECS),
    ), sound=False),
    Reader(
        "ensemble",
        "run-single/model=a run-single/model=b text.txt single.csv",
        "^a/config",
        (f"predict in/text.txt {ENSEMBLE} --out out/p.jsonl", f"evaluate {ENSEMBLE} --dev in/single.csv"),
        odd_task,
    ),
    Reader(
        "thresholds",
        "run-single/model=a single.csv multilabel.csv",
        "^a/config",
        (
            "predict in/a in/single.csv --out out/p.csv --echo",
            "evaluate in/a --dev in/multilabel.csv --kind multilabel --label several --save-thresholds",
        ),
        odd_task,
        may_change=True,
        sound=False,
    ),
    Reader("card", "model single.csv", "README", (finetuned("single.csv", "single.csv"),), odd_card),
    Reader("track", "run-pretrain=run", "^run/(log|res|rec)", ("track in/run --out out/t",)),
    Reader("doctor-fix", "run-single=run", "^run/", ("doctor in/run --fix",), after=without_card, may_change=True),
    Reader("doctor-fix-table", "single.csv", "csv", ("doctor in/single.csv --fix",), may_change=True),
    Reader("doctor-study", "studied=s", "^s/", ("doctor in/s",)),
    Reader("doctor-export", "exported=ex", "^ex/", ("doctor in/ex",)),
    Reader("features-pooling", "pooling=model text.txt", "^model/", (FEATURES.format("model"),)),
]  # fmt: skip


def is_exported(reader: Reader) -> bool:
    """Whether a reader attacks the exported folder, which takes some time to make."""
    return bool(re.search(r"\bexported\b", reader.files))

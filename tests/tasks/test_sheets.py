"""Tables, column files and spreadsheets: encodings, sheets, merged cells."""

import datetime

import pytest

from bertworks.files import InputError
from bertworks.inference.file_inputs import Columns, read_inputs
from bertworks.tasks.kinds import own_task, read_rows
from bertworks.tasks.table import TableForm, read_table


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_tables(tmp_path, name, encoding):
    text = {"a.csv": '글,값\n"좋은, 영화",1\n', "a.tsv": "글\t값\n좋은, 영화\t1\n"}
    path = tmp_path / name
    path.write_bytes(text.get(name, '{"글": "좋은, 영화", "값": 1}\n').encode(encoding))
    task = own_task("single", ("글",), "값").__class__
    assert [row.values for row in read_table(path, ["글", "값"], form=TableForm(encoding))] == [["좋은, 영화", "1"]]
    rows = read_rows(task("table", ("글",), "값", form=TableForm(encoding)), path)
    assert [(row.text, row.label) for row in rows] == [("좋은, 영화", "1")]


def test_tagged_and_plain_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes("좋은\tO\n영화\tB-X\n\n".encode("cp949"))
    task = own_task("tagging", ("text",), "label").__class__
    (row,) = read_rows(task("table", kind="tagging", form=TableForm("cp949")), tmp_path / "a.txt")
    assert row.text == "좋은 영화" and row.tags == ("O", "B-X")
    items = read_inputs(str(tmp_path / "a.txt"), "single", Columns(form=TableForm("cp949")))
    assert [item.texts[0] for item in items] == ["좋은\tO", "영화\tB-X", ""]


@pytest.fixture
def book(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    made = openpyxl.Workbook()
    made.active.title = "자료"
    rows = (
        ("글", "값", "날"),
        ("좋은 영화", 1.0, datetime.datetime(2026, 1, 2)),
        (None, None, None),
        ("나쁜", 2.5, True),
    )
    for row in rows:
        made.active.append(row)
    made.save(tmp_path / "a.xlsx")
    made.create_sheet("다른").append(["글", "값"])
    made["다른"].append(["둘", "#N/A"])
    made["다른"]["B2"].data_type = "e"
    made.save(tmp_path / "two.xlsx")
    return tmp_path


def test_a_sheet(book):
    rows = list(read_table(book / "a.xlsx", ["글", "값", "날"]))
    assert rows == [(2, ["좋은 영화", "1", "2026-01-02"]), (4, ["나쁜", "2.5", "true"])]
    with pytest.raises(InputError, match="no column 'text'; found '글'"):
        list(read_table(book / "a.xlsx", ["text"]))


def test_which_sheet(book):
    with pytest.raises(InputError, match=r"two\.xlsx: sheets .*expected one; name the sheet to read"):
        list(read_table(book / "two.xlsx", ["글"]))
    with pytest.raises(InputError, match="sheets '자료', '다른'; expected one"):
        list(read_table(book / "two.xlsx", ["글"], form=TableForm(sheet="x")))
    assert len(list(read_table(book / "two.xlsx", ["글"], form=TableForm(sheet="자료")))) == 2
    (book / "locked.xlsx").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(4096))
    with pytest.raises(InputError, match=r"locked\.xlsx: not a readable \.xlsx file"):
        list(read_table(book / "locked.xlsx", ["글"]))
    assert list(read_table(book / "two.xlsx", ["글", "값"], form=TableForm(sheet="다른"))) == [(2, ["둘", ""])]  # #N/A


def test_damaged_sheets(book):
    whole = (book / "a.xlsx").read_bytes()
    at = whole.index(b"xl/worksheets/sheet1.xml")
    for content in (whole[:-300], whole[:at] + b"\0" * 400 + whole[at + 400 :], b"PK\x03\x04", b"no zip"):
        (book / "b.xlsx").write_bytes(content)
        with pytest.raises(InputError, match=r"b\.xlsx: not a readable \.xlsx file"):
            list(read_table(book / "b.xlsx", ["글"]))


def sheet_of(path, rows, *merged):
    """A workbook with these rows and merged ranges."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    book.save(path)
    return path


def test_merged_cells(tmp_path):
    rows = [["글", "값"], ["a", "x"], ["b", None], ["c", None], ["d", "y"]]
    found = read_rows(own_task("single", ("글",), "값"), sheet_of(tmp_path / "a.xlsx", rows, "B2:B4"))
    assert [(row.text, row.label, row.line) for row in found] == [*zip("abcd", "xxxy", range(2, 6), strict=True)]


def test_a_cell_far_away_is_refused(tmp_path):
    """The library would take memory for all cells before it, and end the process."""
    import openpyxl

    book = openpyxl.load_workbook(sheet_of(tmp_path / "a.xlsx", [["글", "값"], ["a", "x"]]))
    book.active["XFD1048576"] = "far"
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match="cell XFD1048576: expected at most 702 columns"):
        list(read_table(tmp_path / "a.xlsx", ["글"]))

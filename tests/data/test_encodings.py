"""Text that is not UTF-8: read where its encoding is declared, named where it is not; sheets of Excel."""

import codecs
import datetime

import pytest

from bertworks.cli import main
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.data.encodings import as_utf8, codec_of, hint, misread
from bertworks.files import InputError
from bertworks.inference.file_inputs import Columns, read_inputs
from bertworks.tasks.kinds import own_task, read_rows
from bertworks.tasks.table import TableForm, read_table
from bertworks.tokenizer import Tokenizer, TokenizerConfig

KOREAN = "똠방각하는 좋은 영화였다.\n펲시콜라를 마셨다. Ok.\n"  # two syllables that EUC-KR lacks and CP949 has
ENCODINGS = ["cp949", "utf-16", "utf-16-le", "utf-32", "johab"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_declared_text_becomes_the_same_documents(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(KOREAN.encode(encoding))
    (found,) = read_documents([path], InputOptions(encoding=encoding))
    assert found.text == KOREAN.strip()


def test_a_format_is_guessed_from_the_decoded_text(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_bytes(
        '<doc id="1" title="가">\n가\n\n본문은 여기에 있습니다, 길게도 말입니다\n</doc>\n'.encode("utf-16")
    )
    assert [one.text for one in read_documents([path], InputOptions(encoding="utf-16"))] == [
        "본문은 여기에 있습니다, 길게도 말입니다"
    ]


def test_characters_across_blocks_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    text = "가나다 " * 30_000
    path.write_bytes(text.encode("cp949"))
    with open(path, "rb") as file:
        assert as_utf8(file, "cp949", "a").read().decode() == text


def test_wrong_bytes_are_refused_by_line_or_repaired(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("가나.\n다라.\n".encode("cp949") + b"\xff\xff.\n")
    with pytest.raises(InputError, match=r"a\.txt, line 3: byte 0xff is not valid cp949"):
        list(read_documents([path], InputOptions(encoding="cp949")))
    (found,) = read_documents([path], InputOptions(encoding="cp949", invalid="repair"))
    assert found.text.startswith("가나.\n다라.\n\ufffd")
    path.write_bytes("가나.\n".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"a\.txt, line 1: .*not valid utf-16"):
        list(read_documents([path], InputOptions(encoding="utf-16")))


def test_a_wrong_declaration_names_the_encoding_of_the_file(tmp_path):
    path, korean = tmp_path / "a.csv", "본문,분류\n좋은 영화였다,긍정\n"
    for written, declared, advice in (
        ("utf-8", "cp949", "it looks like UTF-8: leave --encoding out, or convert .* if they have several"),
        ("utf-8", "utf-16", "it looks like UTF-8: leave --encoding out, or convert .* if they have several"),
        ("cp949", "utf-16", "give --encoding cp949"),
    ):
        path.write_bytes((korean * 40).encode(written))
        with pytest.raises(InputError, match=f"not valid {declared}.*; .*{advice}$"):
            list(read_table(path, ["본문"], form=TableForm(declared)))
    path = path.rename(tmp_path / "a.txt")
    path.write_bytes("가나.\n".encode("cp949") + b"\xff\xff.\n")
    with pytest.raises(InputError, match=r"line 2: byte 0xff is not valid cp949; .*, or set --input.invalid repair$"):
        list(read_documents([path], InputOptions(encoding="cp949")))


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("cp949", "cp949"), ("euc-kr", "cp949"), ("utf-16", "utf-16"), ("cp932", None), ("latin-1", None)],
)
def test_an_undeclared_encoding_is_named(tmp_path, encoding, named):
    text = {"cp932": "これは日本語のテキストです。", "latin-1": "Éléonore à la fête"}.get(encoding, "좋은 영화였다.")
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    expected = f"give --encoding {named}" if named else "give its --encoding|--encoding cp932"
    with pytest.raises(InputError, match=expected):
        list(read_documents([path]))
    path.rename(tmp_path / "a.csv")
    with pytest.raises(InputError, match=expected):
        list(read_table(tmp_path / "a.csv", ["text"]))


def test_hints():
    assert "cp932" in hint("これは日本語です".encode("cp932")) and "gb18030" in hint("这是中文句子".encode("gb18030"))
    assert "euc_jp" in hint("これは日本語です".encode("euc_jp")) and "utf-32" in hint("a".encode("utf-32"))
    assert hint("가나다라마바사".encode("cp949") * 5000).endswith("give --encoding cp949")  # cut inside a character


RUSSIAN = "Мама мыла раму, а папа читал газету и пил чай. Это было давно.\n" * 5


def test_text_of_another_encoding_than_the_declared_one_is_noticed():
    korean = "좋은 영화였다. 오늘은 날씨가 좋다.\n" * 5
    assert misread(korean.encode("cp949").decode("latin-1"), "latin-1").endswith(
        "read as latin-1; give --encoding cp949"
    )
    assert misread(korean.encode().decode("latin-1"), "iso8859-1").endswith("; give --encoding utf-8")
    assert misread(RUSSIAN.encode().decode("cp1251", "replace"), "cp1251").endswith("; give --encoding utf-8")
    french = "Éléonore était déjà à la fête où l'on goûtait des crêpes.\n" * 5
    assert {
        misread(text) for text in (korean, RUSSIAN, french, "これは日本語です。" * 9, "这是中文句子。" * 9, "")
    } == {""}
    assert [misread(korean, "cp949"), misread(french, "latin-1"), misread(RUSSIAN, "cp1251")] == ["", "", ""]


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "rot13", "", "idna", "unicode_escape", "utf7", "punycode"])
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(InputError, match="unknown; expected a text encoding"):
        codec_of(encoding)


def test_a_store_is_the_same_from_another_encoding(tmp_path, capsys):
    tokenizer = Tokenizer.train([KOREAN], TokenizerConfig(vocab_size=100))
    tokenizer.save(tmp_path / "tok")
    manifests = []
    for encoding in ("utf-8", "cp949"):
        folder = tmp_path / encoding
        folder.mkdir()
        for i in range(4):
            (folder / f"{i}.txt").write_bytes(f"{i} {KOREAN}".encode(encoding))
        config = BuildConfig(InputOptions(encoding=encoding), language="ko", workers=1, allow_unknown=True)
        manifests.append(build([folder], tokenizer, tmp_path / f"store-{encoding}", config, progress=False))
    assert manifests[0]["files"] == manifests[1]["files"]
    assert [one["settings"]["input"].get("encoding") for one in manifests] == [None, "cp949"]
    out, data = str(tmp_path / "by-flag"), str(tmp_path / "cp949")
    flags = ["--encoding", "euc_kr", "--workers", "1", "--allow-unknown"]
    with pytest.raises(SystemExit):  # two of its syllables are not in EUC-KR
        main(["corpus", "build", data, "--tokenizer", str(tmp_path / "tok"), "--out", out, *flags])
    assert "is not valid euc_kr" in capsys.readouterr().err


def test_training_a_vocabulary_warns_of_misread_text_and_names_the_encoding(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(("좋은 영화였다. 오늘은 날씨가 좋다.\n" * 50).encode("cp949"))
    line = ["tokenizer", "train", str(tmp_path / "a.txt"), "--vocab-size", "300", "--cased", "--out"]
    main([*line, str(tmp_path / "wrong"), "--encoding", "latin-1"])
    assert "warning: the text looks like CP949" in capsys.readouterr().err
    main([*line, str(tmp_path / "right"), "--encoding", "cp949", "--input.invalid", "repair"])
    printed = capsys.readouterr()
    assert "warning" not in printed.err
    following = printed.out.partition("bertworks ")[2]  # what it says comes next
    main(
        [
            *following.replace("TEXTS", str(tmp_path / "a.txt")).split(),
            "--encoding",
            "cp949",
            "--input.invalid",
            "repair",
        ]
    )
    assert capsys.readouterr().out.endswith("\nfits\n")


# ---- tables


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
    with pytest.raises(InputError, match=r"two\.xlsx: sheets .*expected one; name the sheet to read with --sheet"):
        list(read_table(book / "two.xlsx", ["글"]))
    with pytest.raises(InputError, match="no sheet 'x'; name one of them"):
        list(read_table(book / "two.xlsx", ["글"], form=TableForm(sheet="x")))
    assert len(list(read_table(book / "two.xlsx", ["글"], form=TableForm(sheet="자료")))) == 2
    (book / "locked.xlsx").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(4096))
    with pytest.raises(InputError, match=r"locked\.xlsx: not a readable \.xlsx file"):
        list(read_table(book / "locked.xlsx", ["글"]))
    with pytest.raises(InputError, match="sheet '다른', cell B2: the error #N/A"):
        list(read_table(book / "two.xlsx", ["글"], form=TableForm(sheet="다른")))


def test_a_formula_without_a_saved_value(book):
    import zipfile

    import openpyxl

    made = openpyxl.Workbook()
    made.active.append(["글", "값"])
    made.active.append(["둘", None])
    made.active.append(["셋", "=1+1"])
    made.save(book / "b.xlsx")
    with pytest.raises(InputError, match=r"b\.xlsx, sheet 'Sheet', cell B3: a formula without a saved value; open"):
        list(read_table(book / "b.xlsx", ["글"]))
    with zipfile.ZipFile(book / "b.xlsx") as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    saved = {"2": ('<c r="B3">', "<v>2</v>"), "": ('<c r="B3" t="str">', "<v></v>")}  # an empty text is a value
    for value, (cell, written) in saved.items():
        changed = parts[sheet].replace('<c r="B3">', cell).replace("<v />", written).replace("<v/>", written)
        changed = changed if written in changed else changed.replace("<v></v>", written)
        with zipfile.ZipFile(book / "c.xlsx", "w") as archive:
            for name, text in parts.items():
                archive.writestr(name, changed if name == sheet else text)
        assert [row.values for row in read_table(book / "c.xlsx", ["글", "값"])] == [["둘", ""], ["셋", value]]


def test_damaged_sheets(book):
    whole = (book / "a.xlsx").read_bytes()
    at = whole.index(b"xl/worksheets/sheet1.xml")
    for content in (whole[:-300], whole[:at] + b"\0" * 400 + whole[at + 400 :], b"PK\x03\x04", b"no zip"):
        (book / "b.xlsx").write_bytes(content)
        with pytest.raises(InputError, match=r"b\.xlsx: not a readable \.xlsx file"):
            list(read_table(book / "b.xlsx", ["글"]))


def test_a_missing_library_names_its_extra(book, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"pip install 'bertworks\[excel\]'"):
        list(read_table(book / "a.xlsx", ["글"]))


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(codecs.BOM_UTF16_LE + "text\nA.\n".encode("utf-16-le"))
    for encoding in ("utf-16", "utf-16-le"):
        assert [row.values for row in read_table(tmp_path / "a.csv", ["text"], form=TableForm(encoding))] == [["A."]]


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


def test_a_cell_that_is_merged_over_rows_is_the_value_of_each(tmp_path):
    rows = [["글", "값", None], ["a", "x"], ["b", None], ["c", None], ["d", "y"]]
    path = sheet_of(tmp_path / "a.xlsx", rows, "B1:C1", "B2:B4")
    found = read_rows(own_task("single", ("글",), "값"), path)
    assert [(row.line, row.label) for row in found] == [(2, "x"), (3, "x"), (4, "x"), (5, "y")]


def test_the_row_of_the_names_is_given(tmp_path):
    rows = [["제목"], [], ["글", "값"], ["a", "x"]]
    (tmp_path / "a.csv").write_text("제목,\n,\n글,값\na,x\n", "utf-8")
    for path in (sheet_of(tmp_path / "a.xlsx", rows), tmp_path / "a.csv"):
        with pytest.raises(InputError, match="no column '글'; found '제목'"):
            list(read_table(path, ["글"]))
        assert list(read_table(path, ["글", "값"], form=TableForm(header_row=3))) == [(4, ["a", "x"])]
    with pytest.raises(InputError, match="; --header-row gives another row"):
        list(read_table(tmp_path / "a.xlsx", ["글"]))


def test_a_sheet_of_open_document(tmp_path):
    import zipfile

    def row(*cells):
        each = (f'<table:table-cell office:value-type="string"><text:p>{c}</text:p></table:table-cell>' for c in cells)
        return f"<table:table-row>{''.join(each)}</table:table-row>"

    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    body = f'<table:table table:name="one">{row("text", "label")}{row("a", "x")}</table:table>'
    for name in ("spreadsheet", "body", "document-content"):
        body = f"<office:{name}{f' {names}' * (name == 'document-content')}>{body}</office:{name}>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr("content.xml", body)
    assert list(read_table(tmp_path / "a.ods", ["text", "label"])) == [(2, ["a", "x"])]


def test_a_cell_far_away_is_refused(tmp_path):
    """The library would take memory for all cells before it, and end the process."""
    import openpyxl

    book = openpyxl.load_workbook(sheet_of(tmp_path / "a.xlsx", [["글", "값"], ["a", "x"]]))
    book.active["XFD1048576"] = "far"
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(
        InputError, match="cells in 1,048,576 rows and 16,384 columns; expected at most 20,000,000 cells"
    ):
        list(read_table(tmp_path / "a.xlsx", ["글"]))

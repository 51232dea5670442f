"""Text that is not UTF-8: read where its encoding is declared, named where it is not."""

import pytest

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.data.encodings import codec_of
from bertworks.files import InputError
from bertworks.tasks.table import read_table
from bertworks.tokenizer import Tokenizer, TokenizerConfig

KOREAN = "똠방각하는 좋은 영화였다.\n펲시콜라를 마셨다. Ok.\n"  # two syllables that EUC-KR lacks and CP949 has
ENCODINGS = ["cp949", "utf-16", "utf-32"]


@pytest.mark.parametrize("text", [KOREAN, KOREAN * 3_000], ids=["short", "several blocks"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_declared_text_becomes_the_same_documents(tmp_path, encoding, text):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    (found,) = read_documents([path], InputOptions(encoding=encoding))
    assert found.text == text.strip()


def test_wrong_bytes_are_refused_by_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("가나.\n다라.\n".encode("cp949") + b"\xff\xff.\n")
    with pytest.raises(InputError, match=r"a\.txt, line 3: not valid cp949 .*byte 0xff"):
        list(read_documents([path], InputOptions(encoding="cp949")))
    path.write_bytes("가나.\n".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"a\.txt, line 1: .*not valid utf-16"):
        list(read_documents([path], InputOptions(encoding="utf-16")))


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("cp949", "cp949"), ("euc-kr", "cp949"), ("utf-16", "utf-16"), ("cp932", None), ("latin-1", None)],
)
def test_an_undeclared_encoding_is_named(tmp_path, encoding, named):
    text = {"cp932": "これは日本語のテキストです。", "latin-1": "Éléonore à la fête"}.get(encoding, "좋은 영화였다.")
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    expected = f"give the encoding {named}" if named else "give its encoding|the encoding cp932"
    with pytest.raises(InputError, match=expected):
        list(read_documents([path]))
    path.rename(tmp_path / "a.csv")
    with pytest.raises(InputError, match=expected):
        list(read_table(tmp_path / "a.csv", ["text"]))


@pytest.mark.parametrize("encoding", ["nonsense", "base64", ""])
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(InputError, match="unknown; expected a text encoding"):
        codec_of(encoding)


def test_a_store_is_the_same_from_another_encoding(tmp_path):
    tokenizer = Tokenizer.train([KOREAN], TokenizerConfig(vocab_size=100))
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

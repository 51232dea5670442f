"""Lines of UTF-8 text, and the likely encoding of bytes that are not UTF-8, by decoding them on trial, for messages."""

import codecs
from pathlib import Path

from .files import READ_BYTES, InputError, read_bytes

SAMPLE = 1 << 14  # bytes that are decoded on trial
LEAST = 0.8  # fraction of the characters beyond ASCII that must be of the scripts of an encoding's languages
_CANDIDATES = (  # the first that fits is named: the codec, its description, and its scripts as ranges of characters
    ("cp949", "CP949 (EUC-KR, Korean Windows)", (("가", "힣"), ("ㄱ", "ㅣ"))),
    ("cp932", "Shift-JIS (Japanese Windows)", (("぀", "ヿ"), ("一", "鿿"), ("、", "〟"))),
    ("gb18030", "GB18030 (GBK, simplified Chinese)", (("一", "鿿"), ("、", "〟"), ("！", "～"))),
    ("euc_jp", "EUC-JP", (("぀", "ヿ"), ("一", "鿿"), ("、", "〟"))),
)


def likely_encoding(raw: bytes) -> tuple[str, str] | None:
    """The codec and the description of the encoding that bytes look like; None if it is none of those above."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", "UTF-16"
    sample = raw[:SAMPLE]
    for codec, name, scripts in _CANDIDATES:
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample, final=len(raw) <= SAMPLE)
        except UnicodeDecodeError:
            continue
        beyond = [character for character in text if character > "\x7f"]
        fitting = sum(any(low <= character <= high for low, high in scripts) for character in beyond)
        if beyond and fitting >= LEAST * len(beyond):
            return codec, name
    return None


def read_lines(path: Path | str, expected: str, limit: int = READ_BYTES) -> list[str]:
    """The lines of a UTF-8 file, split at newlines alone; what follows the last newline is one more if it is not empty.

    Raises InputError, which says what was `expected`, if the file is missing, larger than `limit` bytes, or not UTF-8.
    """
    data = read_bytes(path, expected, limit)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.rfind(b"\n", 0, error.start) + 1
        likely = likely_encoding(data[line : line + SAMPLE])
        looks = f"; it looks like {likely[1]}: save it as UTF-8" if likely else ""
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected {expected}{looks}") from None
    return lines if lines[-1] else lines[:-1]

"""Text that is not UTF-8: read as what a user declares, and its likely encoding named where nothing is declared.

Nothing is guessed silently: `hint` only completes a message.
"""

import codecs
import contextlib
import io
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, BinaryIO

from ..files import InputError, shorten

UTF8 = ("utf-8", "utf-8-sig")
# codecs of names, literals and mail that Python counts as text encodings: their text is not that of a file
NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
BLOCK = 1 << 16
SAMPLE = 1 << 14  # bytes of a line that are decoded on trial
DENSE = 0.3  # share of the characters beyond ASCII that text of the Latin script does not reach
LEAST = 0.8  # share of the characters beyond ASCII that must be of the scripts of an encoding's languages
CANDIDATES = (  # the first that fits is named: the codec, its description, and its scripts as ranges of characters
    ("cp949", "CP949 (EUC-KR, Korean Windows)", (("가", "힣"), ("ㄱ", "ㅣ"))),
    ("cp932", "Shift-JIS (Japanese Windows)", (("぀", "ヿ"), ("一", "鿿"), ("、", "〟"))),
    ("gb18030", "GB18030 (GBK, simplified Chinese)", (("一", "鿿"), ("、", "〟"), ("！", "～"))),
    ("euc_jp", "EUC-JP", (("぀", "ヿ"), ("一", "鿿"), ("、", "〟"))),
)


def codec_of(encoding: str) -> str:
    """Python's name of a text encoding. Raises InputError if it knows none of this name."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        found = None
    named = found is not None and found.name.replace("_", "-") in NOT_OF_FILES
    if found is None or named or not found._is_text_encoding or found.incrementaldecoder is None:
        advice = "expected a text encoding of Python, such as utf-8, cp949, euc-kr or utf-16"
        raise InputError(f"--encoding {shorten(encoding)}: unknown; {advice}")
    return found.name


def hint(raw: bytes) -> str:
    """What to do about bytes that are not UTF-8: the encoding that they look like, by decoding them on trial."""
    if raw[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return "it looks like UTF-32: give --encoding utf-32"
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "it looks like UTF-16: give --encoding utf-16"
    found = likely(raw)
    return f"it looks like {found[1]}: give --encoding {found[0]}" if found else "give its --encoding if you know it"


def likely(raw: bytes) -> tuple[str, str] | None:
    """The codec and description of the encoding that bytes look like, by decoding them on trial."""
    sample = raw[:SAMPLE]
    for codec, name, scripts in CANDIDATES:
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample, final=len(raw) <= SAMPLE)
        except UnicodeDecodeError:
            continue
        beyond = [character for character in text if character > "\x7f"]
        fitting = sum(any(low <= character <= high for low, high in scripts) for character in beyond)
        if beyond and fitting >= LEAST * len(beyond):
            return codec, name
    return None


def misread(text: str, encoding: str = "utf-8") -> str:
    """A warning if text, read as `encoding`, looks like that of another one; "" if it looks right.

    An encoding that has a character for every byte (latin-1) never fails, and text may have been saved misread.
    """
    lines = text.split("\n")
    shown = "".join("".join(lines).split())
    if sum(character > "\x7f" for character in shown) < DENSE * len(shown) or not shown:
        return ""
    for codec in dict.fromkeys([*([encoding] if encoding not in UTF8 else []), "cp1252", "latin-1"]):
        raw = b"\n".join(_bytes_of(lines, codec))
        if not raw or len(raw) < DENSE * len(text):  # few lines have characters of this encoding alone
            continue
        try:
            raw.decode("utf-8")
            found = ("utf-8", "UTF-8")
        except UnicodeDecodeError:
            guess = likely(raw)
            if guess is None:
                continue
            found = guess
        if codec_of(found[0]) == codec_of(codec):
            return ""
        advice = "save it again from its source" if encoding in UTF8 else f"give --encoding {found[0]}"
        return f"the text looks like {found[1]} that was read as {codec}; {advice}"
    return ""


def is_mojibake(text: str) -> bool:
    """Whether there are characters in it that are the bytes of UTF-8 text in Windows-1252 or latin-1."""
    for word in re.findall(r"[^\x00-\x7f]{2,}", text):
        for codec in ("cp1252", "latin-1"):
            with contextlib.suppress(UnicodeError):
                read = word.encode(codec).decode("utf-8")
                if all(unicodedata.category(char)[0] in "LMNPSZ" for char in read):
                    return True
    return False


def _bytes_of(lines: list[str], codec: str) -> Iterator[bytes]:
    """The bytes of those lines that the encoding has."""
    for line in lines:
        with contextlib.suppress(UnicodeError):
            yield line.encode(codec)


def as_utf8(
    stream: BinaryIO | Any, encoding: str, name: str, repair: bool = False, remedy: str = ""
) -> io.BufferedReader:
    """A stream of the same text in UTF-8. Reading raises InputError at bytes that the encoding does not have.

    repair: such bytes become U+FFFD instead. name: the file's, for the message. remedy: what else a user can do.
    """
    reader: io.BufferedReader = io.BufferedReader(_Recoded(stream, encoding, name, repair, remedy), BLOCK)
    return reader


def _advice(raw: bytes, remedy: str) -> str:
    """What to do about bytes that are not of the encoding that was declared. remedy: where they are just damaged."""
    if raw[:3] == codecs.BOM_UTF8 or _is_utf8(raw):
        return "it looks like UTF-8: leave --encoding out, or convert all files to one encoding if they have several"
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or likely(raw):
        return hint(raw)
    return f"give the --encoding that the file has, or mend the file{remedy}"


def _is_utf8(raw: bytes) -> bool:
    """Whether bytes are text in UTF-8 with more than ASCII in it; the last character may be cut."""
    try:
        return not codecs.getincrementaldecoder("utf-8")().decode(raw).isascii()
    except UnicodeDecodeError:
        return False


class _Recoded(io.RawIOBase):
    """The raw stream of `as_utf8`."""

    def __init__(self, stream: Any, encoding: str, name: str, repair: bool, remedy: str) -> None:
        self.stream, self.encoding, self.name, self.remedy = stream, codec_of(encoding), name, remedy
        self.decoder = codecs.getincrementaldecoder(self.encoding)("replace" if repair else "strict")
        self.ready, self.lines, self.ended = memoryview(b""), 1, False

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self.ready and not self.ended:
            block = self.stream.read(BLOCK)
            self.ended = not block
            self.ready = memoryview(self._decoded(block).encode("utf-8", "surrogatepass"))
        count = min(len(target), len(self.ready))
        target[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count

    def _decoded(self, block: bytes) -> str:
        try:
            text = self.decoder.decode(block, self.ended)
        except UnicodeError as error:
            before, byte = "", ""
            if isinstance(error, UnicodeDecodeError):
                before = error.object[: error.start].decode(self.encoding, "replace")
                byte = f"byte 0x{error.object[error.start]:02x} " if error.start < len(error.object) else ""
            where = f"{self.name}, line {self.lines + before.count(chr(10))}"
            found = f"{byte}is not valid {self.encoding}" if byte else f"not valid {self.encoding} ({error})"
            raw = error.object if isinstance(error, UnicodeDecodeError) else block
            raise InputError(f"{where}: {found}; {_advice(raw, self.remedy)}") from None
        self.lines += text.count("\n")
        return text

"""Text that is not UTF-8, read in the encoding that its user declares; `hint` completes messages about other text."""

import codecs
import contextlib
import io
from typing import Any, BinaryIO

from ..encodings import likely_encoding
from ..files import InputError, shorten

UTF8 = ("utf-8", "utf-8-sig")
# codecs of names, literals and mail that Python counts as text encodings: their text is not that of a file
NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
BLOCK = 1 << 16
MISREAD = 0.3  # fraction of the characters beyond ASCII that text of the Latin script does not reach


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
    """What to do about bytes that are not UTF-8."""
    likely = likely_encoding(raw)
    return f"it looks like {likely[1]}: give --encoding {likely[0]}" if likely else "give its --encoding if you know it"


def misread(text: str, encoding: str = "utf-8") -> str:
    """A warning if text that was read as `encoding` looks like that of another one; "" if it looks right.

    An encoding that has a character for every byte (latin-1) never fails.
    """
    shown = "".join(text.split())
    if encoding in UTF8 or sum(character > "\x7f" for character in shown) < max(1, MISREAD * len(shown)):
        return ""
    raw = text.encode(encoding, "ignore")
    likely = ("utf-8", "UTF-8") if _is_utf8(raw) else likely_encoding(raw)
    if likely is None or codec_of(likely[0]) == codec_of(encoding):
        return ""
    return f"the text looks like {likely[1]} that was read as {encoding}; give --encoding {likely[0]}"


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
    if raw.startswith(codecs.BOM_UTF8) or _is_utf8(raw):
        return "it looks like UTF-8: leave --encoding out, or convert all files to one encoding if they have several"
    return hint(raw) if likely_encoding(raw) else f"give the --encoding that the file has, or mend the file{remedy}"


def _is_utf8(raw: bytes) -> bool:
    """Whether bytes are text in UTF-8 with more than ASCII in it; the last character may be cut."""
    with contextlib.suppress(UnicodeDecodeError):
        return not codecs.getincrementaldecoder("utf-8")().decode(raw).isascii()
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
            before, byte, raw = "", "", block
            if isinstance(error, UnicodeDecodeError):
                raw = error.object
                before = raw[: error.start].decode(self.encoding, "replace")
                byte = f"byte 0x{raw[error.start]:02x} is " if error.start < len(raw) else ""
            where = f"{self.name}, line {self.lines + before.count(chr(10))}"
            reason = "" if byte else f" ({error})"
            advice = _advice(raw, self.remedy)
            raise InputError(f"{where}: {byte}not valid {self.encoding}{reason}; {advice}") from None
        self.lines += text.count("\n")
        return text

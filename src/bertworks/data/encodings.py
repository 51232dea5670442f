"""Text that is not UTF-8, read in the encoding that its user declares; `hint` completes messages about other text."""

import codecs
import contextlib
import io
from typing import Any, BinaryIO

from ..encodings import likely_encoding
from ..files import InputError, shorten

UTF8 = ("utf-8", "utf-8-sig")
BLOCK = 1 << 16


def codec_of(encoding: str) -> str:
    """Python's name of a text encoding. Raises InputError if it knows none of this name."""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(encoding)
        if codec._is_text_encoding and codec.incrementaldecoder:
            return codec.name
    advice = "expected a text encoding of Python, such as utf-8, cp949, euc-kr or utf-16"
    raise InputError(f"encoding {shorten(encoding)}: unknown; {advice}")


def hint(raw: bytes) -> str:
    """What to do about bytes that are not UTF-8."""
    likely = likely_encoding(raw)
    return f"it looks like {likely[1]}: give the encoding {likely[0]}" if likely else "give its encoding if you know it"


def as_utf8(stream: BinaryIO | Any, encoding: str, name: str) -> io.BufferedReader:
    """A stream of the same text in UTF-8. Reading raises InputError at bytes that the encoding does not have.

    name: the file's, for the message.
    """
    return io.BufferedReader(_Recoded(stream, encoding, name), BLOCK)  # type: ignore[type-var]


class _Recoded(io.RawIOBase):
    """The raw stream of `as_utf8`."""

    def __init__(self, stream: Any, encoding: str, name: str) -> None:
        self.stream, self.encoding, self.name = stream, codec_of(encoding), name
        self.decoder = codecs.getincrementaldecoder(self.encoding)()
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
            before, raw = "", block
            if isinstance(error, UnicodeDecodeError):
                raw = error.object
                before = raw[: error.start].decode(self.encoding, "replace")
            where = f"{self.name}, line {self.lines + before.count(chr(10))}"
            raise InputError(f"{where}: not valid {self.encoding} ({error}); {self._advice(raw)}") from None
        self.lines += text.count("\n")
        return text

    def _advice(self, raw: bytes) -> str:
        with contextlib.suppress(UnicodeDecodeError):
            if not codecs.getincrementaldecoder("utf-8")().decode(raw).isascii():  # the last character may be cut
                return "it looks like UTF-8: leave the encoding out, or convert all files to one encoding"
        if likely_encoding(raw):
            return hint(raw)
        return f"mend the file, or remove what is not {self.encoding} with `iconv -c -f {self.encoding} -t utf-8`"

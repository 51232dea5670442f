"""The likely encoding of bytes that are not UTF-8, by decoding them on trial. It is used in messages only."""

import codecs

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

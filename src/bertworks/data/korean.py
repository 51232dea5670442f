"""Korean paragraphs -> sentences, by the rules below.

1. A sentence ends after . ! ? … (or two and more ; or three and more ,), with the closing quotes, brackets, laughter
   and faces (ㅋㅋ, ㅠㅠ, ^^, ㅡㅡ, :)) behind it, if white space follows; or if Hangul follows directly and Hangul is
   before it.
2. It does not end inside a pair of quotes or brackets; nor where a quotation is continued (고, 라고, 라는, 며, ...);
   nor after the numbers of a date or a list (1. 2. 3., 가. 나. 다.), between digits, after an initial or a common Latin
   abbreviation.
3. It ends without a mark after an ending that hardly anything but a verb has, if white space follows: ㅂ니다, ㅂ니까,
   ㅆ다, ㄴ다, 아니다, 같다, 네요, 어요, 죠, ㅆ음, 없음, ..., unless the next word continues it (다 보니, 다 해도).
   After ㅂ니다 also where Hangul follows directly, and after laughter.

`benchmarks/korean_sentences.py` measures them on manually split sentences.
"""

import itertools
import re
from collections.abc import Iterator

RULES_VERSION = 2  # in a store's manifest; it grows with each change of the cuts


def _with_final(final: int) -> str:
    """A class of the Hangul syllables with this final consonant, counted as in Unicode (4: ㄴ, 17: ㅂ, 20: ㅆ)."""
    return "[" + "".join(chr(first + final) for first in range(0xAC00, 0xD7A4, 28)) + "]"


_N, _B, _SS = _with_final(4), _with_final(17), _with_final(20)
_HANGUL = "[가-힣]"
_LAUGHTER = r"(?:[ㅋㅎㅠㅜㅉㄲᄏᄒ]{2,}|\^\^+)"
_FACE = r"(?:[:;=]-?[()DPp]+|ㅡㅡ+;*|-_+-;*|ㅡ[._]ㅡ;*|\^[._]\^)"
_TAIL = rf"(?: ?(?:[ㅋㅎㅠㅜㅉㄲᄏᄒ]+|\^\^+|{_FACE})(?![^ 가-힣]))?"
_CLOSING = r"[\"'”’»」』〉》】)\]}]*"
_QUOTED_ON = re.compile(
    r" ?(?:이?라[고는며던]|이?라면서|이?란|하[고며는였더]|하면서|했|한다|고|는|며|면서)(?![가-힣]{4})"
)
_CONTINUED = (
    r"(?:보니|보면|보[니면]|하더라|해도|해서|하여|하[고며는면니]|한들|한다|했다|합니다|하였|치[고더]|"
    r"싶|못|말[고았]|고|는|며|면)"
)
_ABBREVIATION = re.compile(
    r"\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|vs|No|Vol|cf|Co|Inc|Ltd|Corp|[A-Za-z]\.[A-Za-z])$"
)
_LAST = re.compile(
    r"[.!?…。！？]|;;|,,,|[ㅋㅎㅠㅜㅉㄲᄏᄒ]{2}|\^\^|[:;=]-?[()DPp]|ㅡ[ㅡ._]|-_|\^[._]|(?:다|요|죠|음|까)(?=[ 가-힣])"
)
"""Where _STOP is tried: the rest of a text is passed over at the speed of a search for single characters."""
_STOP = re.compile(
    rf"(?P<mark>[.!?…。！？]+~*|;;+|,,,+)(?P<close>{_CLOSING}){_TAIL}"
    rf"|(?<=[가-힣.?!]){_LAUGHTER}(?= |{_HANGUL})|(?<={_HANGUL}){_FACE}(?= )"
    rf"|(?:(?<={_B}니)[다까]|(?<={_SS}|{_N}|[같없좋])다|(?<=아니)다|(?<=(?:것|거|뿐|중)이)다"
    rf"|(?:(?<=[어아해네세에예나군까대래워])|(?<=거든)|(?<=[는은]데))요|죠|(?<={_SS}|[없같좋싫많])음)"
    rf"(?= (?!{_CONTINUED})|(?<=니다)(?![고는며면만가라니오거])(?={_HANGUL})){_TAIL}"
)
_SPAN = re.compile(
    r"\"[^\"]{1,300}\"|“[^”]{1,300}”|‘[^’]{1,200}’|(?<!\w)'[^']{1,200}'|「[^」]{1,200}」|『[^』]{1,200}』"
    r"|《[^》]{1,200}》|\([^()]{1,300}\)|\[[^\[\]]{1,300}\]"
)
_LETTERS = "가나다라마바사아자차카타파하"  # that count the items of a list
_ITEM = re.compile(rf"(?:^|[\s(])(\d{{1,3}}|[{_LETTERS}])$")
_NUMBER = re.compile(r"(?:^|[\s(])\d{1,4}$")
_OF_DATE, _AFTER_DATE = re.compile(r" \d"), re.compile(r"\d\. ?\d+$")
_HANGUL_FIRST, _HANGUL_LAST = re.compile(_HANGUL), re.compile(rf"{_HANGUL}$")


def korean_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, in order; joined they are the paragraph."""
    starts = [0, *_starts(paragraph), len(paragraph)]
    return [paragraph[start:stop] for start, stop in itertools.pairwise(starts) if start < stop]


def _starts(text: str) -> Iterator[int]:
    """The offsets at which a sentence after the first one begins."""
    nowhere = (len(text), len(text))
    spans = iter([match.span() for match in _SPAN.finditer(text)])
    start, stop = next(spans, nowhere)
    begin = 0
    for match in _stops(text):
        end = match.end()
        while stop <= match.start():
            start, stop = next(spans, nowhere)
        # A bracket that begins inside a sentence belongs to it to its end; a quotation may end the sentence.
        inside = start < match.start() < stop and (end < stop or (text[start] in "([" and start > begin))
        if inside or not _is_end(text, match, begin):
            continue
        begin = end + (text[end : end + 1] == " ")
        if begin < len(text):
            yield begin


def _stops(text: str) -> Iterator[re.Match[str]]:
    """Every mark and ending that may end a sentence."""
    end = 0
    while candidate := _LAST.search(text, end):
        match = _STOP.match(text, candidate.start())
        if match:
            yield match
        end = match.end() if match else candidate.start() + 1


def _is_end(text: str, match: re.Match[str], begin: int) -> bool:
    """Whether the mark or ending that was found ends the sentence that begins at `begin`."""
    if not match["mark"]:
        return True
    following = text[match.end() : match.end() + 12]
    before = text[max(begin, match.start() - 40) : match.start()]  # so short that a long text takes no longer
    if _QUOTED_ON.match(following) and (match["close"] or match["mark"][0] in "?!"):
        return False
    if not following.startswith(" "):
        return bool(_HANGUL_FIRST.match(following) and _HANGUL_LAST.search(before) and not match["close"])
    if match["mark"] != "." or match["close"]:
        return True
    if (item := _ITEM.search(before)) and _is_item(text, match, item[1]):
        return False
    if _NUMBER.search(before):
        of_list = before.isdigit() and match.start() - begin == len(before)  # "1. ..." begins a sentence
        return not of_list and not _OF_DATE.match(following) and not _AFTER_DATE.search(before)
    return not _ABBREVIATION.search(before)


def _is_item(text: str, match: re.Match[str], number: str) -> bool:
    """Whether the item of a list before this one or after it is near."""
    if number.isdigit():
        before, after = str(int(number) - 1), str(int(number) + 1)
    else:
        place = _LETTERS.index(number)
        before, after = _LETTERS[place - 1 : place], _LETTERS[place + 1 : place + 2]
    near = text[max(0, match.start() - 200) : match.start()], text[match.end() : match.end() + 200]
    return any(
        one and re.search(rf"(?:^|[\s(]){one}\. ", stretch) for one, stretch in zip((before, after), near, strict=True)
    )

"""From a docstring's markup to paragraphs of prose, in which the words that the markup set apart can be marked."""

import inspect
import re
from collections.abc import Collection

# Characters of Unicode's private use, which no text has. Between a mark and END is a parameter's name, or other code.
PARAMETER, CODE, END = "\ue000", "\ue001", "\ue002"
MARKS = re.compile(f"[{PARAMETER}{CODE}{END}]")

RULE = re.compile(r"([=\-~^*+#\"'.:])\1{2,}$")  # underlines a heading
SKIP_BLOCK = re.compile(r"\.\. (?!note|warning|important|tip|seealso|hint|caution|deprecated|version)|@\w+\(|.*::$")
DIRECTIVE = re.compile(r"\.\. \w+::\s*(?:v?\d[\d.]*)?\s*")
FIELD = re.compile(r":\w+[^:`]*:\s+|@\w+ \w+:?\s+")  # :param x: text
NUMPY_HEAD = re.compile(r"[\w*`][\w*`.,\s/-]{0,60}\s:(\s.{0,90})?$")  # x : array_like, optional
GOOGLE_HEAD = re.compile(r"[-*]?\s*[`*]{0,2}[A-Za-z_][\w.`*]*(\s*\([^)]*\))?\s*:\s+")  # x (int, optional): text
HEADING = re.compile(r"[A-Z]\w*( \w+)?:{1,2}$")  # Returns:
BULLET = re.compile(r"([-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")  # of Markdown
CODE_WORD = re.compile(r"(?::[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^>]*>)?`)|`+([^`]*?)`+(_*)")  # :func:`~a.b`, ``x``, link_
EMPHASIS = re.compile(r"(?<!\w)\*{1,2}(\w[^*]*)\*{1,2}(?!\w)")
NOISE = re.compile(r"<?https?://\S+|\[\d+\]_?|</?\w+[^>]*>")  # addresses, footnotes, tags of HTML


def clean(docstring: str, parameters: Collection[str] = ()) -> list[str]:
    """The paragraphs of prose in a docstring; may be empty.

    Words that its markup sets apart are between marks: PARAMETER or CODE, and END. `parameters`: names of those that
    the documented function has.
    """
    out: list[str] = []
    open_lines: list[str] = []
    depth, skipping, doctest = 0, -1, False

    def flush() -> None:
        text = marked(" ".join(open_lines), parameters)
        if is_prose(unmarked(text)):
            out.append(text)
        open_lines.clear()

    for raw in inspect.cleandoc(docstring).splitlines():
        line, indent = raw.strip(), len(raw) - len(raw.lstrip())
        doctest = bool(line) and (doctest or line.startswith((">>>", "In [", "```", "$ ")))
        if not line or doctest or (skipping >= 0 and indent > skipping):
            flush()
            continue
        skipping = indent if SKIP_BLOCK.match(line) else -1
        if RULE.match(line):
            open_lines.clear()  # the heading above it
            continue
        if indent != depth or starts_anew(line):
            flush()
        depth = indent
        if not is_furniture(line):
            open_lines.append(text_of(line))
    flush()
    return out


def starts_anew(line: str) -> bool:
    """Whether a paragraph ends before this line without a blank line."""
    return any(pattern.match(line) for pattern in (BULLET, FIELD, DIRECTIVE, NUMPY_HEAD, HEADING, GOOGLE_HEAD))


def is_furniture(line: str) -> bool:
    """Whether a line is no text: tables, headings, heads of parameters, directives with a block of their own."""
    if line.startswith(("|", "+-", "+=", "..", "@")):
        return not DIRECTIVE.match(line) or bool(SKIP_BLOCK.match(line))
    return bool(HEADING.match(line) or (NUMPY_HEAD.match(line) and not line.endswith(".")))


def text_of(line: str) -> str:
    """The line without the mark that it begins with (bullet, field, parameter name)."""
    for pattern in (DIRECTIVE, FIELD, BULLET, GOOGLE_HEAD):
        line = pattern.sub("", line, count=1) if pattern.match(line) else line
    return line


def marked(text: str, parameters: Collection[str]) -> str:
    """Text without inline markup and addresses, with marks around what was set in code or names a parameter."""

    def in_code(match: re.Match[str]) -> str:
        inner = match[1] if match[1] is not None else match[2]
        if match[3] or not inner.strip():  # a link
            return inner
        return f"{PARAMETER if inner in parameters else CODE}{inner}{END}"

    def emphasised(match: re.Match[str]) -> str:
        return f"{PARAMETER}{match[1]}{END}" if match[1] in parameters else match[1]

    text = EMPHASIS.sub(emphasised, CODE_WORD.sub(in_code, LINK.sub(r"\1", text)))
    return " ".join(NOISE.sub("", text).split()).replace("::", ":")


def unmarked(text: str) -> str:
    """The same text without the marks."""
    return MARKS.sub("", text)


def is_prose(text: str) -> bool:
    """Whether a paragraph reads as English: five words or more, nearly all letters, no formulas or code."""
    if text.count(" ") < 4 or any(mark in text for mark in ("\\", "{", "}", "$", "|", "->", "==", "\ufffd")):
        return False
    letters = sum(character.isalpha() or character == " " for character in text)
    return letters > 0.88 * len(text) and text.isascii() and text.isprintable() and text[0].isalpha()

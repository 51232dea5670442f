"""Classes of characters in Unicode 14.0, as ranges of code points in hexadecimal (unicode14.toml).

The recorded outputs of the original code are those of Unicode 14. The classes are stored there, because `unicodedata`
has another version of Unicode in each version of Python, and the `tokenizers` library has older tables: ids must not
depend on either. tests/tokenizer/test_tokenizer.py makes the classes again where Python has Unicode 14, and compares.
"""

import tomllib
from pathlib import Path

_CLASSES = tomllib.loads(Path(__file__).with_name("unicode14.toml").read_text(encoding="utf-8"))

CONTROL: str = _CLASSES["control"]
NONSPACING_MARK: str = _CLASSES["nonspacing_mark"]
PUNCTUATION: str = _CLASSES["punctuation"]
CASED: str = _CLASSES["cased"]
CASE_IGNORABLE: str = _CLASSES["case_ignorable"]

"""The settings of a build: the flags of `bertworks corpus build`."""

from dataclasses import dataclass, field

from ..files import InputError
from .languages import check_language
from .manifest import flag_of
from .near_duplicates import GREATEST, LEAST
from .parsers import InputOptions
from .sentences import Splitter


@dataclass(frozen=True)
class BuildConfig:
    """Settings of a corpus build."""

    input: InputOptions = field(default_factory=InputOptions)
    """how files become documents"""
    language: str = "en"
    """language of the text, for finding sentences (ISO code: en, ko, de, ...)"""
    splitter: Splitter = "auto"
    """how text is split into sentences. auto: rules for the language; line: each line of the text is a sentence"""
    validation_share: float = 0.005
    """fraction of the documents held out, chosen by their hash; 0 holds out none"""
    min_validation_documents: int = 2
    """hold out at least this many documents (a random next sentence needs a second document)"""
    max_sentence_tokens: int = 1024
    """cut longer sentences (tables, text without full stops) into parts of this many tokens"""
    shard_tokens: int = 1 << 26
    """approximate number of tokens per shard; every worker process has one shard in memory while it writes it"""
    # leave out near-duplicates: documents with at least this estimated Jaccard similarity (of five tokens in a row) to
    # another one, 0.8 for example; 0: keep them
    near_duplicates: float = 0.0
    workers: int = 0
    """worker processes; 0: one per available core. The result does not depend on it"""
    # build on a dask cluster: address of its scheduler (tcp://host:8786), or "local" for a new one on this machine;
    # none: no dask. Needs the extra `cluster` and a disk that all workers share. The result does not depend on it
    scheduler: str = ""
    allow_unknown: bool = False
    """build the store even if more than half of its tokens are [UNK], because the vocabulary does not fit the text"""

    def __post_init__(self) -> None:
        check_language(self.language)
        if self.splitter not in ("auto", "line"):
            raise InputError(f"splitter {self.splitter!r}; expected auto or line")
        if self.near_duplicates and not LEAST <= self.near_duplicates <= GREATEST:
            fault = f"near_duplicates {self.near_duplicates}"
            raise InputError(f"{fault}; expected 0, or a similarity from {LEAST} to {GREATEST}")
        if not 0 <= self.validation_share < 1:
            raise InputError(f"--validation-share {self.validation_share}; expected at least 0 and less than 1")
        least = {"max_sentence_tokens": 1, "shard_tokens": 1, "min_validation_documents": 0, "workers": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InputError(f"{flag_of(name)} {getattr(self, name)}; expected at least {value}")

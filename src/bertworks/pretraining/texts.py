"""Raw text -> vocabulary and corpus store, for a run that has neither yet (`bertworks pretrain --texts`).

The tokenizer's folder is CORPUS-tokenizer. It records what the tokenizer was made of, so that a rerun with other
settings never uses it by mistake.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.build import BuildConfig, build
from ..data.corpus import InputOptions, read_documents
from ..data.languages import KOREAN, base_of
from ..files import InputError, read_json_object, shorten, write_json
from ..tokenizer import Tokenizer, TokenizerConfig

MADE = "made.json"  # in the tokenizer's folder: texts, language, encoding and size that it was trained with


def build_from_texts(
    texts: Sequence[str], corpus: Path | str, vocab_size: int, language: str = "en", encoding: str = "utf-8"
) -> Tokenizer:
    """Train a WordPiece vocabulary (cased for Korean), build the store `corpus` with it, and return the tokenizer.

    What is already made is kept. A tokenizer of other settings is trained anew as long as no store was begun with it.
    Raises InputError if one was, and as `data.build.build`.
    """
    corpus, options = Path(corpus), InputOptions(encoding=encoding)
    made = {"texts": [os.path.abspath(text) for text in texts], "language": language, "encoding": encoding}
    tokenizer = _tokenizer(texts, corpus, options, {**made, "vocab_size": vocab_size})
    try:
        build(texts, tokenizer, corpus, BuildConfig(options, language))
    except InputError as error:  # here the store is --corpus
        raise InputError(str(error).replace("--out", "--corpus")) from None
    return tokenizer


def _tokenizer(texts: Sequence[str], corpus: Path, options: InputOptions, made: dict[str, Any]) -> Tokenizer:
    """The tokenizer in CORPUS-tokenizer, if it was made with these settings; else a new one, which is saved there."""
    folder = Path(f"{corpus}-tokenizer")
    found = read_json_object(folder / MADE) if (folder / MADE).exists() else None
    begun = corpus.is_dir() and any(corpus.iterdir())
    if found is not None:
        # a store that was begun compares the texts itself, and knows those that were moved
        other = [name for name in made if found.get(name) != made[name] and not (begun and name == "texts")]
        if other and begun:
            was, now = (", ".join(f"{name} {shorten(of.get(name))}" for name in other) for of in (found, made))
            raise InputError(
                f"{folder}: made with {was}; this command has {now}, and {corpus} was begun with that tokenizer; give "
                f"the earlier settings or another --corpus, or remove {corpus} and {folder}"
            )
        if not other and (folder / "tokenizer.json").exists():
            return Tokenizer.load(folder)
    lowercase = False if base_of(made["language"]) == KOREAN else None
    config = TokenizerConfig(vocab_size=made["vocab_size"], lowercase=lowercase)
    tokenizer = Tokenizer.train((document.text for document in read_documents(texts, options)), config)
    if found is None and tokenizer.differs_from(folder):
        raise InputError(
            f"{folder}: another tokenizer, without a record of its settings ({MADE}); expected that of these texts; "
            f"remove {folder}, or give another --corpus"
        )
    (folder / MADE).unlink(missing_ok=True)  # so that it never describes another tokenizer, even after a kill
    tokenizer.save(folder)
    write_json(folder / MADE, made)
    return tokenizer

"""Raw text -> vocabulary and corpus store, for a run that has neither yet (`bertworks pretrain --texts`).

The tokenizer's folder is CORPUS-tokenizer. It records the settings, so that a rerun with other settings
never uses it by mistake.
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

SETTINGS = "made.json"  # in the tokenizer's folder: texts, language, encoding and size that it was trained with


def build_from_texts(
    texts: Sequence[str], corpus: Path | str, vocab_size: int, language: str = "en", encoding: str = "utf-8"
) -> Tokenizer:
    """Train a WordPiece vocabulary (cased for Korean), build the store `corpus` with it, and return the tokenizer.

    Existing parts are kept. Raises InputError if they have other settings, and as `data.build.build`.
    """
    folder, options = Path(f"{corpus}-tokenizer"), InputOptions(encoding=encoding)
    settings: dict[str, Any] = {"texts": [*map(os.path.abspath, texts)], "language": language, "encoding": encoding}
    settings["vocab_size"] = vocab_size
    if folder.is_dir() and {file.name for file in folder.iterdir()} - {SETTINGS}:  # alone: no vocabulary was trained
        earlier = read_json_object(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
        if unlike := [name for name in settings if earlier.get(name) != settings[name]]:
            was, now = (", ".join(f"{name} {shorten(of.get(name))}" for name in unlike) for of in (earlier, settings))
            raise InputError(
                f"{folder}: trained with {was}; this command has {now}; give the earlier settings or another --corpus, "
                f"or remove {corpus} and {folder}"
            )
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.load(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / SETTINGS, settings)
        config = TokenizerConfig(vocab_size=vocab_size, lowercase=False if base_of(language) == KOREAN else None)
        tokenizer = Tokenizer.train((document.text for document in read_documents(texts, options)), config)
        tokenizer.save(folder)
    try:
        build(texts, tokenizer, corpus, BuildConfig(options, language))
    except InputError as error:  # here the store is --corpus
        raise InputError(str(error).replace("--out", "--corpus")) from None
    return tokenizer

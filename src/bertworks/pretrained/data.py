"""`hub:org/name` as labelled data: a data set of the Hugging Face Hub, through the library `datasets`."""

import re
from pathlib import Path
from typing import Any

from ..files import InputError

NAME = re.compile(
    r"hub:(?P<name>\w[\w.-]*/\w[\w.-]*)(?:/(?P<subset>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?(?:#(?P<split>[\w.-]+))?"
)


def from_hub(data: Any) -> Any:
    """The datasets.Dataset of `hub:org/name[/subset][@revision][#split]`; other data unchanged.

    It is downloaded once, into the cache of `datasets` (HF_HOME). A local folder `org/name` comes first.
    Raises InputError if the library, the data set, the subset or the split is missing, or the Hub cannot be reached.
    """
    name = str(data) if isinstance(data, str | Path) else ""
    if not name.startswith("hub:"):
        return data
    match = NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{name!r}; expected hub:org/name[/subset][@revision][#split]")
    try:
        import datasets
    except ImportError:
        raise InputError(f"{name} needs the library datasets; pip install datasets") from None
    try:
        splits = datasets.load_dataset(match["name"], match["subset"], revision=match["revision"])
    except Exception as error:  # of the Hub, of the connection, or of the files in the repository
        raise InputError(f"{name}: {error.__cause__ or error}") from error
    split = match["split"] or (next(iter(splits)) if len(splits) == 1 else None)
    if split not in splits:
        found = ", ".join(f"{name.partition('#')[0]}#{one}" for one in splits)
        raise InputError(f"{name}: {'unknown split' if split else 'several splits'}; expected one of {found}")
    return splits[split]

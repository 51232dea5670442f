"""`bertworks models`: the models on this machine that a command takes by name."""

from dataclasses import dataclass
from pathlib import Path

from .arguments import parse


@dataclass(frozen=True)
class Arguments:
    """List the models of the Hugging Face Hub that are in the cache, and bundled encoders.

    Example:
        bertworks models
        bertworks finetune org/name@main --train train.csv --out runs/topics

    Every command takes such a name in place of a model folder. A repository that is not in the cache is downloaded.
    """


def models(argv: list[str]) -> None:
    """Print the list."""
    parse(Arguments, argv, "models")
    from ..pretrained import BUNDLED, bundled
    from ..pretrained.hub import cached
    from ..reporting.tables import ResultTable

    folders = {(name, "bundled"): bundled(name) for name in BUNDLED}
    folders |= {(f"{name}@{folder.name}", "downloaded"): folder for name, folder in cached() if _is_model(folder)}
    rows = [(*name, _megabytes(folder)) for name, folder in folders.items() if folder is not None]
    if rows:
        ResultTable("", ("name", "origin", "MB"), rows).show()
    else:
        print("no model is bundled or downloaded; ORG/NAME in place of a folder downloads one of the Hugging Face Hub")


def _is_model(folder: Path) -> bool:
    """Whether a folder has a config.json that bertworks reads, and all of its weights."""
    from ..checkpoint.folder import read_config
    from ..checkpoint.pooling import read_pooling
    from ..checkpoint.weights import weight_files
    from ..files import InputError

    try:
        inner, _ = read_pooling(folder)  # of sentence-transformers too
        read_config(inner)
        files = weight_files(inner)
    except InputError:
        return False
    return bool(files) and all(file.exists() for file in files)


def _megabytes(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.1f}"

"""Download a model from the Hugging Face Hub through huggingface_hub: its cache, token, offline mode and endpoint
(HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT)."""

import errno
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ..files import InputError

# Weights in safetensors, settings and tokenizers, also of the numbered modules of sentence-transformers (1_Pooling/). A
# pickle can run code, so none is downloaded.
FILES = ["model.safetensors", "model-*.safetensors", "[0-9]_*/model.safetensors", "*.json", "*.txt", "README.md"]
OTHER_FOLDERS = ["[!0-9]*/*", "*/*/*"]  # onnx/, openvino/, checkpoint-500/ ...
MAX_BYTES = 8 << 30  # of a repository: encoders are smaller


@cache
def download(name: str, revision: str | None = None) -> Path:
    """The folder of a repository (`org/name`) in the cache; files that it lacks are downloaded.

    revision: branch, tag or commit. An interrupted download is resumed. Without a connection a complete earlier
    download is used. The size is printed before a download and the commit after it, both to stderr. Cached, so that a
    name means one commit in a process.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import tqdm

    class Progress(tqdm):
        """A progress bar in a terminal only."""

        def __init__(self, *args: Any, **settings: Any):
            super().__init__(*args, **settings | {"disable": not sys.stderr.isatty()})

    request: dict[str, Any] = {"revision": revision, "allow_patterns": FILES, "ignore_patterns": OTHER_FOLDERS}
    request["tqdm_class"] = Progress
    try:
        missing = _missing(name, request)
        if sum(missing) > MAX_BYTES:
            problem = f"{name}: {_megabytes(sum(missing))} to download; expected an encoder of at most"
            raise InputError(f"{problem} {_megabytes(MAX_BYTES)}; download it with `hf download` and give its folder")
        if missing:
            print(f"{name}: downloading {_megabytes(sum(missing))} from the Hugging Face Hub", file=sys.stderr)
        folder = Path(snapshot_download(name, **request))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name}: {_explanation(error, name, revision)}") from error
    if missing:
        print(f"{name}: commit {folder.name}", file=sys.stderr)
    return folder


def cached() -> list[tuple[str, Path]]:
    """The names and folders of the models in the cache, also of those that are incomplete or of another kind."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    models = [repository for repository in repositories if repository.repo_type == "model"]
    return sorted((model.repo_id, Path(one.snapshot_path)) for model in models for one in model.revisions)


def _missing(name: str, request: dict[str, Any]) -> list[int]:
    """The sizes of the files that are not in the cache; none where the Hub cannot be reached."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    try:
        files = snapshot_download(name, dry_run=True, **request)
    except DryRunError:  # snapshot_download itself looks into the cache, or says what is wrong
        return []
    return [file.file_size or 0 for file in files if file.will_download]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _explanation(error: Exception, name: str, revision: str | None) -> str:
    """What went wrong and what to do about it."""
    from huggingface_hub import constants, errors

    if isinstance(error, errors.GatedRepoError):
        return f"access is restricted; request it on {constants.ENDPOINT}/{name} and set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"neither a folder on this machine nor a public repository of {constants.ENDPOINT}; check the spelling, or "
            "set HF_TOKEN for a private repository"
        )
    if isinstance(error, errors.HFValidationError):
        return (
            "neither a folder on this machine nor a valid name of a repository; expected org/name or org/name@revision"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"the repository has no revision {revision!r}; expected a branch, a tag or a commit"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.IncompleteSnapshotError):
        where = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
        return f"neither a folder on this machine nor a complete earlier download, and {where}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left in {constants.HF_HUB_CACHE}; free some, or set HF_HOME to a folder on another disk"
    return f"the download failed ({error}); run the command again to resume it"

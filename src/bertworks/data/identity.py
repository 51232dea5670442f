"""What a store is built from: so a rerun tells whether a finished store, or an unfinished build, is its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import shorten
from ..tokenizer import Tokenizer
from .manifest import VERSION, flag_of
from .sentences import splitter_version

DEFAULTS = {  # of settings that a manifest may not name: from before the setting existed, without it, or the default
    "input.encoding": "utf-8",
    "near_duplicates": 0.0,
    "splitter": "auto",
}
WITHOUT_EFFECT = ("workers", "scheduler", "allow_unknown")  # settings on which the tokens of a store do not depend


def identity_of(config: dict[str, Any], tokenizer: Tokenizer, files: Sequence[Path]) -> dict[str, Any]:
    """The version, tokenizer, files, settings and splitter of a build. config: all fields of a BuildConfig."""
    settings: dict[str, Any] = {"input": {}}
    for key, value in flat(config).items():
        if key in WITHOUT_EFFECT or value == DEFAULTS.get(key):
            continue
        of, name = (settings["input"], key.removeprefix("input.")) if "." in key else (settings, key)
        of[name] = value
    return {
        "version": VERSION,
        "tokenizer": tokenizer.fingerprint,
        "inputs": [[str(path), path.stat().st_size] for path in files],
        "settings": settings,
        "splitter": splitter_version(config["splitter"], config["language"]),
    }


def identity_in(manifest: dict[str, Any]) -> dict[str, Any]:
    """The identity of the build that wrote this manifest."""
    return {
        "version": manifest["version"],
        "tokenizer": manifest["tokenizer"]["fingerprint"],
        "inputs": manifest["source"]["inputs"],
        "settings": manifest["settings"],
        "splitter": manifest.get("splitter", ""),
    }


def decides_parts(identity: dict[str, Any]) -> dict[str, Any]:
    """What decides the content of a part beside its texts. All else may change while a build is unfinished."""
    settings = {key: identity["settings"][key] for key in ("language", "max_sentence_tokens")}
    return {**{key: identity[key] for key in ("version", "tokenizer", "splitter")}, "settings": settings}


def differences(previous: dict[str, Any], requested: dict[str, Any]) -> str:
    """What differs between two builds' identities, in words; "" if they agree."""
    before, now = ({**DEFAULTS, **flat(one.pop("settings")), **one} for one in (dict(previous), dict(requested)))
    keys = [key for key in now if before.get(key) != now[key]]
    return ", ".join(_difference(key, before.get(key), now[key]) for key in keys)


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, those of the table `input` under dotted keys."""
    inner = {f"input.{key}": value for key, value in settings.get("input", {}).items()}
    return {**inner, **{key: value for key, value in settings.items() if key != "input"}}


def _difference(name: str, previous: Any, requested: Any) -> str:
    """What differs in one setting, in words."""
    if name == "inputs":
        return f"inputs of {len(previous or [])} files, now {len(requested)}, or other names or sizes"
    before, now = (shorten(value).strip("'\"") for value in (previous, requested))
    what = name if name in ("version", "tokenizer", "splitter") else flag_of(name)
    return f"{what} {before}, now {now}"

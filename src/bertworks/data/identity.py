"""What a store is built from: so a rerun tells whether a finished store, or an unfinished build, is its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import shorten
from ..tokenizer import Tokenizer
from .manifest import VERSION, flag_of
from .sentences import splitter_version

LATER = {  # settings that stores from before them do not name, nor those that have the default
    "input.missing": "refuse",
    "input.other_kinds": "refuse",
    "input.encoding": "utf-8",
    "near_duplicates": 0.0,
    "splitter": "auto",
}


def identity_of(config: dict[str, Any], tokenizer: Tokenizer, files: Sequence[Path]) -> dict[str, Any]:
    """The version, tokenizer, files, settings and splitter of a build. config: all fields of a BuildConfig."""
    settings = {**config, "input": {**config["input"]}}
    for key in ("workers", "scheduler", "allow_unknown"):  # the tokens of a store do not depend on these
        del settings[key]
    del settings["input"]["max_window"]
    for key, default in LATER.items():
        of, name = (settings["input"], key.removeprefix("input.")) if "." in key else (settings, key)
        if of[name] == default:
            del of[name]
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
    settings = identity["settings"]
    keys = {key: settings[key] for key in ("language", "max_sentence_tokens")}
    return {
        "version": identity["version"],
        "tokenizer": identity["tokenizer"],
        **keys,
        "splitter": identity["splitter"],
    }


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """What differs between two builds' identities, in words; "" if they agree in all keys of `ours`.

    Settings are named by their flags, and one that an identity leaves out has its default.
    """
    found = []
    for key in ours:
        if key == "settings":
            before, now = ({**LATER, **_flat(one[key])} for one in (theirs, ours))
            found.append([_difference(flag_of(k), before.get(k), now[k]) for k in now if before.get(k) != now[k]])
        elif theirs.get(key) != ours[key]:
            name = flag_of(key) if key in ("language", "max_sentence_tokens") else key
            found.append([_difference(name, theirs.get(key), ours[key])])
    return "; ".join(", ".join(one) for one in found if one)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, those of the table `input` under dotted keys."""
    inner = {f"input.{key}": value for key, value in settings.get("input", {}).items()}
    return {**inner, **{key: value for key, value in settings.items() if key != "input"}}


def _difference(name: str, theirs: Any, ours: Any) -> str:
    """What differs in one setting, in words."""
    if name == "inputs":
        return f"inputs of {len(theirs or [])} files, now {len(ours)}, or other names or sizes"
    before, now = (shorten(value).strip("'\"") for value in (theirs, ours))
    return f"{name} {before}, now {now}"

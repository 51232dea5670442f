"""Settings of other software that are computed here, have no effect, are refused by name, or are noted as unread."""

import json
from collections.abc import Container, Mapping
from typing import Any

from ..files import InputError, shorten


def check_only(settings: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]], where: str) -> None:
    """Raise InputError for a setting with another value than the ones listed for it; a missing one counts as None."""
    for key, expected in only.items():
        if settings.get(key) not in expected:
            found, usual = shorten(settings[key]), json.dumps(expected[0])
            raise InputError(f"{where}: {key} = {found}; expected {usual}: nothing else is computed here")


def unread_note(settings: Mapping[str, Any], known: Container[str], where: str) -> str:
    """Names the settings that are not known; "" if there are none."""
    unread = [shorten(key) for key in sorted(settings) if key not in known]
    more = f" and {len(unread) - 8} more" if len(unread) > 8 else ""
    return f"{where}: {', '.join(unread[:8])}{more} not read: unknown here" if unread else ""

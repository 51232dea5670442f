"""Data too large or too restricted for the repository lies in `../shared` beside it. Tests skip where it is absent."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"


def shared(name: str) -> Path:
    """The path of `name` (for instance `oracle/model`) in the shared folder; without it the calling test is skipped."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs ../shared/{name}", allow_module_level=True)
    return path


def needs_shared(name: str) -> pytest.MarkDecorator:
    """Decorator: skip the test, saying why, where `../shared/name` is absent."""
    return pytest.mark.skipif(not (SHARED / name).exists(), reason=f"needs ../shared/{name}")

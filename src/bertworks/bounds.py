"""Bounds of numbers in settings."""

from typing import Any


def check_seed(*seeds: int) -> None:
    """Raises ValueError for a seed that not every generator takes (torch, NumPy, CUDA)."""
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed = {seed}; expected a whole number from 0 to 2^63 - 1")


def check_least(config: Any, names: tuple[str, ...], least: int, meaning: str = "", of: str = "") -> None:
    """Raises ValueError for a field below `least` or not a number; `meaning` explains that value, `of` is the table."""
    for name in names:
        if not getattr(config, name) >= least:
            expected = f"{least} ({meaning}) or more" if meaning else f"{least} or more"
            raise ValueError(f"{f'{of}.' if of else ''}{name} = {getattr(config, name)}; expected {expected}")

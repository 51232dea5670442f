"""The tables of docs/reliability.md: how commands end on hostile input, and what kills leave."""

from typing import Any

from sources import Lines, result, table

Found = dict[str, dict[str, Any]]  # by name


def hostile() -> Lines:
    """Readers of each kind: how their cases ended, and the most memory beyond the start."""
    rows = []
    for kind, some in _kinds(result("benchmarks/hostile")["readers"], "-").items():
        found = [*some.values()]
        cases = sum(one["cases"] for one in found)
        taken, refused = (sum(one["ends"].get(end, 0) for one in found) for end in ("ok", "refused"))
        numbers = (len(found), cases, taken, refused, cases - taken - refused)
        rows.append(
            (kind or ", ".join(some), *map(str, numbers), f"{max(one['most_memory'] for one in found) / 1e6:.0f}")
        )
    return table(("kind", "readers", "cases", "accepted", "refused", "findings", "peak memory, MB"), rows)


def kills() -> Lines:
    """Commands with all their forms: runs, kills, and what the kills left."""
    counted = ("runs", "kills", "mismatches", "leftovers", "half", "changed", "refused")
    rows = []
    for kind, some in _kinds(result("benchmarks/kills")["commands"], ",").items():
        name = ", ".join(f"`{one}`" for one in ([kind] if kind else some))
        rows.append((name, str(len(some)), *(str(sum(one[key] for one in some.values())) for key in counted)))
    return table(("command", "forms", *counted[:4], "incomplete", "input changed", "refused"), rows)


def _kinds(found: Found, separator: str) -> dict[str, Found]:
    """Entries by the beginning of their names, up to a separator; those whose beginning no other has are under ""."""
    kinds: dict[str, Found] = {}
    for name, one in found.items():
        kinds.setdefault(name.partition(separator)[0], {})[name] = one
    single = {name: one for some in kinds.values() if len(some) == 1 for name, one in some.items()}
    return {kind: some for kind, some in kinds.items() if len(some) > 1} | {"": single}

"""The tables of docs/reliability.md: how commands end on hostile input, and what kills leave."""

from sources import Lines, result, table


def hostile() -> Lines:
    """Each reader: how its cases ended, and the most memory beyond the start."""
    rows = []
    for name, found in result("benchmarks/hostile")["readers"].items():
        ends = found["ends"]
        taken, refused = ends.get("ok", 0), ends.get("refused", 0)
        numbers = (found["cases"], taken, refused, found["cases"] - taken - refused)
        rows.append((name, *map(str, numbers), f"{found['most_memory'] / 1e6:.0f}"))
    return table(("reader", "cases", "accepted", "refused", "findings", "peak memory, MB"), rows)


def kills() -> Lines:
    """Each command: runs, kills, and what the kills left."""
    counted = ("runs", "kills", "mismatches", "leftovers", "half", "changed", "refused")
    commands = result("benchmarks/kills")["commands"]
    rows = [(f"`{name}`", *(str(found[key]) for key in counted)) for name, found in commands.items()]
    return table(("command", *counted[:4], "incomplete", "input changed", "refused"), rows)

"""Write the tables of docs/ (PAGES) from the JSON files of results, so that prose and figures cannot part.

    python docs/tables/write.py            # rewrites the pages; --check only says whether they are up to date

A table is between `<!-- table: NAME -->` and `<!-- end -->`, and NAME is a key of TABLES. What is between the tables is
written by hand. After a run of a study: `bertworks study report FOLDER`, then this.
"""

import argparse
import re
import sys
from collections.abc import Callable

import attacks
import engines
import korean
import runs
import speed
import starts
import studies
from findings import findings
from sources import DOCS, Lines

from bertworks.files import write_text

PAGES = tuple(DOCS / f"{name}.md" for name in ("results", "plateau", "reliability", "ko/index", "ko/search"))
BLOCK = re.compile(r"^(<!-- table: (\S+) -->)\n.*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)

TABLES: dict[str, Callable[[], Lines]] = {
    "findings": findings,
    "speed": speed.speed,
    "amx": speed.amx,
    "memory": speed.memory,
    "feeding": speed.feeding,
    "saving": speed.saving,
    "busy": speed.busy,
    "corpus-growth": speed.corpus_growth,
    "fine-tuning-speed": speed.fine_tuning,
    "engines": engines.engines,
    "exports": engines.exports,
    "servers": engines.servers,
    "load": engines.load,
    "held-out": runs.held_out,
    "fine-tuned": runs.fine_tuned,
    "parity": runs.parity,
    "other-tasks": runs.other_tasks,
    "paper-tasks": runs.paper_tasks,
    "mrpc-sweep": runs.mrpc_sweep,
    "continued": runs.continued,
    "embedders": runs.embedders,
    "korean": runs.korean,
    "korean-held-out": runs.korean_held_out,
    "korean-tasks": studies.korean_tasks,
    "korean-sentences": runs.korean_sentences,
    "ko-tasks": korean.tasks,
    "ko-embedder": korean.embedder,
    "plateau": runs.plateau,
    "race": starts.race,
    "race-attention": starts.attention,
    "race-plane": starts.plane,
    "confirm": starts.confirm,
    "lengths": starts.lengths,
    "long": starts.long,
    "relatives": runs.relatives,
    "demo-held-out": runs.demo_held_out,
    "demo-tasks": runs.demo_tasks,
    "demo-busy-tasks": lambda: runs.demo_tasks("demo-busy"),
    "tasks": lambda: studies.figures("tasks"),
    "tasks-longer": lambda: studies.figures("tasks-longer"),
    "pretraining-seeds": lambda: studies.with_differences("pretraining-seeds", "NER"),
    "steps": studies.steps,
    "masking": lambda: studies.figures("masking"),
    "masking-low-rate": lambda: studies.with_differences("masking-low-rate", "NER, fine-tuning"),
    "mask-rate": lambda: studies.with_differences("mask-rate", "NER"),
    "examples": lambda: studies.figures("examples"),
    "examples-against-others": studies.examples_against_others,
    "features": lambda: studies.with_differences("features", "NER dev"),
    "size": lambda: studies.figures("size"),
    "hostile": attacks.hostile,
    "kills": attacks.kills,
}


def renewed(text: str) -> str:
    """A page with every table written anew."""

    def block(match: re.Match[str]) -> str:
        return "\n".join([match[1], "", *TABLES[match[2]](), "", match[3]])

    return BLOCK.sub(block, text)


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is out of date")
    check = parser.parse_args().check
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = renewed(text)
        if check and new != text:
            sys.exit(f"{page}: tables are out of date; run python docs/tables/write.py")
        if not check:
            write_text(page, new)


if __name__ == "__main__":
    main()

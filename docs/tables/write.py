"""Write the tables of docs/ (PAGES) and its pictures from the JSON files of results, so that prose and figures agree.

    python docs/tables/write.py            # rewrites the pages; --check only says whether they are up to date

A table is between `<!-- table: NAME -->` and `<!-- end -->`, and NAME is a key of TABLES. What is between the tables is
written by hand. After a run of a study: `bertworks study report FOLDER`, then this.
"""

import argparse
import re
import sys
from collections.abc import Callable

import attacks
import charts
import engines
import korean_tables
import pictures
import runs
import speed
import starts
import studies
from findings import findings
from sources import DOCS, Lines

from bertworks.files import write_text

NAMES = (
    "results",
    "results/encoders",
    "results/speed",
    "results/studies",
    "results/finetuning",
    "corpus",
    "plateau",
    "reliability",
    "ko/index",
    "ko/search",
)
PAGES = tuple(DOCS / f"{name}.md" for name in NAMES)
BLOCK = re.compile(r"^(<!-- table: (\S+) -->)\n.*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)

UNFINISHED = (  # rows of tasks that have named entities alone, or few other columns
    "BERT, 18 million tokens",
    "LTR & No NSP + BiLSTM",
    "BERT, batches of 8",
    "LTR & No NSP + BiLSTM, batches of 8",
    "LTR and RTL side by side",
    "static vectors + BiLSTM, batches of 8",
)

TABLES: dict[str, Callable[[], Lines]] = {
    "findings": findings,
    "what-you-get": runs.what_you_get,
    "machines": speed.machines,
    "speed-summary": speed.summary,
    "pretraining-speed": speed.pretraining,
    "speed": speed.speed,
    "fine-tuning-speed": speed.fine_tuning,
    "engines": engines.engines,
    "exports": engines.exports,
    "servers": engines.servers,
    "fine-tuned": runs.fine_tuned,
    "parity": runs.parity,
    "other-tasks": runs.other_tasks,
    "paper-tasks": runs.paper_tasks,
    "mrpc-sweep": runs.mrpc_sweep,
    "continued": runs.continued,
    "embedders": runs.embedders,
    "korean-sentences": runs.korean_sentences,
    "ko-mini": korean_tables.mini_ko,
    "ko-embedder": korean_tables.embedder,
    "race": starts.race,
    "relatives": runs.relatives,
    "named-entities": studies.named_entities,
    "tasks": lambda: studies.figures("tasks", without=UNFINISHED, missing=1),  # SQuAD with another pre-training seed
    "tasks-longer": lambda: studies.with_differences("tasks-longer", "NER", ("NER",)),
    "pretraining-seeds": lambda: studies.with_differences("pretraining-seeds", "NER"),
    "steps": studies.steps,
    "masking-low-rate": lambda: studies.with_differences("masking-low-rate", "NER, fine-tuning"),
    "mask-rate": lambda: studies.with_differences("mask-rate", "NER"),
    "mini": lambda: studies.encoder("mini", "linear model", studies.OVERLAP, "word2vec + BiLSTM", "random weights"),
    "mini-ko": lambda: studies.encoder("mini-ko", "linear model over characters", studies.OVERLAP, "random weights"),
    "features": lambda: studies.with_differences("features", "NER dev"),
    "size": lambda: studies.figures("size", ("perplexity", "MNLI", "NER")),
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
    if check and (old := pictures.outdated()):
        sys.exit(f"{old[0]}: the picture is out of date; run python docs/tables/write.py")
    if not check:
        pictures.draw()
        charts.main()


if __name__ == "__main__":
    main()

"""What experts look at in runs, stores, model folders, tables and the machine, each with evidence and advice.

In reading order:

    findings.py     a finding, a report
    examination.py  what a path is, and the checks for it: `examine`
    logs.py         what a run's files say, and the checks of any training
    pretrained.py   pre-training runs
    finetuned.py    fine-tuned runs
    several.py      seeds, and folders of runs
    stores.py       corpus stores
    folders.py      model folders
    tables.py       tables of one's own
    rows.py         rows to train and to judge on, of any task
    row_checks.py   the checks of rows
    labels.py       the checks of their labels
    alike.py        duplicates and near-duplicates among texts
    machine.py      settings of the machine that cost speed
    fixes.py        what `--fix` does
    listing.py      a report on the terminal
    functions.py    `bertworks.finetune` and `bertworks.pretrain`: runs from Python, examined when they end

The checks train nothing. `bertworks doctor` examines a path; the verbs that end a run print its findings.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .examination import examine as examine
    from .findings import Finding as Finding
    from .findings import Report as Report

__all__, __getattr__, __dir__ = lazy_names(__name__)

"""Checks of runs, corpus stores, model folders, labelled data and the machine, each with evidence and advice.

    examination.py  `examine`: recognises what a path is, and runs its checks
    runs.py         checks of the log and the results of any training run
    pretrained.py   pre-training runs
    finetuned.py    fine-tuned runs
    stores.py       corpus stores
    folders.py      model folders
    machine.py      settings of the machine that slow it down
    listing.py      findings on the terminal

A check is a function that yields findings (tasks/checks.py). Labelled data is checked in tasks/checks.py, because
`bertworks.finetune` does the same. Nothing is trained or changed.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .examination import Report as Report
    from .examination import examine as examine

__all__, __getattr__, __dir__ = lazy_names(__name__)

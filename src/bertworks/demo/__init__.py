"""The demo: from this machine's own text to a measured encoder in minutes. It calls the verbs' functions.

Files in reading order:

    run.py           the seven steps, from documentation strings to a table of results
    text.py          English prose from installed Python packages, the split, and the task
    clock.py         the time limit of each step
    evaluation.py    held-out documents, filled masks, and fine-tuning with and without pre-training
    report.py        REPORT.md, made from results.json
"""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .run import DemoConfig as DemoConfig
    from .run import default_config as default_config
    from .run import demo as demo

__all__, __getattr__, __dir__ = lazy_names(__name__)

"""The demo: from this machine's own text to a measured encoder in minutes. It calls the verbs' functions.

Files in reading order:

    config.py        settings
    run.py           the seven steps, from documentation strings to tables of results
    text.py          documents from installed Python packages
    prose.py         from a docstring's markup to paragraphs of prose
    tasks.py         the split, and the rows of the two tasks
    clock.py         how long it takes, and the time limit
    evaluation.py    held-out documents and filled masks
    comparison.py    fine-tuning with and without pre-training, and a linear model on the same rows
    screen.py        what the terminal shows meanwhile
    curve.py         curves and bars in text
    report.py        REPORT.md, made from results.json
    page.py          report.html
    drawings.py      its plots, as SVG
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .config import DemoConfig as DemoConfig
    from .config import default_config as default_config
    from .run import demo as demo

__all__, __getattr__, __dir__ = lazy_names(__name__)

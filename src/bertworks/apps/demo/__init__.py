"""The demo: a bundled encoder on two tasks, and a few minutes of pre-training on this machine's text.

It calls the functions of `import bertworks`. Files in reading order:

    config.py   settings
    run.py      the steps, from docstrings to results.json
    tuning.py   fine-tuning, a linear model and random initialization on the same examples
    text.py     documents from installed Python packages
    prose.py    from a docstring's markup to paragraphs of prose
    tasks.py    the labelled examples of two tasks
    tables.py   results as rows of tables
    page.py     report.html
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .config import DemoConfig as DemoConfig
    from .run import demo as demo

__all__, __getattr__, __dir__ = lazy_names(__name__)

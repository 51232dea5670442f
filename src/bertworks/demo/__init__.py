"""The demo: from this machine's own text to a measured encoder in minutes. It calls the verbs' functions.

Files in reading order:

    run.py           the seven steps, from documentation strings to a table of results
    text.py          English prose from installed Python packages, the split, and the task
    clock.py         the time limit of each step
    evaluation.py    held-out documents, filled masks, and fine-tuning with and without pre-training
    report.py        REPORT.md, made from results.json
"""

from .run import DemoConfig, default_config, demo

__all__ = ["DemoConfig", "default_config", "demo"]

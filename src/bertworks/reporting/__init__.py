"""What runs report: their files, logs, progress, tables and pictures. Nothing here knows models or data.

run_files.py   results.json, log.jsonl and other files of runs, checked when read; the commit of the code
log.py         the log of a run, written and shown
progress.py    progress of long jobs
results.py     what a call in Python returns: results that print as tables
tables.py      tables of results, on a terminal or as Markdown
outputs.py     whether a file or folder that the user names may be written
figures.py     curves of runs (imports matplotlib)
tracking.py   TensorBoard files of a run
fonts.py       fonts for every script in pictures
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .log import Reporter as Reporter
    from .log import duration as duration
    from .progress import Progress as Progress
    from .run_files import commit as commit
    from .run_files import read_log as read_log
    from .run_files import read_results as read_results
    from .tables import ResultTable as ResultTable
    from .tables import points as points

__all__, __getattr__, __dir__ = lazy_names(__name__)

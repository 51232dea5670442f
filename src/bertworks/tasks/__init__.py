"""Tasks: what they are, how their rows become sequences of tokens, and how scores become predictions and metrics.

Reading order:
    base            what a task, its limits, its data, and a kind of task are
    catalogue       every known task as a literal
    kinds           the kinds of tasks by name; reading a task's data
    sequences       framing, overlapping windows, flat arrays
    inputs          examples as a model takes them, batches of them, the scores of a head
    classification  one or two texts: classes, values, several labels
    choice          multiple choice
    tagging         a tag for every word or character; sentences reads the files, tags knows the schemes and scores
    span            answers in contexts; questions reads files, contexts tokenizes, answers ranks, squad_scores scores
    table           CSV, TSV, JSON lines and Parquet, row by row
    rows            rows that a caller hands over in Python, checked
    metrics         metrics of classes, values and label sets
"""

from .base import Data, Example, Limits, Task
from .catalogue import TASKS, find_task
from .choice import Choice
from .kinds import KINDS, load_data, own_table, own_task, read_rows
from .questions import Question
from .sentences import Tagged

__all__ = [
    "KINDS",
    "TASKS",
    "Choice",
    "Data",
    "Example",
    "Limits",
    "Question",
    "Tagged",
    "Task",
    "find_task",
    "load_data",
    "own_table",
    "own_task",
    "read_rows",
]

"""Tasks: what they are, how their rows become sequences of tokens, and how scores become predictions and metrics.

In reading order:

    base.py            what a task, its limits, its data, and a kind of task are
    catalogue.py       every known task as a literal
    kinds.py           the kinds of tasks by name; reading a task's data
    sequences.py       framing, overlapping windows, flat arrays
    inputs.py          examples as a model takes them, batches of them, the scores of a head
    classification.py  one or two texts: classes, values, several labels
    choice.py          multiple choice
    tagging.py         a tag for every word or character
    sentences.py       files of tagged sentences
    tags.py            tag schemes, entities and their scores
    span.py            answers in contexts
    questions.py       files of questions
    contexts.py        contexts as tokens, and where answers are in them
    answers.py         the n best answers from scores of starts and ends
    squad_scores.py    the official scores of answers
    table.py           CSV, TSV, JSON lines and Parquet, row by row
    rows.py            rows that a caller hands over in Python, checked
    metrics.py         metrics of classes, values and label sets
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

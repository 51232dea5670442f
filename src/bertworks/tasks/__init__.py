"""Tasks: what they are, how their rows become sequences of tokens, and how scores become predictions and metrics.

In reading order:

    base.py            the classes of tasks, kinds of tasks, length limits and data
    catalogue.py       the built-in tasks, from catalogue.toml
    kinds.py           the kinds of tasks by name; reading a task's data
    sequences.py       framing, overlapping windows, flat arrays
    inputs.py          examples as token ids, batches of them, the scores of a head
    classification.py  one or two texts: classes, values, several labels
    labels.py          labels, lists and truth values as files write them
    embedding.py       pairs of texts for embedders
    choice.py          multiple choice
    tagging.py         a tag for every word or character
    sentences.py       files of tagged sentences
    column_files.py    files with a word per line: CoNLL-2003, CoNLL-U
    span_files.py      texts with spans of characters, as annotation tools export them
    tags.py            tag schemes, entities and their scores
    span.py            answers in contexts
    questions.py       files of questions, and where a text is in its context
    contexts.py        contexts as tokens, and where answers are in them
    answers.py         the n best answers from scores of starts and ends
    squad_scores.py    the official scores of answers
    table.py           rows with named columns, of a file of any format or in memory
    records.py         DataFrames, datasets and lists of dictionaries, row by row
    formats.py         the rows of files: text tables, JSON, Parquet, workbooks, decoded lines
    checks.py          checks of labelled data before training
    selection.py       the examples that a subcommand or a function is given
    rows.py            checks of rows that a caller gives in Python
    sampling.py        examples drawn by a seed, and examples that are held out
    metrics.py         metrics of classes, values and label sets
    calibration.py     calibration of probabilities, thresholds of several labels
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .base import Data as Data
    from .base import Example as Example
    from .base import LengthLimits as LengthLimits
    from .base import Task as Task
    from .catalogue import TASKS as TASKS
    from .catalogue import find_task as find_task
    from .choice import Choice as Choice
    from .kinds import KINDS as KINDS
    from .kinds import load_data as load_data
    from .kinds import own_table as own_table
    from .kinds import own_task as own_task
    from .kinds import read_rows as read_rows
    from .questions import Question as Question
    from .sentences import Tagged as Tagged

__all__, __getattr__, __dir__ = lazy_names(__name__)

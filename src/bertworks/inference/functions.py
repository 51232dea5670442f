"""Using a model from Python: `bertworks.evaluate`, `predict` and `features`, as the verbs of these names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..checkpoint.folder import read_task
from ..checkpoint.locate import ModelLike, find_model
from ..files import InputError, shorten
from ..reporting.arguments import argument_names, hinted
from ..reporting.results import Evaluated, Rows
from ..tasks.base import KindName
from ..tasks.records import could_be_path
from ..tasks.selection import DevRows, comma_separated
from ..tasks.table import part_of
from .config import FeatureConfig
from .engines import Computing, EngineName, Precision
from .evaluation import evaluate as evaluate_rows
from .evaluation import known_labels, remembered
from .feature_files import read_texts, write_features, writer_for
from .features import Extractor
from .file_inputs import Columns, columns_for, in_memory
from .files import Counts, predict_data, write_results
from .predictor import Predictor
from .result_tables import check_file

Columned = str | Sequence[str]
"""The name of a column, or several: a list, or with commas between."""


@hinted
def evaluate(
    model: ModelLike,
    dev: Any = None,
    *,
    text: Columned | None = None,
    label: Columned | None = None,
    kind: KindName | None = None,
    choices: Columned | None = None,
    task: str = "",
    data: Path | str | None = None,
    precision: Precision = "float32",
) -> Evaluated:
    """Evaluate a fine-tuned model on development rows, and return its metrics.

        bertworks.evaluate("runs/topics", frame, text="question", label="topic").metrics["accuracy"]

    model: model folder, run folder, or a loaded model. dev and the columns: as in `bertworks.finetune`; by default the
    columns and the kind of the table that the model was fine-tuned on. Labels are matched by name, not by number.
    Raises InputError for unfit rows or an unknown label, with the row.
    """
    with argument_names():
        own = {"kind": kind, "text": text, "label": label, "choices": choices}
        given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        rows = remembered(DevRows(task, data, dev, **given), model, given)  # type: ignore[arg-type]  # a path, in a command
        return Evaluated(evaluate_rows(model, *rows.read(known_labels(model)), computing=Computing(precision)))


@hinted
def predict(
    model: ModelLike,
    data: Any,
    *,
    text: Columned = (),
    choices: Columned = (),
    all_scores: bool = False,
    n_best: int = 1,
    out: Path | str | None = None,
    precision: Precision = "float32",
    engine: EngineName = "auto",
) -> Rows:
    """Predict a label, entities, an answer or a choice for every row, in order; each is a dictionary.

        frame["topic"] = [row["label"] for row in bertworks.predict("runs/topics", frame, text="question")]

    model: model folder, run folder, or a loaded model. data: a list of texts, or of tuples of texts (pairs, question
    and context, text and choices); a pandas or polars DataFrame, a datasets.Dataset, a list of dictionaries; or the
    path of a file, as in `bertworks predict`. text, choices: columns of a table; by default those of fine-tuning. A row
    without text is not predicted; it is {"empty": True}. all_scores: add the scores of all labels. n_best: number of
    answers to each question. out: file to write the predictions to as well: a table if it ends in .csv, .tsv or .xlsx,
    else JSON lines.
    Raises InputError for unfit data, with the row.
    """
    with argument_names():
        file, source = None if out is None else Path(out), _file_or(data)
        check_file(file, [source], [find_model(model)])
        predictor = model if isinstance(model, Predictor) else Predictor(model, precision=precision, engine=engine)
        columns = Columns(comma_separated(text), comma_separated(choices))
        rows = Rows(predict_data(predictor, source, columns, Counts(), all_scores, n_best))
        if not isinstance(data, str | Path):
            for row in rows:
                del row["line"]
        if file is not None:
            write_results(rows, file)
        return rows


@hinted
def features(
    model: ModelLike,
    data: Any,
    *,
    text: Columned = (),
    layers: str = "last",
    pool: Literal["mean", "cls", "max"] | None = None,
    words: Literal["first", "mean"] | None = None,
    specials: bool = False,
    dtype: Literal["float32", "float16"] = "float32",
    precision: Literal["float32", "bfloat16"] = "float32",
    max_length: int | None = None,
    out: Path | str | None = None,
    device: str | None = None,
) -> Any:
    """The vectors of texts: with `pool` an array (N, W), else for each text its `Features`, a vector for each token.

        vectors = bertworks.features("runs/base", frame, pool="mean")

    model: model folder, run folder, or a loaded model. data: a list of texts or of pairs; a pandas or polars DataFrame,
    a datasets.Dataset, a list of dictionaries; or the path of a file. text: column of a table, or two for pairs; by
    default those of the table that the model was fine-tuned on, or text. layers, pool, words, ...: see FeatureConfig.
    out: write them to this file instead (.safetensors, .parquet), in constant memory, and return how many were
    written. device: cpu or cuda; none: a GPU if there is one. Raises InputError for unfit data, with the row.
    """
    with argument_names():
        config = FeatureConfig(layers, pool, words, specials, dtype, precision, max_length)
        source = _file_or(data)
        if out is not None:
            writer_for(Path(out), [source], [find_model(model)])  # refused before minutes of computing
        source = source if isinstance(source, str) else in_memory(source)
        columns = columns_for(read_task(find_model(model)), source, Columns(comma_separated(text)))._replace(choices=())
        extractor = Extractor.load(model, config, device)
        if out is not None:
            return write_features(extractor, source, columns, Path(out), {"model": str(find_model(model))})
        found = [*extractor.stream(one for _, one in read_texts(source, columns))]
        if not pool:
            return found
        return np.stack([one.vectors for one in found]) if found else np.empty((0, extractor.width), dtype)


def _file_or(data: Any) -> Any:
    """The path of a file as text, other data as it is. Raises InputError for a text that is no file."""
    if not isinstance(data, str | Path):
        return data
    if not could_be_path(data) or not part_of(data)[0].is_file():
        raise InputError(f"data = {shorten(str(data))}: no such file; expected a path, or texts in a list: [text]")
    return str(data)

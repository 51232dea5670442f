"""The Python API: `bertworks.finetune`, `pretrain`, `evaluate`, `predict` and `features`.

The subcommands of the same names call these functions, so that both check their arguments and report problems in the
same way: a message that names the flag --batch-size is about the argument batch_size.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .checkpoint.folder import load_tokenizer, read_config, read_task
from .checkpoint.locate import ModelLike, find_model
from .checkpoint.start import start_folder
from .config import find_recipe, flags_of_fields, load_recipe, with_fields
from .files import InputError, shorten
from .finetuning.recipe import FinetuneConfig, idle_fields, refuse_idle, starting_recipe
from .finetuning.run import finetune as run_finetuning
from .inference.config import FeatureConfig
from .inference.engines import Precision
from .inference.evaluation import measure
from .inference.feature_files import check_out, read_texts, write_features
from .inference.features import Extractor
from .inference.file_inputs import Columns, columns_for, in_memory
from .inference.files import Counts, check_file, predict_data, write_results
from .inference.predictor import Predictor
from .pretrained import name_of
from .pretrained.data import from_hub
from .pretraining.job import of_shape
from .pretraining.job import pretrain as run_pretraining
from .pretraining.recipe import PretrainConfig
from .reporting.progress import is_first_process
from .reporting.results import Evaluated, Rows, RunResults
from .tasks.base import KindName
from .tasks.catalogue import find_task
from .tasks.checks import check_labelled_data
from .tasks.selection import DevRows, DividedRows, comma_separated
from .tasks.table import TableForm, part_of
from .training.config import without_budget
from .training.identity import RecordCallback
from .training.run import is_finished, refuse_other_folder

Columned = str | Sequence[str]
"""The name of a column, or several: a list, or separated by commas."""


def finetune(
    model: ModelLike,
    out: Path | str,
    *,
    train: Any = None,
    dev: Any = None,
    text: Columned = "text",
    label: Columned = "",
    kind: KindName | None = None,
    choices: Columned = (),
    task: str = "",
    data: Path | str | None = None,
    encoding: str = "utf-8",
    sheet: str = "",
    train_rows: int = 0,
    dev_share: float = 0.0,
    group: str = "",
    split_seed: int = 1,
    recipe: FinetuneConfig | Path | str | None = None,
    on_record: RecordCallback | None = None,
    quiet: bool = False,
    **fields: Any,
) -> RunResults:
    """Fine-tune a model on your own examples or on a built-in task, and return the results. Call it again to resume.

        bertworks.finetune("runs/base", "runs/topics", train=frame, dev="dev.csv", epochs=2, optim={"lr": 1e-4})

    - model: model folder, run folder, model name or loaded model.
    - out: run folder to write.
    - train, dev: a path, a pandas or polars DataFrame, a datasets.Dataset, or a list of dictionaries.
    - text: text column, or two as a list or separated by a comma.
    - label: label column; "": label, or for the kind embedding none (the two texts of a row are a positive pair).
    - kind: single, pair, regression, multilabel, choice, tagging, span or embedding; None: single, or pair with two
      text columns.
    - choices: columns of a multiple choice.
    - task, data: instead of tables, a built-in task and the folder of its files.
    - encoding, sheet: of files.
    - train_rows: number of training examples to draw; 0: all.
    - dev_share: instead of dev, the fraction of train to evaluate on.
    - group: column of train; with dev_share, examples with the same value stay together.
    - split_seed: seed of train_rows and dev_share.
    - recipe: its name, a .toml file, or a FinetuneConfig; None: the task's defaults, for your own tables 3 epochs but
      at least 100 updates.
    - on_record: called with each record of the log (every `loop.log_every` updates, and every evaluation). If it
      returns True, the run stops after that update and is saved, without a model. To stop early with the best model,
      use the field `patience`.
    - quiet: print nothing.
    - fields: further arguments are fields of the recipe; a table is a dictionary, as in TOML.

    Raises InputError, with the row or the field, if examples, folder or fields are wrong, or if `out` belongs to
    another run.
    """
    folder = Path(out)
    refuse_other_folder(folder)
    config = _finetuning_recipe(recipe, task, fields)
    columns: dict[str, Any] = {"kind": kind, "text": text, "label": label, "choices": choices}
    tables: dict[str, Any] = {"data": data, "dev": dev, "train": train, "encoding": encoding, "sheet": sheet}
    division: dict[str, Any] = {"dev_share": dev_share, "group": group, "split_seed": split_seed}
    rows = DividedRows(task, **tables, **columns, **division, train_rows=train_rows)
    return _finetune_on(rows, config, model, folder, quiet, on_record)


def _finetune_on(
    rows: DividedRows, config: FinetuneConfig, model: ModelLike, out: Path, quiet: bool, on_record: Any
) -> RunResults:
    """Check model and examples, then train."""
    rows.find()
    read_config(find_model(model))  # before any row is read
    task, examples = rows.read_data()
    start, findings = start_folder(model, out), list[str]()
    if is_first_process():
        if rows.dev_share and not quiet:
            counts = f"{len(examples.train):,} rows to train on, {len(examples.dev):,} to evaluate on"
            print(f"training file: {counts}", file=sys.stderr)
        problems = check_labelled_data(task, examples.train, examples.dev, load_tokenizer(start))
        findings = [str(one) for one in problems if one.severity != "note"]
    if findings and not (quiet or is_finished(out)):
        print(*findings, sep="\n", file=sys.stderr)
    results = run_finetuning(config, task, examples, start, out, quiet, on_record)
    return RunResults(out, results or {}, tuple(findings) if results else ())


def _finetuning_recipe(recipe: FinetuneConfig | Path | str | None, task: str, fields: dict[str, Any]) -> FinetuneConfig:
    """The recipe with the given fields. Raises InputError for a field that is unknown, unfit or without effect."""
    if fields.get("teacher"):
        fields = {**fields, "teacher": str(find_model(fields["teacher"]))}
    given = flags_of_fields(fields)
    config = with_fields(starting_recipe(recipe, find_task(task) if task else None, given), fields)
    refuse_idle(idle_fields(config), given)
    return config


def pretrain(
    recipe: PretrainConfig | Path | str,
    corpus: Path | str,
    out: Path | str,
    *,
    init: ModelLike | None = None,
    on_record: RecordCallback | None = None,
    quiet: bool = False,
    **fields: Any,
) -> RunResults:
    """Pre-train an encoder on a corpus store, and return the results. Call it again to resume.

        bertworks.pretrain("cpu", corpus="store", out="runs/first", loop={"steps": 1000}, optim={"lr": 1e-3})

    - recipe: its name (`bertworks recipes`), a .toml file, or a PretrainConfig.
    - corpus: store made by `bertworks corpus build`.
    - out: run folder to write.
    - init: model folder, run folder or loaded model to continue from, whose architecture replaces the recipe's; None:
      random weights.
    - on_record: called with each record of the log. If it returns True, the run stops after that update and is saved,
      without a model.
    - quiet: print nothing.
    - fields: further arguments are fields of the recipe; a table is a dictionary, as in TOML. A budget (`loop` with
      steps, tokens or hours) replaces the recipe's.

    Raises InputError if recipe, store and `init` do not fit together, or if `out` belongs to another run.
    """
    folder = Path(out)
    refuse_other_folder(folder)
    start = None if init is None else start_folder(init, folder)
    given = recipe if isinstance(recipe, PretrainConfig) else None
    config = given or load_recipe(find_recipe(str(recipe), "pretrain"), PretrainConfig)
    config = without_budget(config, flags_of_fields(fields))
    config = with_fields(config, fields) if given or start is None else of_shape(config, start, fields)
    return RunResults(folder, run_pretraining(config, Path(corpus), folder, start, quiet, on_record) or {})


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
    encoding: str = "utf-8",
    sheet: str = "",
    precision: Precision = "float32",
) -> Evaluated:
    """Evaluate a fine-tuned model on development examples, and return its metrics.

        bertworks.evaluate("runs/topics", frame, text="question", label="topic").metrics["accuracy"]

    - model: model folder, run folder, model name or loaded model.
    - dev, text, label, kind, choices, encoding, sheet: as in `bertworks.finetune`; by default columns and kind are
      those used in fine-tuning. Labels are matched by name, not by number.
    - task, data: a built-in task and the folder of its files; task "blimp": how often a language model prefers the
      acceptable sentence of a pair.
    - precision: float32, bfloat16 or auto.

    Raises InputError, with the row, for wrong examples or an unknown label.
    """
    own = {"kind": kind, "text": text, "label": label, "choices": choices}
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    form: dict[str, Any] = {"encoding": encoding, "sheet": sheet}
    rows = DevRows(task, data, dev, **given, **form)  # type: ignore[arg-type]  # a path, in a command
    return Evaluated(measure(model, rows, given, precision))


def predict(
    model: ModelLike,
    data: Any,
    *,
    text: Columned = (),
    choices: Columned = (),
    encoding: str = "utf-8",
    sheet: str = "",
    all_scores: bool = False,
    n_best: int = 1,
    out: Path | str | None = None,
    precision: Precision = "float32",
) -> Rows:
    """Predict a label, entities, an answer or a choice for every input, in order; each is a dictionary.

        frame["topic"] = [row["label"] for row in bertworks.predict("runs/topics", frame, text="question")]

    - model: model folder, run folder, model name or loaded model.
    - data: a list of texts, or of tuples of texts (pairs, question and context, text and choices); a pandas or polars
      DataFrame, a datasets.Dataset, a list of dictionaries; or the path of a file, as in `bertworks predict`.
    - text, choices: columns of a table; by default those used in fine-tuning.
    - encoding, sheet: of a file.
    - all_scores: add the scores of all labels.
    - n_best: number of answers per question.
    - out: file to which the predictions are also written: a table if it ends in .csv or .tsv, else JSON lines.
    - precision: float32, bfloat16 or auto.

    An input without text is not predicted; its result is {"empty": True}.
    Raises InputError, with the row, for wrong data.
    """
    file, source = None if out is None else Path(out), _file_or(data)
    check_file(file, [source], [find_model(model)])
    predictor = model if isinstance(model, Predictor) else Predictor(model, precision=precision)
    columns = Columns(comma_separated(text), comma_separated(choices), TableForm(encoding, sheet))
    rows = Rows(predict_data(predictor, source, columns, Counts(), all_scores, n_best))
    if file is not None:
        write_results(rows, file)
    return rows


def features(
    model: ModelLike,
    data: Any,
    *,
    text: Columned = (),
    encoding: str = "utf-8",
    sheet: str = "",
    layers: str = "last",
    pool: Literal["mean", "cls"] | None = None,
    words: Literal["first", "mean"] | None = None,
    specials: bool = False,
    precision: Literal["float32", "bfloat16"] = "float32",
    max_length: int | None = None,
    out: Path | str | None = None,
    device: str | None = None,
) -> Any:
    """The vectors of texts: with `pool` an array (N, W), else the `Features` of each text, with a vector per token.

        vectors = bertworks.features("runs/base", frame, pool="mean")

    - model: model folder, run folder, model name or loaded model.
    - data: a list of texts or of pairs; a pandas or polars DataFrame, a datasets.Dataset, a list of dictionaries; or
      the path of a file ("-": standard input).
    - text: column of a table, or two for pairs; by default those used in fine-tuning, or text.
    - encoding, sheet: of a file.
    - layers, pool, words, specials, precision, max_length: see FeatureConfig.
    - out: write the vectors to this .safetensors file in constant memory, and return their number.
    - device: cpu or cuda; None: a GPU if available.

    Raises InputError, with the row, for wrong data.
    """

    config = FeatureConfig(layers, pool, words, specials, precision, max_length)
    source = _file_or(data)
    if out is not None:
        check_out(Path(out), [source], [find_model(model)])  # refused before minutes of computing
    source = source if isinstance(source, str) else in_memory(source)
    given = Columns(comma_separated(text), form=TableForm(encoding, sheet))
    columns = columns_for(read_task(find_model(model)), source, given)._replace(choices=())
    extractor = Extractor.load(model, config, device)
    if out is not None:
        name = name_of(find_model(model)) or str(find_model(model))
        return write_features(extractor, source, columns, Path(out), {"model": name})
    results = [*extractor.stream(one for _, one in read_texts(source, columns))]
    if not pool:
        return results
    return np.stack([one.vectors for one in results]) if results else np.empty((0, extractor.width), np.float32)


def _file_or(data: Any) -> Any:
    """The path of a file as text, other data unchanged. Raises InputError for a text that is no file."""
    data = from_hub(data)
    if not isinstance(data, str) or data == "-":
        return str(data) if isinstance(data, Path) else data  # reading it reports a missing file
    if not os.path.isfile(part_of(data)[0]):
        raise InputError(f"data = {shorten(str(data))}: no such file; expected a path, or texts in a list: [text]")
    return data

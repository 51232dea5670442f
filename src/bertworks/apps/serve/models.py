"""A served model: a predictor, and the steps that its heads allow; `explain` is one of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from ...checkpoint.locate import find_model, is_export, refuse_export, run_name
from ...checkpoint.pooling import read_prompts
from ...files import InputError
from ...inference.engines import Precision
from ...inference.predictor import Predictor
from ...inference.steps import Embedder, Steps
from ...pretrained import folder_of
from ...reporting.run_files import EXAMPLES, read_json_lines
from ...tasks.inputs import Inputs
from ...tasks.sequences import Integers
from ..probing.explanation import LONGEST, Explained, explain, keep
from .errors import HTTPError, without_folders

# ---- explanations


@dataclass(frozen=True)
class ExplainedRows:
    """One sentence, cut to size. The queue takes it for inputs of one sequence.

    An explanation is many passes of one sentence, so it is no batch of rows: it takes its turn in the queue as one
    sequence whose cost is the tokens of all its passes.
    """

    explained: Explained

    @property
    def inputs(self) -> Inputs:
        return cast(Inputs, self.explained)

    @property
    def tokens(self) -> Integers:
        return np.array([len(self.explained.encoding.ids)])

    @property
    def cut(self) -> Integers:
        return np.array([self.explained.cut])

    def decode(self, scores: Any, *_: Any) -> list[dict[str, Any]]:
        """The explanation, as `explain` returns it."""
        return [scores | {"cut": self.explained.cut}]


class ExplainSteps(Steps[ExplainedRows]):
    """Explanations of one (text, pair or None) each, cut to LONGEST tokens."""

    def __init__(self, predictor: Predictor):
        """Raises InputError if the folder is an export."""
        super().__init__(predictor.loaded)
        refuse_export(predictor.folder)
        self.predictor = predictor
        self.limit = min(LONGEST, predictor.model.config.max_length)

    def prepare(self, rows: Sequence[tuple[str, str | None]]) -> ExplainedRows:
        ((a, b),) = rows
        return ExplainedRows(keep(self.predictor, a, b, self.limit))

    def token_costs(self, inputs: Inputs) -> Integers:
        """Every token is hidden in a pass of its own; the other passes are few."""
        T = len(cast(Explained, inputs).encoding.ids)
        return np.array([T * (T + 3)])

    def score_inputs(self, parts: Sequence[Inputs]) -> list[Tensor]:
        return [self.forward(part) for part in parts]

    def forward(self, inputs: Inputs) -> Tensor:
        """The dictionary of `explain`, which the queue hands on as it would scores."""
        explained = cast(Explained, inputs)
        return cast(Tensor, explain(self.predictor, explained.a, explained.b))


# ---- models

WORDS = "a few words to begin with " * 8
Make = Callable[[Predictor], Steps[Any]]
Row = Callable[[Predictor], Any]

# The name of each kind of result: its words, its steps, and a row that any such model can read (for its first batch).
# A head that is missing, or an export without weights, makes its steps raise InputError.
STEPS: dict[str, tuple[str, Make, Row]] = {
    "classify": ("classify", lambda one: one.classifier, lambda one: (WORDS, None)),
    "tag": ("find entities", lambda one: one.tagger, lambda one: WORDS),
    "answer": ("answer questions", lambda one: one.answerer, lambda one: ("a few words?", WORDS)),
    "choose": ("choose continuations", lambda one: one.chooser, lambda one: (WORDS, ["a", "b"])),
    "fill_mask": ("fill masks", lambda one: one.mask_filler, lambda one: f"a {one.tokenizer.roles['mask']}"),
    "embed": ("embed texts", lambda one: one.embedder(), lambda one: WORDS),
    "next_sentence": ("judge next sentences", lambda one: one.next_sentence_steps, lambda one: (WORDS, WORDS)),
    "explain": ("explain", ExplainSteps, lambda one: ("a b", None)),
}

EXAMPLE = {"text?": str, "pair?": str, "question?": str, "context?": str, "choices?": [str], "label?": (str, int)}


class ServedModel:
    """A folder that is served under a name."""

    examples: Sequence[Mapping[str, Any]] = ()  # rows for the page, from a run folder if requested

    def __init__(self, name: str, predictor: Predictor, prompts: Mapping[str, str] | None = None):
        """prompts: of a sentence-transformers folder, by name. Raises InputError if its engine cannot compute it."""
        self.name, self.predictor, self.prompts = name, predictor, dict(prompts or {})
        self.steps: dict[str, Steps[Any]] = {}
        self.missing: dict[str, str] = {}  # steps that the folder has no head for: why
        for step, (_, make, _) in STEPS.items():
            try:
                self.steps[step] = make(predictor)
            except InputError as error:
                self.missing[step] = str(error)

    @classmethod
    def load(cls, argument: str, precision: Precision = "auto", examples: bool = False) -> "ServedModel":
        """The model of `FOLDER` or `NAME=FOLDER`; a model name may be used in place of the folder.

        examples: whether the page offers the development examples of a run folder. Raises InputError if the folder is
        missing or damaged, or the model cannot be computed as asked.
        """
        name, equals, folder = argument.partition("=")
        if not equals or Path(argument).exists():
            name, folder = run_name(find_model(argument).resolve()).rpartition("/")[2], argument
        if not name or "/" in name or not folder:
            raise InputError(f"{argument!r}: expected FOLDER, or NAME=FOLDER with a name without a slash")
        # a whole path, which is never a word of a message: Service.without_paths replaces it there
        predictor = Predictor(find_model(folder).resolve(), precision=precision)
        model = cls(name, predictor, read_prompts(find_model(folder)))
        if examples and (path := folder_of(folder) / EXAMPLES).is_file():
            model.examples = read_json_lines(path, EXAMPLE)
        return model

    def steps_of(self, step: str) -> Steps[Any]:
        """The steps of this name. Raises HTTPError (424) if the folder has no head for them, or is an export."""
        if step not in self.steps:
            able, folder = ", ".join(self.abilities), self.predictor.folder
            why = f": {without_folders(self.missing[step], {str(folder): self.name})}" if is_export(folder) else ""
            raise HTTPError(424, f"the model {self.name!r} cannot {STEPS[step][0]}{why}; it can: {able}")
        return self.steps[step]

    @property
    def embedder(self) -> Embedder:
        """The steps of `embed`. Raises HTTPError as `steps_of`."""
        return cast(Embedder, self.steps_of("embed"))

    def first_inputs(self, step: str) -> Inputs:
        """Inputs of a first batch."""
        inputs: Inputs = self.steps[step].prepare([STEPS[step][2](self.predictor)]).inputs
        return inputs

    @property
    def reads_single(self) -> bool:
        """Whether it was fine-tuned on single texts; False where the folder, of other software, does not say it."""
        return self.predictor.loaded.texts_a_row == 1

    @property
    def compares(self) -> bool:
        """Whether it was trained as an embedder, and has no classifier: the cosine of its vectors is a likeness."""
        trained = self.predictor.kind == "embedding" or self.predictor.pooling is not None
        return trained and "embed" in self.steps and "classify" not in self.steps

    @property
    def entailment(self) -> tuple[int, int] | None:
        """The outputs for entailment and against it; None if the labels are others."""
        labels = [label.lower() for label in self.predictor.loaded.labels]
        yes = [i for i, label in enumerate(labels) if label.startswith("entail")]
        no = [i for i, label in enumerate(labels) if label.startswith(("contradict", "not_entail"))]
        return (yes[0], no[0]) if yes and no else None

    @property
    def abilities(self) -> list[str]:
        """What it can do, in words."""
        return [STEPS[step][0] for step in self.steps]

    @property
    def info(self) -> dict[str, Any]:
        """What clients may know of it: no paths."""
        predictor, config = self.predictor, self.predictor.model.config
        return {
            "name": self.name,
            "kind": predictor.kind,
            "can": list(self.steps),
            "labels": list(predictor.loaded.labels),
            "reads_single": self.reads_single,
            "max_length": predictor.max_length,
            "precision": predictor.loaded.engine.precision,
            "engine": predictor.loaded.engine.name,
            "vocab_size": predictor.tokenizer.vocab_size,
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "mask_token": predictor.tokenizer.roles["mask"],
            "prompts": list(self.prompts),
        }


def load_models(
    arguments: Sequence[str], precision: Precision = "auto", examples: bool = False
) -> dict[str, ServedModel]:
    """The models of `FOLDER` or `NAME=FOLDER`, by name. Raises InputError if none is given, or two have one name."""
    if not arguments:
        raise InputError("no folder to serve; expected a run or a model folder: bertworks serve runs/sst2")
    models: dict[str, ServedModel] = {}
    for argument in arguments:
        model = ServedModel.load(argument, precision, examples)
        if model.name in models:
            raise InputError(f"two folders of the name {model.name!r}; give each a name of its own: NAME=FOLDER")
        models[model.name] = model
    return models

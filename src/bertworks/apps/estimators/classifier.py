"""An encoder that is fine-tuned on texts and their classes, as a scikit-learn classifier."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from ...api import finetune
from ...checkpoint.folder import read_config
from ...checkpoint.locate import ModelLike, find_model
from ...inference.predictor import Predictor
from ...tasks.base import Example, LengthLimits
from .texts import TextEstimator, rows_of, value_errors


class EncoderClassifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of texts, or pairs of texts: `fit` fine-tunes an encoder.

        GridSearchCV(EncoderClassifier("runs/base"), {"lr": [2e-5, 1e-4]}).fit(texts, labels)

    model: model folder, run folder, or a loaded model to start from. epochs: passes over the rows; none: 3, and at
    least 100 updates. lr: peak learning rate. max_length: tokens an input may have; none: 128, or the model's positions
    if they are fewer. random_state: seed of new weights, order and dropout. fields: further fields of the recipe of
    fine-tuning, as in `bertworks.finetune`: {"optim": {"warmup": 0.2}}. verbose: show the run.

    All rows are trained on: nothing is held back or chosen by. `cross_val_score` measures, `bertworks.finetune` keeps a
    run that can be resumed. A fitted classifier holds the bytes of its model folder, in `files_`; a pickle needs
    nothing else.
    """

    def __init__(
        self,
        model: ModelLike = "",
        *,
        epochs: float | None = None,
        lr: float = 5e-5,
        batch_size: int = 32,
        max_length: int | None = None,
        random_state: int = 12345,
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ):
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.max_length = max_length
        self.random_state = random_state
        self.fields = fields
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> "EncoderClassifier":
        """Fine-tune. Raises ValueError for other than texts, unfit classes, or an unfit model."""
        rows = rows_of(X)
        if y is None:
            raise ValueError("This EncoderClassifier requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(rows, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has only one class, {self.classes_.tolist()[0]!r}; expected rows of two classes or more"
            )
        several = len(rows[0]) == 2
        examples = [
            Example(row[0], row[1] if several else None, str(number)) for row, number in zip(rows, numbers, strict=True)
        ]
        first = [examples[i] for i in np.unique(numbers, return_index=True)[1]]  # a run must be evaluated on something
        with value_errors(), tempfile.TemporaryDirectory() as folder:
            run = finetune(
                self.model,
                Path(folder) / "run",
                train=examples,
                dev=first,
                kind="pair" if several else "single",
                text=("text", "pair") if several else "text",
                quiet=not self.verbose,
                **self._fields(),
            )
            if not run.finished:
                raise KeyboardInterrupt
            files = (path for path in (run.folder / "model").iterdir() if path.is_file())
            self.files_ = {path.name: path.read_bytes() for path in files}
        self._loaded = self._load()
        self._texts = len(rows[0])
        return self

    def _fields(self) -> dict[str, Any]:
        positions = read_config(find_model(self.model))[0].max_length
        length = self.max_length or min(LengthLimits.max_seq_length, positions)
        return {
            "max_seq_length": length,
            "batch_size": self.batch_size,
            "optim.lr": self.lr,
            "loop.seed": self.random_state,
            **({"epochs": self.epochs} if self.epochs is not None else {}),
            **(self.fields or {}),
        }

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(N, K) probabilities of the classes, in the order of `classes_`. Long single texts are read in windows."""
        check_is_fitted(self, "files_")
        rows = rows_of(X)
        if len(rows[0]) != self._texts:
            raise ValueError(f"X has rows of {len(rows[0])} texts; expected {self._texts}, as in fit")
        pairs = ((row[0], row[1] if len(row) == 2 else None) for row in rows)
        with value_errors():
            model = self._model()
            found = [result["scores"] for result in model.stream(model.classifier, pairs)]
        return np.array([[scores[str(k)] for k in range(len(self.classes_))] for scores in found])

    def predict(self, X: Any) -> NDArray[Any]:
        """(N,) the likeliest class of each row."""
        check_is_fitted(self, "files_")
        chosen: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(1)]
        return chosen

    def _load(self) -> Predictor:
        """The fine-tuned model, from its files."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files_.items():
                (Path(folder) / name).write_bytes(content)
            return Predictor(folder)

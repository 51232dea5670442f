"""Encoders as scikit-learn estimators: a transformer of texts to vectors, and a classifier that is fine-tuned.

X is a list of texts or of pairs of texts, a column, or a table with one or two columns of texts.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from ...api import finetune
from ...checkpoint.folder import read_config
from ...checkpoint.locate import ModelLike, find_model
from ...files import InputError
from ...inference.config import FeatureConfig
from ...inference.features import Extractor
from ...inference.predictor import Predictor
from ...tasks.base import LengthLimits
from ...tasks.rows import text_rows_of


def rows_of(X: Any) -> list[tuple[str, ...]]:
    """One or two texts for each row of X. Raises ValueError or TypeError for anything else, with the row."""
    array = check_array(X, dtype=object, ensure_2d=False, ensure_all_finite=False)
    try:
        rows = [*text_rows_of(array.tolist(), "X")]
    except InputError as error:
        raise ValueError(str(error)) from error
    widths = {len(row) for row in rows}
    if len(widths) > 1 or not widths <= {1, 2}:
        lengths = " and ".join(map(str, sorted(widths)))
        raise ValueError(f"X has rows of {lengths} texts; expected one text each, or two each")
    return rows


class TextEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of texts. `fit` stores the model that `_load` returns as `_loaded`; a pickle leaves it out."""

    def _model(self) -> Any:
        return self.__dict__.get("_loaded") or self._load()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags


class EncoderVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]  # untyped
    """A vector for each text, or pair of texts, from the layers of an encoder (paper, section 5.3).

        make_pipeline(EncoderVectorizer("runs/base"), LogisticRegression()).fit(texts, labels)

    model: model folder, run folder, or a loaded model; a pickle of the vectorizer holds what is given here, so a folder
    must exist when it is used again. layers, pool, max_length, precision, device: as in `bertworks.features`. `fit`
    learns nothing: it loads the encoder. `transform` gives (N, W) float32.
    """

    def __init__(
        self,
        model: ModelLike = "",
        *,
        layers: str = "last",
        pool: Literal["mean", "cls"] = "mean",
        max_length: int | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
        device: str | None = None,
    ):
        self.model = model
        self.layers = layers
        self.pool = pool
        self.max_length = max_length
        self.precision = precision
        self.device = device

    def fit(self, X: Any, y: Any = None) -> "EncoderVectorizer":
        """Load the encoder. Raises ValueError for X that is no list of texts, InputError for an unfit model."""
        rows_of(X)
        self._loaded = self._load()
        self.width_ = self._n_features_out = self._loaded.width
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """(N, W) vectors of N texts or pairs, in their order. Raises ValueError for X that is no list of texts."""
        check_is_fitted(self, "width_")
        texts = [row[0] if len(row) == 1 else row for row in rows_of(X)]
        return np.stack([features.vectors for features in self._model().stream(texts)])

    def _load(self) -> Extractor:
        config = FeatureConfig(self.layers, self.pool, precision=self.precision, max_length=self.max_length)
        return Extractor.load(self.model, config, self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


class EncoderClassifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of texts, or pairs of texts: `fit` fine-tunes an encoder.

        GridSearchCV(EncoderClassifier("runs/base"), {"lr": [2e-5, 1e-4]}).fit(texts, labels)

    model: model folder, run folder, or a loaded model to start from. epochs: passes over the rows; none: 3, and at
    least 100 updates. lr: peak learning rate. max_length: tokens an input may have; none: 128, or the model's positions
    if they are fewer. random_state: seed of new weights, order and dropout. fields: further fields of the recipe of
    fine-tuning, as in `bertworks.finetune`: {"optim": {"warmup": 0.2}}. verbose: show the run.

    All rows are trained on: none is held out. `cross_val_score` measures, `bertworks.finetune` writes a run that can be
    resumed. A fitted classifier holds the bytes of its model folder, in `files_`; a pickle needs nothing else.
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
        """Fine-tune. Raises ValueError for other than texts or unfit classes, InputError for an unfit model."""
        rows = rows_of(X)
        if y is None:
            raise ValueError("This EncoderClassifier requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_consistent_length(rows, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has only one class, {self.classes_.tolist()[0]!r}; expected two or more")
        columns = ("text", "pair")[: len(rows[0])]
        labelled = zip(rows, numbers, strict=True)
        examples = [dict(zip((*columns, "label"), (*row, str(number)), strict=True)) for row, number in labelled]
        first = [examples[i] for i in np.unique(numbers, return_index=True)[1]]  # a run must be evaluated on something
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            data: dict[str, Any] = {"train": examples, "dev": first, "text": columns}
            run = finetune(self.model, out, **data, quiet=not self.verbose, **self._recipe_fields())
            if not run.finished:
                raise KeyboardInterrupt
            files = (path for path in (out / "model").iterdir() if path.is_file())
            self.files_ = {path.name: path.read_bytes() for path in files}
        self._loaded = self._load()
        return self

    def _recipe_fields(self) -> dict[str, Any]:
        positions = read_config(find_model(self.model))[0].max_length
        return {
            "max_seq_length": self.max_length or min(LengthLimits.max_seq_length, positions),
            "batch_size": self.batch_size,
            "optim.lr": self.lr,
            "loop.seed": self.random_state,
            **({} if self.epochs is None else {"epochs": self.epochs}),
            **(self.fields or {}),
        }

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(N, K) probabilities of the classes, in the order of `classes_`. Long single texts are read in windows."""
        check_is_fitted(self, "files_")
        columns = [[*column] for column in zip(*rows_of(X), strict=True)]
        results = self._model().classify(*columns, all_scores=True)
        return np.array([[result["scores"][str(k)] for k in range(len(self.classes_))] for result in results])

    def predict(self, X: Any) -> NDArray[Any]:
        """(N,) the likeliest class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]  # type: ignore[no-any-return]

    def _load(self) -> Predictor:
        """The fine-tuned model, from its files."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files_.items():
                (Path(folder) / name).write_bytes(content)
            return Predictor(folder)

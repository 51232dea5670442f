"""Texts to vectors of an encoder, as a scikit-learn transformer (paper, section 5.3)."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ...checkpoint.locate import ModelLike
from ...inference.config import FeatureConfig
from ...inference.features import Extractor
from .texts import TextEstimator, rows_of, value_errors


class EncoderVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]  # untyped
    """A vector for each text, or pair of texts, from the layers of an encoder.

        make_pipeline(EncoderVectorizer("runs/base"), LogisticRegression()).fit(texts, labels)

    model: model folder, run folder, or a loaded model; a pickle of the vectorizer holds what is given here, so a folder
    must be there when it is used again. layers, pool, max_length, precision: as in `bertworks.features`. `fit` learns
    nothing: it loads the encoder. `transform` gives (N, W) float32.
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
        """Load the encoder. Raises ValueError for X that is no list of texts, or an unfit model."""
        rows_of(X)
        self._loaded = self._load()
        self.width_ = self._loaded.width
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """(N, W) vectors of N texts or pairs, in their order. Raises ValueError for what is no list of texts."""
        check_is_fitted(self, "width_")
        texts = [row[0] if len(row) == 1 else row for row in rows_of(X)]
        with value_errors():
            vectors: NDArray[np.float32] = np.stack([found.vectors for found in self._model().stream(texts)])  # type: ignore[arg-type]  # rows of two
        return vectors

    @property
    def _n_features_out(self) -> int:
        return self.width_

    def _load(self) -> Extractor:
        with value_errors():
            config = FeatureConfig(self.layers, self.pool, precision=self.precision, max_length=self.max_length)
            return Extractor.load(self.model, config, self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

"""scikit-learn estimators over texts, for pipelines and searches over settings.

A separate package, because the classifier trains (finetuning) and predicts (inference), which do not import each
other.

    estimators.py  texts to vectors of an encoder, and an encoder fine-tuned on texts and their classes
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .estimators import EncoderClassifier as EncoderClassifier
    from .estimators import EncoderVectorizer as EncoderVectorizer

__all__, __getattr__, __dir__ = lazy_names(__name__)

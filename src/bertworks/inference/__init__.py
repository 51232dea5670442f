"""A trained folder at work: predictions, vectors and metrics.

In reading order:

    model.py            a model folder in memory, shared by all others
    predictor.py        raw text in, predictions out: `Predictor`
    steps.py            prepare, score, decode: labels, tags, answers, choices, vectors; requests share a pass
    masks.py            the same three steps for masks
    files.py            predictions for every line or row of a file (`bertworks predict`)
    evaluation.py       metrics on labelled rows (`bertworks evaluate`)
    features.py         vectors of texts from any layers: `Extractor`
    feature_files.py    files of such vectors (`bertworks features`)
"""

from .evaluation import Evaluation, evaluate
from .feature_files import write_features
from .features import Extractor, FeatureConfig, Features, extract
from .files import predict_file, predict_texts
from .masks import Candidate, MaskFiller
from .model import LoadedModel
from .predictor import Predictor
from .steps import Embedder, HeadSteps, Steps

__all__ = [
    "Candidate",
    "Embedder",
    "Evaluation",
    "Extractor",
    "FeatureConfig",
    "Features",
    "HeadSteps",
    "LoadedModel",
    "MaskFiller",
    "Predictor",
    "Steps",
    "evaluate",
    "extract",
    "predict_file",
    "predict_texts",
    "write_features",
]

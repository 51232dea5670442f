"""A trained folder at work: predictions, vectors and metrics.

In reading order:

    model.py            a model folder in memory, shared by all others
    engines.py          how it computes: engine and precision
    exported.py         engines of exported folders
    predictor.py        raw text in, predictions out: `Predictor`
    steps.py            prepare, score, decode: labels, tags, answers, choices, vectors; requests share a pass
    masks.py            the same three steps for masks
    next_sentence.py    the same three steps for pairs: does B follow A?
    file_inputs.py      the inputs of files: lines, rows of tables, questions
    files.py            predictions for every line or row of a file (`bertworks predict`)
    evaluation.py       metrics on labelled rows (`bertworks evaluate`)
    text_perplexity.py  how well a language model predicts any text (`bertworks evaluate --perplexity`)
    config.py           the settings of features
    features.py         vectors of texts from any layers: `Extractor`
    feature_files.py    files of such vectors (`bertworks features`)
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .config import FeatureConfig as FeatureConfig
    from .engines import Computing as Computing
    from .engines import Engine as Engine
    from .evaluation import Evaluation as Evaluation
    from .evaluation import evaluate as evaluate
    from .evaluation import save_thresholds as save_thresholds
    from .feature_files import write_features as write_features
    from .features import Extractor as Extractor
    from .features import Features as Features
    from .files import predict_data as predict_data
    from .files import predict_texts as predict_texts
    from .masks import Candidate as Candidate
    from .masks import MaskFiller as MaskFiller
    from .model import LoadedModel as LoadedModel
    from .next_sentence import Following as Following
    from .next_sentence import NextSentence as NextSentence
    from .predictor import Predictor as Predictor
    from .steps import Embedder as Embedder
    from .steps import HeadSteps as HeadSteps
    from .steps import Steps as Steps
    from .text_perplexity import perplexity as perplexity

__all__, __getattr__, __dir__ = lazy_names(__name__)

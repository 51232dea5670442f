"""bertworks: pre-train, fine-tune, evaluate and serve BERT encoders. Importing it does not import torch."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._lazy import lazy_names as _lazy_names
from ._version import __version__ as __version__

if _TYPE_CHECKING:
    from .api import evaluate as evaluate
    from .api import features as features
    from .api import finetune as finetune
    from .api import predict as predict
    from .api import pretrain as pretrain
    from .apps.estimators.estimators import EncoderClassifier as EncoderClassifier
    from .apps.estimators.estimators import EncoderVectorizer as EncoderVectorizer
    from .checkpoint.folder import load_encoder as load_encoder
    from .checkpoint.folder import load_model as load_model
    from .experiments.compare import compare as compare
    from .files import InputError as InputError
    from .inference.predictor import Predictor as Predictor
    from .model.bert import Encoder as Encoder
    from .model.config import ModelConfig as ModelConfig
    from .reporting.results import read_log as read_log
    from .tokenizer import Tokenizer as Tokenizer

__all__, __getattr__, _ = _lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})

"""bertworks: the whole life of a BERT encoder. Importing it loads no torch."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from .checkpoint.folder import load_encoder, load_model
    from .files import InputError
    from .inference.predictor import Predictor
    from .model.config import ModelConfig
    from .model.encoder import Encoder
    from .tokenizer import Tokenizer

__version__ = "0.2.0"
_HOME = {
    "Encoder": "model.encoder",
    "InputError": "files",
    "ModelConfig": "model.config",
    "Predictor": "inference.predictor",
    "Tokenizer": "tokenizer",
    "load_encoder": "checkpoint.folder",
    "load_model": "checkpoint.folder",
}
__all__ = ["Encoder", "InputError", "ModelConfig", "Predictor", "Tokenizer", "load_encoder", "load_model"]


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})


def __getattr__(name: str) -> _Any:
    import importlib

    if name not in _HOME:
        import difflib

        near = difflib.get_close_matches(name, __all__, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"module 'bertworks' has no attribute {name!r}{hint}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)

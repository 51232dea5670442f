"""bertworks: the whole life of a BERT encoder. Importing it loads no torch."""

import sys as _sys
from collections.abc import Callable as _Callable
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.2.0"


def lazy_names(package: str) -> tuple[list[str], _Callable[[str], _Any], _Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    The names are those that its `__init__.py` imports from its own files under `if TYPE_CHECKING`, where readers,
    editors and type checkers find them. So a package names what is public, and `--help` loads no torch.
    Raises ImportError if the source file is missing (an installation of .pyc files alone).
    """
    import ast
    import importlib
    import pkgutil

    try:
        source = pkgutil.get_data(package, "__init__.py")
    except OSError:
        source = None
    if source is None:
        raise ImportError(
            f"{package}/__init__.py is missing; bertworks reads its source files for the names that it exports; "
            "install it with its .py files"
        )
    guarded = [block for block in ast.parse(source).body if isinstance(block, ast.If)]
    imports = [one for block in guarded for one in block.body if isinstance(one, ast.ImportFrom)]
    home = {alias.name: f"{package}.{one.module}" for one in imports for alias in one.names}

    def get(name: str) -> _Any:
        if name not in home:
            import difflib

            near = difflib.get_close_matches(name, home, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        import random

        state = random.getstate()
        value = getattr(importlib.import_module(home[name]), name)
        random.setstate(state)  # rich draws a number where it is imported
        setattr(_sys.modules[package], name, value)
        return value

    return sorted(home), get, lambda: sorted({*home, *vars(_sys.modules[package])})


if _TYPE_CHECKING:
    from .checkpoint.folder import load_encoder as load_encoder
    from .checkpoint.folder import load_model as load_model
    from .doctor.functions import finetune as finetune
    from .doctor.functions import pretrain as pretrain
    from .estimators.classifier import EncoderClassifier as EncoderClassifier
    from .estimators.vectorizer import EncoderVectorizer as EncoderVectorizer
    from .experiments.compare import compare as compare
    from .files import InputError as InputError
    from .inference.functions import evaluate as evaluate
    from .inference.functions import features as features
    from .inference.functions import predict as predict
    from .inference.predictor import Predictor as Predictor
    from .model.config import ModelConfig as ModelConfig
    from .model.encoder import Encoder as Encoder
    from .reporting.results import read_log as read_log
    from .tokenizer import Tokenizer as Tokenizer

__all__, __getattr__, _ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__})

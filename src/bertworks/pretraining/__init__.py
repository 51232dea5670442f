"""Pre-training: a corpus store becomes an encoder.

In reading order:

    recipe.py    the recipes of pre-training and distillation, the settings of word2vec
    run.py       pre-training on a store: the feed of batches, evaluation, results
    job.py       pre-training from folders: checks, the initial model, the model folder
    texts.py     raw text to vocabulary and store, for `pretrain --texts`
    distill.py   a smaller student of a pre-trained teacher
    estimate.py  how long a recipe takes, and how much memory it needs
    static.py    word2vec on a store, to compare with
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .job import pretrain as pretrain
    from .recipe import DistillConfig as DistillConfig
    from .recipe import PretrainConfig as PretrainConfig
    from .static import train_static as train_static

__all__, __getattr__, __dir__ = lazy_names(__name__)

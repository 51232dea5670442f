"""Fine-tuning: trains a model for a task from a model folder and labelled examples.

In reading order:

    recipe.py         the recipe
    job.py            what the runs of several seeds share: examples as tokens, labels; checks of settings
    run.py            one run, runs with several seeds, their mean and standard deviation
    subset_embedding.py  training without the embeddings of tokens that do not occur
    teacher.py        distillation: scores of a fine-tuned teacher
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .recipe import FinetuneConfig as FinetuneConfig
    from .run import finetune as finetune

__all__, __getattr__, __dir__ = lazy_names(__name__)

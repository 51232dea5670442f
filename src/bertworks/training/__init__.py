"""Training: objectives, the loop, the optimizer, and runs that resume exactly. It knows nothing of text or tasks.

In reading order:

    config.py           budget, precision, optimizer: what every recipe sets; how far a run has come
    objectives.py       what pre-training learns, as sums and counts
    task_objectives.py  what fine-tuning and distillation learn
    vocabulary_loss.py  cross entropy over the vocabulary, in blocks
    trainer.py          one training step after another: `Trainer.steps`
    loop.py             a run: log, evaluate and keep the best weights, save, stop, after each step
    optim.py            Adam and LAMB, the learning rate
    run.py              a run in its folder: open or resume, train, save, write the results
    identity.py         which run a folder belongs to
    state.py            the resumable state
    distributed.py      processes that train together
    machine.py          precision, memory, signals, process settings, and the facts that results record
    compute.py          which code computes the layers
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .config import LoopConfig as LoopConfig
    from .config import OptimConfig as OptimConfig
    from .identity import RunIdentity as RunIdentity
    from .loop import Run as Run
    from .loop import TrainingLoop as TrainingLoop
    from .optim import Optimizer as Optimizer
    from .run import open_run as open_run
    from .trainer import Trainer as Trainer

__all__, __getattr__, __dir__ = lazy_names(__name__)

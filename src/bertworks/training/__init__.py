"""Training: objectives, the loop, the optimizer, and runs that resume exactly. It knows nothing of text or tasks.

In reading order:

    config.py           budget, precision, optimizer: what every recipe sets
    objectives.py       what pre-training learns, as sums and counts
    task_objectives.py  what fine-tuning and distillation learn
    vocabulary_loss.py  cross entropy over the vocabulary, in blocks
    loop.py             the one training loop; `Loop.step` is one training step
    optim.py            Adam and LAMB, the learning rate
    run.py              a run in its folder: open or resume, train, save, write the results
    identity.py         which run a folder belongs to, in all versions of bertworks
    state.py            the resumable state; sums between two records of the log
    machine.py          device, threads, precision, processes, signals
    heap.py             what is kept of freed memory
    memory.py           whether a forward pass can fit in memory
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .config import LoopConfig as LoopConfig
    from .config import OptimConfig as OptimConfig
    from .identity import RunIdentity as RunIdentity
    from .loop import Loop as Loop
    from .optim import Optimizer as Optimizer
    from .run import Run as Run
    from .run import train_in_folder as train_in_folder

__all__, __getattr__, __dir__ = lazy_names(__name__)

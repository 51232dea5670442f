"""Training: objectives, the loop, the optimizer, and runs that resume exactly. It does not depend on text or tasks.

In reading order:

    config.py           settings of every recipe: budget, precision, optimizer; the progress of a run
    objectives.py       the losses of pre-training, as sums and counts
    task_objectives.py  the losses of fine-tuning and distillation
    vocabulary_loss.py  cross entropy over the vocabulary, in chunks
    trainer.py          one training step after another: `Trainer.steps`
    loop.py             a run: log, evaluate and keep the best weights, save, stop, after each step
    optim.py            Adam, LAMB and Muon, learning rate schedules
    state.py            the resumable state
    distributed.py      processes that train together
    precision.py        the number type of matrix products

Not needed by `pretraining/run.py`:

    identity.py         a run, and which folder belongs to it
    run.py              a run in its folder: open or resume, train, save, write the results
    log.py              the log of a run
    machine.py          memory, signals, process settings, and the facts that results record
    compute.py          selects the code that computes the layers
"""

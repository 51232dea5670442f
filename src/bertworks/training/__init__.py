"""Training: objectives, the loop, the optimizer, and runs that resume exactly. It does not depend on text or tasks.

In reading order:

    config.py           budget, precision, optimizer: what every recipe sets; how far a run has come
    objectives.py       what pre-training learns, as sums and counts
    task_objectives.py  what fine-tuning and distillation learn
    vocabulary_loss.py  cross entropy over the vocabulary, in blocks
    trainer.py          one training step after another: `Trainer.steps`
    loop.py             a run: log, evaluate and keep the best weights, save, stop, after each step
    optim.py            Adam and LAMB, the learning rate
    state.py            the resumable state
    distributed.py      processes that train together
    precision.py        the number type of matrix products

Around these, which `pretraining/run.py` does without:

    identity.py         a run, and which folder belongs to it
    run.py              a run in its folder: open or resume, train, save, write the results
    log.py              what is recorded
    machine.py          memory, signals, process settings, and the facts that results record
    compute.py          which code computes the layers
"""

"""Pre-training: trains an encoder on a corpus store.

In reading order:

    recipe.py    the recipe of pre-training
    run.py       pre-training on a store: trainer, feed of batches, evaluation
    job.py       pre-training from folders: checks, the initial model, the run folder, results
    texts.py     raw text to vocabulary and store, for `pretrain --texts`
    distill_recipe.py  the recipe of distillation
    distill.py   a smaller student of a pre-trained teacher
    estimate.py  how long a recipe takes, and how much memory it needs
    static.py    word2vec on a store, for comparison
"""

"""Inference with trained models: predictions, vectors and metrics.

In reading order:

    config.py             settings of computation and of features
    model.py              a loaded model folder, which the other files use
    engines.py            how it computes: engine and precision
    exported.py           engines of exported folders
    predictor.py          raw text in, predictions out: `Predictor`
    steps.py              prepare, score, decode: labels, tags, answers, choices, vectors; requests share a pass
    pretraining_heads.py  the same three steps for masks and for pairs: does B follow A?
    file_inputs.py        the inputs of files: lines, rows of tables, questions
    files.py              predictions for every line or row of a file (`bertworks predict`)
    evaluation.py         metrics on labelled rows (`bertworks evaluate`)
    text_perplexity.py    how well a language model predicts any text (`bertworks evaluate --perplexity`)
    likelihood.py         how likely a text is, and minimal pairs (`bertworks evaluate --task blimp`)
    features.py           vectors of texts from any layers: `Extractor`
    feature_files.py      files of such vectors (`bertworks features`)
"""

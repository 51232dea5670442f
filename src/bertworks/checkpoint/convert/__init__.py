"""Files of other software to a model folder (docs/bridges.md).

In reading order:

    options.py           the options of `bertworks convert`
    conversion.py        `bertworks convert`: read, map, write, read back, compare
    sources.py           what can be converted, and how it is found
    tensorflow.py        the variable names of google-research/bert and google-research/albert
    tensorflow_files.py  TensorFlow's checkpoint files, read without TensorFlow
"""

"""Other software's files to a model folder, and folders made anew from another's weights (docs/bridges.md).

In reading order:

    options.py           the options of `bertworks convert`
    conversion.py        `bertworks convert`: read, map, write, read back, compare
    sources.py           what can be converted, and how it is found
    resize.py            more or fewer positions, a longer vocabulary, no heads
    extension.py         `bertworks tokenizer extend`: new words
    tensorflow.py        the variable names of google-research/bert and google-research/albert
    tensorflow_files.py  TensorFlow's checkpoint files, read without TensorFlow
"""

"""Model folders: Hugging Face's layout and tensor names, read and written (docs/models.md).

In reading order:

    folder.py    load a model or a tokenizer, save a folder
    start.py     the initial model of a training: a folder with the heads that a task needs, or two folders joined
    hf.py        config.json to ModelConfig and back
    metadata.py  labels, task, top, longest input
    families.py  one table per family: tensor names, classes, keys of config.json
    keys.py      functions for keys of config.json that need more than a table
    names.py     conversion of tensor names by these tables
    weights.py   safetensors files
    card.py      the model card
    locate.py    finds model folders, and replaces them safely
    pooling.py   sentence-transformers folders
    convert/     other software's files to a folder, longer vocabularies, longer inputs
"""

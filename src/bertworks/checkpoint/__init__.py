"""Model folders: Hugging Face's layout and tensor names, read and written (docs/models.md).

In reading order:

    folder.py    load a model or a tokenizer, save a folder
    start.py     the initial model of a training: a folder with the heads that a task needs, or two folders joined
    hf.py        config.json to the encoder's shape and back
    metadata.py  labels, task, top, longest input
    families.py  one table a family: tensor names, classes, keys of config.json
    keys.py      keys of config.json that no table can say
    names.py     tensor names to ours and back, by these tables
    weights.py   safetensors files
    card.py      the model card
    locate.py    where a model folder is, and how a new one is put in place
    pooling.py   sentence-transformers folders
    convert/     other software's files to a folder, longer vocabularies, longer inputs
"""

"""Model folders: Hugging Face's layout and tensor names, read and written (docs/models.md).

In reading order:

    folder.py    load a model or a tokenizer, save a folder
    start.py     what training starts from: a folder with the heads that a task needs, or two folders joined
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

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .folder import check_size as check_size
    from .folder import load_encoder as load_encoder
    from .folder import load_model as load_model
    from .folder import load_tokenizer as load_tokenizer
    from .folder import read_config as read_config
    from .folder import save_folder as save_folder
    from .locate import find_model as find_model
    from .locate import new_folder as new_folder
    from .locate import run_name as run_name
    from .metadata import input_length as input_length
    from .metadata import labels_of as labels_of
    from .metadata import task_of as task_of
    from .pooling import Pooling as Pooling
    from .pooling import read_pooling as read_pooling
    from .pooling import write_pooling as write_pooling
    from .start import concatenate as concatenate
    from .start import initial_model as initial_model
    from .weights import weights_checksum as weights_checksum

__all__, __getattr__, __dir__ = lazy_names(__name__)

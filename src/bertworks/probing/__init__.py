"""Looking inside an encoder: what `bertworks probe` computes, as functions that return plain results.

In reading order:

    model.py            a model folder to probe: tokens and the hidden states of every layer
    words.py            whole words among token ids
    similarity.py       how far a word's vector moves with its sentence (`probe word`)
    neighbours.py       the nearest contexts of a word in a corpus (`probe neighbours`)
    attention.py        attention weights of one text and statistics of them
    attention_page.py   the same as an HTML page (`probe attention`)
    heads.py            the effect of each attention head on a score (`probe heads`)
    items.py            labelled texts and words for a layer probe
    controls.py         control tasks and baselines of a layer probe
    layers.py           how much each layer knows of a task (`probe layers`)
    pictures.py         lines over layers and heat maps
"""

from .attention import Attention, attend, statistics
from .attention_page import page
from .heads import HeadsConfig, ablate_heads
from .items import read_items
from .layers import LayersConfig, probe_layers
from .model import ProbedModel
from .neighbours import NeighbourConfig, find_neighbours
from .similarity import WordConfig, compare_word

__all__ = [
    "Attention",
    "HeadsConfig",
    "LayersConfig",
    "NeighbourConfig",
    "ProbedModel",
    "WordConfig",
    "ablate_heads",
    "attend",
    "compare_word",
    "find_neighbours",
    "page",
    "probe_layers",
    "read_items",
    "statistics",
]

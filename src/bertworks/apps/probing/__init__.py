"""Inspection of an encoder: the computations of `bertworks probe`, as functions that return plain results.

In reading order:

    config.py               the settings of each probe
    model.py                a model folder to probe: tokens, hidden states of every layer, attention weights
    words.py                whole words among token ids
    similarity.py           a word's vectors in different sentences (`probe word`)
    neighbours.py           the nearest contexts of a word in a corpus (`probe neighbours`)
    explanation_arrays.py   embeddings, queries, keys, values, words by layer of one sequence
    explanation.py          all steps of a forward pass over one text, as a dictionary
    explanation_page.py     the same as an HTML page (`bertworks probe explain`), drawn by explain*.js and .css
    heads.py                the effect of each attention head on a score (`probe heads`)
    items.py                labelled texts and words for a layer probe
    controls.py             control tasks and baselines of a layer probe
    layers.py               linear classifiers on each layer (`probe layers`)
    pictures.py             plots over layers
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .config import HeadsConfig as HeadsConfig
    from .config import LayersConfig as LayersConfig
    from .config import NeighbourConfig as NeighbourConfig
    from .config import WordConfig as WordConfig
    from .explanation import explain as explain
    from .explanation_page import explain_page as explain_page
    from .heads import ablate_heads as ablate_heads
    from .items import read_items as read_items
    from .layers import probe_layers as probe_layers
    from .model import Attention as Attention
    from .model import ProbedModel as ProbedModel
    from .model import attend as attend
    from .neighbours import find_neighbours as find_neighbours
    from .similarity import compare_word as compare_word

__all__, __getattr__, __dir__ = lazy_names(__name__)

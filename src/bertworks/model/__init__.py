"""The encoder and its heads (Devlin et al. 2019, section 3). No loss, no tokenizer, no files.

In reading order:

    config.py          an encoder's shape: BERT by default, its relatives and later ideas by setting; what a head reads
    bert.py            embeddings, self-attention, feed-forward network, layer, encoder, pooler
    attention.py       the scaled dot product, who sees whom, rotary positions
    layout.py          a batch without its padding
    dropout.py         masks that depend on (seed, step, site, row) alone
    computation.py     the attention and dropout of each layer in one pass over a batch
    heads.py           the heads, and the model that holds everything
    initialization.py  first weights, also of position heads
    presets.py         published sizes by name
    recurrent.py       LSTM and GRU layers, to compare
    pair.py            a left-to-right and a right-to-left encoder side by side
    layer_choice.py    which hidden states are taken, and how they become one vector a token
    top.py             a layer choice and a BiLSTM between encoder and head
    rectangular.py     a forward pass that keeps padding, to export
    acceleration.py    what fast/ offers, or plain PyTorch without it
    openmp.py          threads: how long OpenMP's wait actively, and after a fork
    fast/              faster ways to compute the same numbers, without which everything works too
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .acceleration import compile_layers as compile_layers
    from .acceleration import for_inference as for_inference
    from .bert import Encoder as Encoder
    from .computation import EncoderOutput as EncoderOutput
    from .config import NO_TOP as NO_TOP
    from .config import HeadName as HeadName
    from .config import ModelConfig as ModelConfig
    from .config import TopConfig as TopConfig
    from .dropout import DropoutKey as DropoutKey
    from .heads import TOKEN_HEADS as TOKEN_HEADS
    from .heads import Model as Model
    from .heads import build_head as build_head
    from .heads import build_model as build_model
    from .initialization import initialise as initialise
    from .layer_choice import LayerChoice as LayerChoice
    from .layout import Layout as Layout
    from .pair import Pair as Pair
    from .presets import PRESETS as PRESETS
    from .rectangular import Rectangular as Rectangular
    from .top import Top as Top

__all__, __getattr__, __dir__ = lazy_names(__name__)

"""The encoder and its heads (Devlin et al. 2019, section 3). No loss, no tokenizer, no files.

In reading order:

    config.py        an encoder's shape: BERT by default, its relatives and later ideas by setting; what a head reads
    activations.py   the activations that a config names
    presets.py       published sizes by name
    packing.py       a batch without its padding
    dropout.py       masks that depend on (seed, step, site, row) alone
    products.py      matrix products of training on a CPU
    attention.py     the scaled dot product, rotary positions, local attention
    layer.py         one Transformer layer
    kernels/         what training on a CPU computes, in C
    fused.py         the layers with these kernels
    recurrent.py     LSTM and GRU layers, to compare
    encoder.py       embeddings, layers, pooler
    pair.py          a left-to-right and a right-to-left encoder side by side
    layer_choice.py  which hidden states are taken, and how they become one vector a token
    top.py           a layer choice and a BiLSTM between encoder and head
    heads.py         the heads, and the model that holds everything
    used_rows.py     training without the embeddings of tokens that no text has
    rectangular.py   a forward pass that keeps padding, to export or compile
    position_heads.py  a start whose heads look at a token's neighbours
    openmp.py        OpenMP threads that wait less actively while other programs use the cores
    prepare.py       shapes, first weights, compiled layers, fast inference
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .config import NO_TOP as NO_TOP
    from .config import HeadName as HeadName
    from .config import ModelConfig as ModelConfig
    from .config import TopConfig as TopConfig
    from .dropout import DropoutKey as DropoutKey
    from .encoder import Encoder as Encoder
    from .encoder import EncoderOutput as EncoderOutput
    from .heads import TOKEN_HEADS as TOKEN_HEADS
    from .heads import Model as Model
    from .heads import build_head as build_head
    from .heads import build_model as build_model
    from .layer_choice import LayerChoice as LayerChoice
    from .packing import Packing as Packing
    from .pair import Pair as Pair
    from .prepare import compile_layers as compile_layers
    from .prepare import for_inference as for_inference
    from .prepare import initialise as initialise
    from .presets import PRESETS as PRESETS
    from .rectangular import Rectangular as Rectangular
    from .top import Top as Top

__all__, __getattr__, __dir__ = lazy_names(__name__)

"""The encoder and its heads (Devlin et al. 2019, section 3). It does not contain losses, tokenizers or file formats.

In reading order:

    config.py          an encoder's shape: BERT by default, its relatives and later ideas by setting
    bert.py            embeddings, self-attention, feed-forward network, layer, encoder, pooler
    attention.py       the scaled dot product, attention masks, rotary positions
    layout.py          a batch without its padding
    dropout.py         masks that depend only on (seed, step, site, row)
    forward.py         the attention and dropout of each layer in one pass over a batch
    heads.py           the heads, and the complete model
    build.py           a model with all its parts, from its config
    initialization.py  the initialization of all weights, also of position heads; copies in bfloat16
    recurrent.py       LSTM and GRU layers, for comparison
    comparators.py     encoders of two directions; a choice of layers or a BiLSTM between encoder and head
    acceleration.py    the functions of fast/, or plain PyTorch without that folder
    fast/              faster implementations, which are optional
"""

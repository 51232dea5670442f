"""The encoder and its heads (Devlin et al. 2019, section 3). No loss, no tokenizer, no files.

In reading order:

    config.py          an encoder's shape: BERT by default, its relatives and later ideas by setting
    bert.py            embeddings, self-attention, feed-forward network, layer, encoder, pooler
    attention.py       the scaled dot product, who sees whom, rotary positions
    layout.py          a batch without its padding
    dropout.py         masks that depend on (seed, step, site, row) alone
    forward.py         the attention and dropout of each layer in one pass over a batch
    heads.py           the heads, and the model that holds everything
    build.py           a model with all its parts, from its config
    initialization.py  the initialization of all weights, also of position heads; copies in bfloat16
    recurrent.py       LSTM and GRU layers, to compare
    comparators.py     encoders of two directions; a choice of layers or a BiLSTM between encoder and head
    acceleration.py    what fast/ offers, or plain PyTorch without it
    fast/              faster ways to compute the same numbers, without which everything works too
"""

"""Tiny sizes for --minute: a dozen steps of small models on few examples check that a study runs from end to end.

What is varied stays varied. The figures mean nothing.
"""

from dataclasses import replace

from ..finetuning.recipe import FinetuneConfig
from ..pretraining.recipe import Phase, PretrainConfig

MINUTE_ROWS = 64  # of each file
MINUTE_SEEDS = 2
MINUTE_LENGTH = 64  # tokens


def tiny_pretraining(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """A dozen steps of a model of at most four layers with narrow heads, for the store's vocabulary."""
    model, heads = config.model, config.model.num_attention_heads
    width = heads * max(4, model.hidden_size // heads // 16)
    shape = replace(model, vocab_size=vocab_size, hidden_size=width, intermediate_size=2 * width)
    shape = replace(shape, num_hidden_layers=min(model.num_hidden_layers, 4))
    snapshots = tuple(range(1, len(config.snapshots) + 1))
    steps = max(12, len(snapshots) + 2)
    loop = replace(config.loop, steps=steps, tokens=0, hours=0.0, log_every=4, eval_every=0, save_every=4)
    phases = tuple(Phase(min(p.length, MINUTE_LENGTH), p.budget_fraction, min(p.batch_size, 8)) for p in config.phases)
    return replace(config, model=shape, loop=loop, phases=phases, snapshots=snapshots, eval_batches=2)


def tiny_finetuning(config: FinetuneConfig) -> FinetuneConfig:
    """Three steps on short inputs."""
    loop = replace(config.loop, steps=3, tokens=0, hours=0.0, log_every=1, eval_every=0, save_every=0)
    top = replace(config.top, bilstm_width=min(config.top.bilstm_width, 16)) if config.top.bilstm_layers else config.top
    length = min(config.max_seq_length, MINUTE_LENGTH)
    stride, query = min(config.doc_stride, MINUTE_LENGTH // 4), min(config.max_query_length, MINUTE_LENGTH // 4)
    config = replace(config, max_seq_length=length, doc_stride=stride, max_query_length=query)
    return replace(config, loop=loop, top=top, batch_size=8)

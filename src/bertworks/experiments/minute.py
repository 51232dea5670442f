"""The same study in about a minute: tiny models, a dozen steps, a few rows. What is varied stays varied.

It shows that a study works from end to end before hours are spent on it; its figures mean nothing.
"""

from dataclasses import replace

from ..finetuning.job import FinetuneConfig
from ..pretraining.run import Phase, PretrainConfig

ROWS = 64  # of each file
SEEDS = 2
LENGTH = 64  # tokens


def pretraining(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """A dozen steps of a model of at most four layers with narrow heads, for the vocabulary at hand."""
    model, heads = config.model, config.model.num_attention_heads
    width = heads * max(4, model.hidden_size // heads // 16)
    shape = replace(
        model,
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=min(model.num_hidden_layers, 4),
    )
    snapshots = tuple(range(1, len(config.snapshots) + 1))
    steps = max(12, len(snapshots) + 2)
    loop = replace(config.loop, steps=steps, tokens=0, hours=0.0, log_every=4, eval_every=0, save_every=4)
    phases = tuple(Phase(min(p.length, LENGTH), p.share, min(p.batch_size, 8)) for p in config.phases)
    return replace(config, model=shape, loop=loop, phases=phases, snapshots=snapshots, eval_batches=2)


def snapshot(config: PretrainConfig, step: int) -> int:
    """The step that stands for `step` in the short run."""
    return sorted(config.snapshots).index(step) + 1


def finetuning(config: FinetuneConfig) -> FinetuneConfig:
    """Three steps on short inputs."""
    loop = replace(config.loop, steps=3, tokens=0, hours=0.0, log_every=1, eval_every=0, save_every=0)
    top = replace(config.top, bilstm_width=min(config.top.bilstm_width, 16))
    length = min(config.max_seq_length, LENGTH)
    stride, query = min(config.doc_stride, LENGTH // 4), min(config.max_query_length, LENGTH // 4)
    return replace(
        config, loop=loop, top=top, max_seq_length=length, doc_stride=stride, max_query_length=query, batch_size=8
    )

"""Local attention in blocks beside the same layers under a mask over the whole square, in one process, in turns.

    OMP_NUM_THREADS=1 python benchmarks/local_attention.py [--rounds 5] [--out FILE] [--smoke]

Two layers of width 256, one that sees everything and one that sees 64 tokens, bfloat16, 4,096 tokens a batch. Each
training step and each evaluation is timed. A ratio of 2 would mean that the local layer costs nothing.
"""

import statistics
import sys
import time
from typing import Any

import torch

import common
from bertworks.model import attention as local
from bertworks.model.config import ModelConfig
from bertworks.model.dropout import DropoutKey
from bertworks.model.encoder import Encoder
from bertworks.model.prepare import initialise
from bertworks.training import machine

NEVER = 1 << 20  # a smallest block that no sequence has eight of
SMOKE = {"rounds": 1, "lengths": [512], "width": 32}


def encoder_of(width: int) -> Encoder:
    shape = ModelConfig(
        vocab_size=1000,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=4 * width,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attention_window=64,
        global_every=2,
        position_embedding_type="rotary",
        max_position_embeddings=4096,
    )
    encoder = Encoder(shape)
    initialise(encoder, 0.05, torch.Generator().manual_seed(1))
    return encoder


def seconds(encoder: Encoder, ids: torch.Tensor, training: bool) -> float:
    encoder.train(training)
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(training):
        out = encoder(ids, dropout=DropoutKey(1, 1) if training else None)
        if training:
            out.packed.float().sum().backward()
    return time.perf_counter() - start


def compare(options: Any) -> list[common.Result]:
    """The ratio of both ways at every length, in training and in evaluation."""
    encoder, blocks, rows = encoder_of(options.width), local.SMALLEST, []
    for length in options.lengths:
        ids = torch.randint(3, 900, (4096 // length, length), generator=torch.Generator().manual_seed(2))
        for training in (True, False):
            ratios = []
            for turn in range(options.rounds + 1):  # the first warms up
                times = {}
                for local.SMALLEST in (blocks, NEVER):
                    times[local.SMALLEST] = seconds(encoder, ids, training)
                ratios += [times[NEVER] / times[blocks]] if turn else []
            row = {"length": length, "training": training, "ratio": statistics.median(ratios), "rounds": ratios}
            rows.append(row)
            print(length, "training" if training else "evaluation", f"{row['ratio']:.2f}", file=sys.stderr)
    local.SMALLEST = blocks
    return rows


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "local_attention.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--width", type=int, default=256)
    with common.parsed(parser, argv, SMOKE) as options:
        machine.prepare_process()
        common.finish(options, {"ratios": compare(options), "machine": common.machine_facts()})


if __name__ == "__main__":
    main(sys.argv[1:])

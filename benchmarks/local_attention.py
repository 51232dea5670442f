"""Local attention in blocks beside the same layers under a mask over the whole square, in one process, in turns.

    OMP_NUM_THREADS=1 python benchmarks/local_attention.py [--rounds 5] [--out FILE]

Two layers of width 256, one that sees all and one with a window of 64, bfloat16, 4,096 tokens a batch: what a training
step and an evaluation take. Twice as fast would be a local layer for nothing.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from bertworks.files import write_json
from bertworks.model import local
from bertworks.model.dropout import DropoutKey
from bertworks.model.encoder import Encoder, ModelConfig, initialise
from bertworks.training import parallel

NEVER = 1 << 20  # a smallest block that no sequence has eight of


def encoder_of() -> Encoder:
    shape = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    plain = {"intermediate_size": 1024, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    window = {"attention_window": 64, "global_every": 2, "position_embedding_type": "rotary"}
    encoder = Encoder(ModelConfig(**shape, **plain, **window, max_position_embeddings=4096))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "local_attention.json")
    args = parser.parse_args()
    parallel.prepare_process()
    encoder, blocks, rows = encoder_of(), local.SMALLEST, []
    for length in (512, 1024, 2048, 4096):
        ids = torch.randint(3, 900, (4096 // length, length), generator=torch.Generator().manual_seed(2))
        for training in (True, False):
            ratios = []
            for turn in range(args.rounds + 1):  # the first warms up
                times = {}
                for local.SMALLEST in (blocks, NEVER):
                    times[local.SMALLEST] = seconds(encoder, ids, training)
                ratios += [times[NEVER] / times[blocks]] if turn else []
            row = {"length": length, "training": training, "ratio": statistics.median(ratios), "rounds": ratios}
            rows.append(row)
            print(length, "training" if training else "evaluation", f"{row['ratio']:.2f}")
    write_json(args.out, {"ratios": rows, "machine": parallel.facts()})


if __name__ == "__main__":
    main()

"""What a model's supervised head says of all examples: the one place where a fine-tuned model meets data to judge.

Shapes: S sequences, T tokens of all sequences, K outputs of the head.
"""

import torch
from torch import Tensor

from ..model.heads import TOKEN_HEADS, Model
from ..model.prepare import for_inference
from ..training.machine import World
from .inputs import Inputs


@torch.no_grad()
def compute_scores(model: Model, inputs: Inputs, world: World, size: int = 64) -> Tensor:
    """Scores before any softmax, float32, on the CPU: (S, K), of a token head (T, K) in the order of `inputs.ids`.

    The processes of `world` divide the batches among them. `size`: examples a batch.
    """
    was_training = model.training
    name = next(name for name in model.heads if name not in ("mlm", "nsp", "sop"))
    head, by_token = model.heads[name], name in TOKEN_HEADS
    network = for_inference(model)
    outputs: int = head.out_features  # type: ignore[assignment]
    scores = torch.zeros(len(inputs.ids) if by_token else len(inputs.edges) - 1, outputs, device=world.device)
    for i, rows in enumerate(inputs.by_length(size)):
        if i % world.size == world.rank:
            batch = {name: value.to(world.device) for name, value in inputs.batch(rows).items()}
            mask = batch["attention_mask"]
            out = network.encode(batch)
            if by_token:
                found, places = head(out)[out.packing.rows(mask.flatten().nonzero().squeeze(1))], inputs.tokens(rows)
            else:
                found, places = head(out.pooled), inputs.sequences(rows)
            scores[torch.from_numpy(places).to(world.device)] = found.float()
    model.train(was_training)
    return world.sum(scores).cpu()

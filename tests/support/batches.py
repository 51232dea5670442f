"""Tiny random inputs of objectives."""

import torch


def problem(M: int = 23, D: int = 12, V: int = 31, unused: float = 0.3):
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in ((M, D), (V, D), (V,)))
    labels = torch.randint(0, V, (M,), generator=generator)
    labels[torch.rand(M, generator=generator) < unused] = -100
    return [t.requires_grad_() for t in (hidden, weight, bias)], labels


def batch(B: int = 3, L: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    positions = torch.arange(B)[:, None] * L + torch.tensor([1, 3, 4])
    labels = torch.randint(0, 40, (B, 3), generator=generator)
    labels[0, 2] = labels[2, 1] = -100
    return {
        "input_ids": torch.randint(0, 40, (B, L), generator=generator),
        "attention_mask": torch.arange(L) < torch.tensor([8, 5, 6])[:, None],
        "token_type_ids": torch.randint(0, 2, (B, L), generator=generator),
        "masked_positions": positions.flatten(),
        "masked_labels": labels.flatten(),
        "pair_labels": torch.tensor([0, 1, 0]),
    }


def batch_of(lengths, L=64, labels=False) -> dict[str, torch.Tensor]:
    """A masked batch of sequences of these lengths, on request with tags; large ones leave most of the padding out."""
    generator, B = torch.Generator().manual_seed(1), len(lengths)
    mask = torch.arange(L) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, 100, (B, L), generator=generator) * mask
    slots = torch.randint(5, 100, (B, 8), generator=generator)
    slots[:, 6:] = -100
    made = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": ((torch.arange(L) >= 3) & mask).long(),
        "masked_positions": (torch.arange(B)[:, None] * L + torch.arange(1, 9)).flatten(),
        "masked_labels": slots.flatten(),
        "pair_labels": torch.arange(B) % 2,
    }
    if labels:
        made["labels"] = torch.where(mask & (torch.arange(L) % 3 > 0), ids % 4, -100)
    return made

"""Two language models of opposite directions become one folder to fine-tune, ELMo's way (paper, section 5.1)."""

import dataclasses
from pathlib import Path

from ..files import InputError
from ..model.config import ModelConfig
from ..model.encoder import Encoder
from ..model.heads import Model
from ..model.pair import SIDES, Pair
from .folder import find_model, load_encoder, load_tokenizer, save_folder


def concatenate(left: Path | str, right: Path | str, out: Path | str) -> None:
    """Write the folder `out` with the encoders of a left-to-right and a right-to-left model; their heads are left out.

    Raises InputError if directions, shapes or vocabularies do not fit together, or if either folder is unfit.
    """
    folders = [find_model(left), find_model(right)]
    encoders = [load_encoder(folder) for folder in folders]
    for folder, encoder, side in zip(folders, encoders, SIDES, strict=True):
        if encoder.config.direction != side:
            raise InputError(
                f"{folder} sees {encoder.config.direction}; expected an encoder that sees the {side} side alone: "
                f"objective = {'ltr' if side == 'left' else 'rtl'!r} in its recipe"
            )
    shapes = [dataclasses.replace(encoder.config, direction="pair") for encoder in encoders]
    tokenizers = [load_tokenizer(folder) for folder in folders]
    if shapes[0] != shapes[1] or tokenizers[0].fingerprint != tokenizers[1].fingerprint:
        raise InputError(
            f"{folders[0]} and {folders[1]} have different shapes or tokenizers; train both by one recipe on one store"
        )
    save_folder(out, Model(_joined(shapes[0], *encoders), {}), tokenizers[0])


def _joined(shape: ModelConfig, left: Encoder, right: Encoder) -> Pair:
    pair = Pair(shape, pooler=False)
    for target, source in ((pair.left, left), (pair.right, right)):
        state = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("pooler.")}
        target.load_state_dict(state)
    return pair

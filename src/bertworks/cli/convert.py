"""`bertworks convert`: model folders from and for other software."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint.convert.options import ConvertOptions
from .arguments import Flat, Positional, parse

CASED_TO_CONVERT = {"--cased": "--no-do-lower-case", "--uncased": "--do-lower-case"}


@dataclass(frozen=True)
class Arguments:
    """Convert a Hugging Face folder or a TensorFlow checkpoint to a model folder.

    Lists the tensors, and checks that the new folder equals its source.

    Example:
        bertworks convert uncased_L-12_H-768_A-12/bert_model.ckpt bert-base
        bertworks convert runs/base longer-start --positions 2048

    Short: --uncased and --cased mean --do-lower-case and --no-do-lower-case.
    """

    # Hugging Face or sentence-transformers folder, run folder, or TensorFlow checkpoint bert_model.ckpt (or: --model
    # MODEL)
    model: Positional[Path]
    out: Positional[Path]  # folder to write; it must be new or empty (or: --out OUT)
    options: Flat[ConvertOptions] = field(default_factory=ConvertOptions)


def convert(argv: list[str]) -> None:
    """Convert, and print the new name of each tensor."""
    arguments = parse(Arguments, argv, "convert", CASED_TO_CONVERT)
    from ..checkpoint.convert.conversion import convert as convert_folder

    done = convert_folder(arguments.model, arguments.out, arguments.options)
    print(f"{arguments.model}: {done.source}")
    width = max(len(row.source_name) for row in done.mapping)
    for row in done.mapping:
        print(f"{row.source_name:<{width}} -> {row.name}  {' x '.join(map(str, row.shape))}")
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, why in done.ignored.items():
        reasons[why].append(name)
    for why, names in sorted(reasons.items()):
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        print(f"not written, {why}: {len(names)} ({shown})")
    for note in done.notes:
        print(note)
    print(f"{arguments.out}: {len(done.mapping)} tensors, each used once; read back, they and the settings are equal")

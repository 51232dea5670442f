"""`bertworks convert`: model folders from and for other software."""

from typing import Annotated


def convert(argv: list[str]) -> None:
    """Hugging Face folder or TensorFlow checkpoint to a model folder: SRC DST [--to sentence-transformers]."""
    from collections import defaultdict
    from pathlib import Path

    import tyro

    from ..checkpoint.convert.conversion import ConvertOptions
    from ..checkpoint.convert.conversion import convert as run

    def command(
        src: tyro.conf.Positional[Path],
        dst: tyro.conf.Positional[Path],
        options: Annotated[ConvertOptions, tyro.conf.arg(name="")] = ConvertOptions(),  # noqa: B008
    ) -> None:
        """Write SRC to the new folder DST, print which tensor became which, read DST back and compare the two.

        Args:
            src: folder of Hugging Face's or sentence-transformers' kind, run folder, or checkpoint (bert_model.ckpt)
            dst: folder to write; it must not hold anything
        """
        done = run(src, dst, options)
        print(f"{src}: {done.what}")
        width = max(len(row.theirs) for row in done.mapping)
        for row in done.mapping:
            print(f"{row.theirs:<{width}} -> {row.ours}  {' x '.join(map(str, row.shape))}")
        reasons: dict[str, list[str]] = defaultdict(list)
        for name, why in done.ignored.items():
            reasons[why].append(name)
        for why, names in sorted(reasons.items()):
            shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            print(f"not written, {why}: {len(names)} ({shown})")
        for note in done.notes:
            print(note)
        print(
            f"{dst}: {len(done.mapping)} tensors, each used once. Read back they differ by "
            f"{done.tensor_difference:g}, outputs on a fixed text by {done.output_difference:.2g}"
        )

    short = {"--cased": "--do-lower-case=False", "--do-lower-case": "--do-lower-case=True"}
    short |= {"--normalize": "--normalize=True", "--no-normalize": "--normalize=False"}
    tyro.cli(command, prog="bertworks convert", args=[short.get(word, word) for word in argv])

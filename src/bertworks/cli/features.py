"""`bertworks features`: vectors of texts from chosen layers."""

import sys
from pathlib import Path

from .arguments import model_first


def features(argv: list[str]) -> None:
    """Vectors of every text of a file from chosen layers: FOLDER FILE --out F [--layers sum-all] [--pool mean]."""
    from typing import Annotated, Literal

    import tyro

    from ..inference.feature_files import write_features, writer_for
    from ..inference.features import Extractor, FeatureConfig
    from ..inference.files import Columns

    def run(
        folder: tyro.conf.Positional[Path],
        file: tyro.conf.Positional[str],
        out: Path,
        config: Annotated[FeatureConfig, tyro.conf.arg(name="")] = FeatureConfig(),  # noqa: B008
        text: str = "",
        device: Literal["cpu", "cuda"] | None = None,
    ) -> None:
        """Write a vector for each piece of each text, or for each word or text, with the places it stands for.

        Args:
            folder: model folder or run folder
            file: text, a line each; .csv, .tsv, .jsonl, .parquet; - for stdin
            out: file to write: .safetensors, .parquet or .npz
            text: text column of a table, or two of them with a comma between for pairs
            device: left out: a GPU if there is one
        """
        writer_for(out)  # before minutes of loading and computing
        columns = Columns(tuple(name for name in text.split(",") if name))
        extractor = Extractor.load(folder, config, device)
        done = write_features(extractor, file, columns, out, {"model": str(folder)})
        long = f", {done.windowed:,} of them through windows of {extractor.max_length} tokens" if done.windowed else ""
        print(f"{done.texts:,} texts{long}, {done.vectors:,} vectors of width {done.width}: {out}", file=sys.stderr)

    tyro.cli(run, prog="bertworks features", args=model_first(argv))

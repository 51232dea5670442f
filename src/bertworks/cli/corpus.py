"""`bertworks corpus build` and `show`: corpus stores."""

import shlex

from .ending import INTERRUPTED, run_to_its_end


def build(argv: list[str]) -> None:
    """Text to a corpus store: INPUT... --tokenizer DIR --out STORE [--workers N]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from ..data.build import BuildConfig
    from ..data.build import build as build_store
    from ..tokenizer import Tokenizer

    def run(
        inputs: tyro.conf.Positional[tuple[str, ...]],
        tokenizer: Path,
        out: Path,
        config: Annotated[BuildConfig, tyro.conf.arg(name="")] = BuildConfig(),  # noqa: B008
    ) -> None:
        """Build a corpus store. Typing the same line again after a stop continues the build.

        Args:
            inputs: files, folders, globs or archives of text
            tokenizer: folder made by `bertworks tokenizer train`, or any with a tokenizer.json
            out: folder for the store, a new one
        """
        counts = build_store(inputs, Tokenizer.load(tokenizer), out, config)["counts"]
        train = counts["train"]
        print(f"{out}: {train['tokens']:,} tokens in {train['documents']:,} documents to train on")
        if left_out := ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items() if count):
            print(f"left out: {left_out}")
        print(f"Next: {shlex.join(['bertworks', 'corpus', 'show', str(out)])}")

    run_to_its_end(lambda: tyro.cli(run, prog="bertworks corpus build", args=argv) or True, INTERRUPTED)


def show(argv: list[str]) -> None:
    """What a corpus store holds and how it was built: STORE."""
    from pathlib import Path

    import tyro

    from ..data.show import show as show_store

    def run(store: tyro.conf.Positional[Path], documents: int = 3, instances: int = 3, length: int = 128) -> None:
        """Check a store and print its manifest, its counts, the beginning of some documents, and training instances.

        Args:
            store: folder made by `bertworks corpus build`
            documents: how many documents to print
            instances: how many training instances to print, masked, with their pair label
            length: tokens of an instance
        """
        from ..data.batches import PretrainingData, Vocabulary, instances_as_text
        from ..data.instances import InstanceConfig
        from ..data.masking import MaskingConfig

        opened = show_store(store, documents)
        tokenizer = opened.load_tokenizer()
        vocabulary = Vocabulary.of(tokenizer)
        data = PretrainingData(opened, "train", vocabulary, length, InstanceConfig(), MaskingConfig(), seed=12345)
        print("\nTraining instances; a predicted token stands as what-is-there<what-was-there>")
        for line in instances_as_text(data, tokenizer, instances):
            print(f"\n{line}")

    tyro.cli(run, prog="bertworks corpus show", args=argv)

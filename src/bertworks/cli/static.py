"""`bertworks static`: static word vectors as a model folder."""

from typing import Annotated


def static(argv: list[str]) -> None:
    """Static word vectors as a model folder: word2vec on a store (--corpus), or a file of vectors (--vectors)."""
    from pathlib import Path

    import tyro

    from ..files import InputError
    from ..pretraining.static import StaticConfig, read_static, train_static

    def run(
        out: Path,
        config: Annotated[StaticConfig, tyro.conf.arg(name="")] = StaticConfig(),  # noqa: B008
        corpus: Path | None = None,
        vectors: Path | None = None,
        tokenizer: Path | None = None,
    ) -> None:
        """An encoder without layers: the baseline from before contextual vectors.

        Args:
            out: the model folder to write
            corpus: store to train word2vec on
            vectors: instead, a text file of vectors, as word2vec and GloVe write it
            tokenizer: with --vectors, the vocabulary whose words are looked up
        """
        if corpus is not None:
            facts = train_static(corpus, out, config)
        elif vectors is not None and tokenizer is not None:
            facts = read_static(vectors, tokenizer, out)
        else:
            raise InputError("give --corpus STORE, or --vectors FILE with --tokenizer DIR")
        print(f"{out}: {facts['pieces_with_a_vector']:,} of {facts['pieces']:,} pieces have a vector. Next: "
              f"bertworks finetune --model {out} --top.bilstm-layers 2 ...")  # fmt: skip

    try:
        tyro.cli(run, prog="bertworks static", args=argv)
    except ValueError as error:  # a number that the settings refuse
        raise InputError(str(error)) from None

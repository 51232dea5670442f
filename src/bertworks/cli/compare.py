"""`bertworks compare`: the difference of two finished runs."""


def compare(argv: list[str]) -> None:
    """Two finished runs on the same dev rows: their difference, with a confidence interval. RUN RUN [--out FILE]."""
    from pathlib import Path

    import tyro

    from ..experiments.compare import compare_runs, table
    from ..files import write_json

    def run(
        first: tyro.conf.Positional[Path],
        second: tyro.conf.Positional[Path],
        samples: int = 10_000,
        seed: int = 1,
        out: Path | None = None,
    ) -> None:
        """The second run's metrics minus the first's, paired by example; runs of several seeds also by seed.

        Args:
            first: run folder of `bertworks finetune`, or one with several seeds
            second: another one on the same task and development rows
            samples: times that the examples are drawn anew for the interval
            seed: of these draws
            out: write all of it here, as JSON
        """
        results = compare_runs(first, second, samples, seed)
        if out is not None:
            write_json(out, results)
        table(results).show()

    tyro.cli(run, prog="bertworks compare", args=argv)

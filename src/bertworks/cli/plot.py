"""`bertworks plot`: pictures of runs and studies."""


def plot(argv: list[str]) -> None:
    """Curves of runs, several on one axis, or the picture of a study: RUN|STUDY... [--out F] [--x tokens]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    from ..experiments.figures import plot_study, read_study
    from ..files import InputError
    from ..reporting.figures import plot_runs

    def run(
        folders: tyro.conf.Positional[tuple[Path, ...]],
        out: Path | None = None,
        x: Literal["step", "tokens", "seconds"] = "step",
    ) -> None:
        """Draw what run folders logged, all on one axis, and what studies found, a picture each; as PNG and SVG.

        Args:
            folders: of `bertworks pretrain`, `bertworks finetune` or `bertworks study`, finished or not
            out: file that ends in .png or .svg, or a name without ending for both; if left out, RUN/curves of the
                first run and STUDY/study of every study
            x: what the horizontal axis of runs shows
        """
        studies = {folder: found for folder in folders if (found := read_study(folder))}
        runs = [folder for folder in folders if folder not in studies]
        if out and len(studies) + bool(runs) > 1:
            raise InputError(f"--out {out} is one picture, but every study has one of its own; give no --out")
        files = []
        for folder, results in studies.items():
            drawn = plot_study(results, out or folder / "study")
            if not drawn:
                raise InputError(f"{folder}: nothing to draw yet; a study's picture needs two finished variants")
            files += drawn
        if runs or not studies:
            files += plot_runs(runs, out or (runs[0] / "curves" if runs else Path("curves")), x)
        for file in files:
            print(file)

    tyro.cli(run, prog="bertworks plot", args=argv)

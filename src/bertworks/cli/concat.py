"""`bertworks concat`: two encoders of opposite directions as one."""


def concat(argv: list[str]) -> None:
    """Join a left-to-right and a right-to-left model for fine-tuning, ELMo's way: LEFT RIGHT --out FOLDER."""
    from pathlib import Path

    import tyro

    from ..checkpoint.start import concatenate

    def run(left: tyro.conf.Positional[Path], right: tyro.conf.Positional[Path], out: Path) -> None:
        """Write a folder with both encoders; their vectors stand end to end.

        Args:
            left: run or model folder of objective "ltr"
            right: run or model folder of objective "rtl", of the same shape and vocabulary
            out: the model folder to write
        """
        concatenate(left, right, out)
        print(f"{out}: a pair of encoders. Next: bertworks finetune --model {out} ...")

    tyro.cli(run, prog="bertworks concat", args=argv)

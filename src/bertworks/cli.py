"""`bertworks VERB ...`: one command, a verb a function. Each verb imports what it needs, so that --help is instant."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

Verb = Callable[[list[str]], None]


def tokenizer_train(argv: list[str]) -> None:
    """Train a vocabulary on text: INPUT... --out DIR [--vocab-size 30000] [--cased | --uncased]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from .data.corpus import InputOptions, read_documents
    from .tokenizer import Tokenizer, TokenizerConfig

    def train(
        inputs: tyro.conf.Positional[tuple[str, ...]],
        out: Path,
        config: Annotated[TokenizerConfig, tyro.conf.arg(name="")] = TokenizerConfig(),  # noqa: B008
        input: InputOptions = InputOptions(),  # noqa: B008
    ) -> None:
        """Train a WordPiece vocabulary (--cased and --uncased stand for --no-lowercase and --lowercase).

        Args:
            inputs: files, folders, globs or archives of text
            out: folder for tokenizer.json, vocab.txt and tokenizer_config.json
        """
        tokenizer = Tokenizer.train((document.text for document in read_documents(inputs, input)), config)
        tokenizer.save(out)
        print(f"{out}: {tokenizer.vocab_size:,} pieces. Next: bertworks tokenizer check {out} {' '.join(inputs)}")

    short = {"--cased": "--no-lowercase", "--uncased": "--lowercase"}
    tyro.cli(train, prog="bertworks tokenizer train", args=[short.get(word, word) for word in argv])


def tokenizer_check(argv: list[str]) -> None:
    """Judge a vocabulary on text: pieces per word and [UNK] by script, and what cannot match."""
    from pathlib import Path

    import tyro
    from rich import print as show
    from rich.markup import escape
    from rich.table import Table

    from .data.corpus import InputOptions, read_documents
    from .tokenizer import Tokenizer
    from .tokenizer_check import check

    def run(
        tokenizer: tyro.conf.Positional[Path],
        inputs: tyro.conf.Positional[tuple[str, ...]],
        lowercase: bool | None = None,
        input: InputOptions = InputOptions(),  # noqa: B008
    ) -> None:
        """Pieces per word and share of [UNK] by script, and warnings where vocabulary, normaliser and text do not fit.

        Args:
            tokenizer: folder, tokenizer.json or vocab.txt
            inputs: files, folders, globs or archives of text
            lowercase: must be said for a vocab.txt (--uncased and --cased stand for True and False)
        """
        texts = (document.text for document in read_documents(inputs, input))
        report = check(Tokenizer.load(tokenizer, lowercase), texts)
        table = Table("script", title=f"{tokenizer} on {report.chars:,} characters")
        for name in ("words", "pieces per word", "[UNK]"):
            table.add_column(escape(name), justify="right")
        for row in [*report.scripts, report.total]:
            shares = (f"{row.pieces / row.words:.2f}", f"{row.unknown / row.words:.3%}") if row.words else ("-", "-")
            table.add_row(row.script, f"{row.words:,}", *shares)
        show(table, *(f"[bold yellow]warning:[/] {escape(warning)}" for warning in report.warnings), sep="\n")

    short = {"--cased": "--lowercase=False", "--uncased": "--lowercase=True"}
    tyro.cli(run, prog="bertworks tokenizer check", args=[short.get(word, word) for word in argv])


def corpus_build(argv: list[str]) -> None:
    """Text to a corpus store: INPUT... --tokenizer DIR --out STORE [--workers N]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from .data.build import BuildConfig, build
    from .tokenizer import Tokenizer

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
        train = build(inputs, Tokenizer.load(tokenizer), out, config)["counts"]["train"]
        print(f"{out}: {train['tokens']:,} tokens in {train['documents']:,} documents to train on")
        print(f"Next: bertworks corpus show {out}")

    try:
        tyro.cli(run, prog="bertworks corpus build", args=argv)
    except KeyboardInterrupt:
        print("\nstopped; the same line continues", file=sys.stderr)
        raise SystemExit(130) from None


def corpus_show(argv: list[str]) -> None:
    """What a corpus store holds and how it was built: STORE."""
    from pathlib import Path

    import tyro

    from .data.show import show

    def run(store: tyro.conf.Positional[Path], documents: int = 3, instances: int = 3, length: int = 128) -> None:
        """Check a store and print its manifest, its counts, the beginning of some documents, and training instances.

        Args:
            store: folder made by `bertworks corpus build`
            documents: how many documents to print
            instances: how many training instances to print, masked, with their pair label
            length: tokens of an instance
        """
        from .data.batches import PretrainingData, Vocabulary, decoded
        from .data.instances import InstanceConfig
        from .data.masking import MaskingConfig
        from .tokenizer import Tokenizer

        opened = show(store, documents)
        tokenizer = Tokenizer.load(opened.tokenizer_folder)
        vocabulary = Vocabulary.of(tokenizer)
        data = PretrainingData(opened, "train", vocabulary, length, InstanceConfig(), MaskingConfig(), seed=12345)
        print("\nTraining instances; a predicted token stands as what-is-there<what-was-there>")
        for line in decoded(data, tokenizer, instances):
            print(f"\n{line}")

    tyro.cli(run, prog="bertworks corpus show", args=argv)


def pretrain(argv: list[str]) -> None:
    """Pre-train on a store: masked LM and next sentence. Typing the same line again resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from .config import load_recipe
    from .pretrain import PretrainConfig
    from .pretrain import estimate as estimate_run
    from .pretrain import pretrain as run

    recipe = argv[0] if argv and not argv[0].startswith("-") else None
    base = load_recipe(recipe, PretrainConfig) if recipe else PretrainConfig()

    @dataclass(frozen=True)
    class Command:
        """Pre-train on a store. Usage: bertworks pretrain RECIPE.toml --corpus STORE --out RUN [--optim.lr 1e-4 ...]"""

        corpus: Path  # store made by `bertworks corpus build`
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[PretrainConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        init: Path | None = None  # model folder to continue from
        estimate: bool = False  # only say how long it will take and how much memory it needs

    command = tyro.cli(
        Command, args=argv[1:] if recipe else argv, default=_with_recipe(Command, base), prog="bertworks pretrain"
    )
    if command.estimate:
        for name, value in estimate_run(command.recipe, command.corpus).items():
            print(f"{name:18} {value:,.2f}")
        return
    results = run(command.recipe, command.corpus, command.out, command.init)
    if results is None:
        raise SystemExit(3)
    _plot_quietly(command.out)


def _plot_quietly(run: Any) -> None:
    """Curves into a finished run's folder; a plot that fails costs a line, never the run."""
    import os

    if os.environ.get("RANK", "0") != "0":  # one process of a torchrun draws
        return
    try:
        from .plots import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no plot was made ({type(error).__name__}: {error}); the run is whole", file=sys.stderr)


def _with_recipe(command: Any, base: Any) -> Any:
    """Defaults for tyro: everything as declared, the recipe as read from its file."""
    import tyro

    return command(corpus=tyro.MISSING, out=tyro.MISSING, recipe=base)


def finetune(argv: list[str]) -> None:
    """Fine-tune a classifier: --task sst2|mrpc --data DIR, or --train --dev --text --label. The same line resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from .config import load_recipe
    from .finetune import FinetuneConfig
    from .finetune import finetune as run
    from .tasks.base import load_data, own_table

    recipe, argv = _taken(argv, "--recipe")
    base = load_recipe(recipe, FinetuneConfig) if recipe else FinetuneConfig()

    @dataclass(frozen=True)
    class Command:
        """Fine-tune a classifier, on a task of GLUE or on a table of your own (CSV, TSV with plain quotes, JSON lines).

        bertworks finetune --task mrpc --data DIR --model FOLDER --out RUN [--recipe FILE] [--optim.lr 3e-5 ...]
        bertworks finetune --train a.csv --dev b.csv --text question,answer --label topic --model FOLDER --out RUN
        """

        model: Path  # model folder or run folder to start from
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[FinetuneConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        task: str = ""  # sst2 or mrpc
        data: Path | None = None  # folder of the task's files
        train: Path | None = None  # your own training table
        dev: Path | None = None  # your own table to judge on
        text: str = "text"  # its text column, or two of them with a comma between
        label: str = "label"  # its label column

    start = Command(model=tyro.MISSING, out=tyro.MISSING, recipe=base)  # type: ignore[arg-type]
    command = tyro.cli(Command, args=argv, default=start, prog="bertworks finetune")
    if command.train and command.dev:
        task, data = own_table(command.train, command.dev, tuple(command.text.split(",")), command.label)
    else:
        task = _glue_task(command.task, command.data is not None)
        data = load_data(task, command.data or "")
    results = run(command.recipe, task, data, command.model, command.out)
    if results is None:
        raise SystemExit(3)
    for name, value in results["metrics"].items():
        print(f"{name:10} {value:.4f}" + (f" +- {results['std'][name]:.4f}" if "std" in results else ""))


def evaluate(argv: list[str]) -> None:
    """Judge a fine-tuned folder: --model FOLDER --task sst2|mrpc --data DIR, or --dev FILE --text --label."""
    import json
    from pathlib import Path

    import tyro

    from .finetune import evaluate as judge
    from .tasks.base import Task, read_examples

    def run(
        model: Path,
        task: str = "",
        data: Path | None = None,
        dev: Path | None = None,
        text: str = "text",
        label: str = "label",
        out: Path | None = None,
    ) -> None:
        """Print the metrics of a fine-tuned folder as JSON. Labels are matched by name.

        Args:
            model: run folder of `bertworks finetune`, or a model folder with a classifier
            task: sst2 or mrpc
            data: folder of the task's files; the development file is read
            dev: a table of your own instead (CSV, TSV, JSON lines)
            text: its text column, or two of them with a comma between
            label: its label column
            out: write the JSON here too
        """
        from .files import write_json

        if dev is not None:
            judged = Task("table", tuple(text.split(",")), label, metrics=("accuracy", "macro_f1"), dev=str(dev))
        else:
            judged = _glue_task(task, data is not None)
        results = judge(model, judged, read_examples(judged, (data or Path()) / judged.dev))
        print(json.dumps(results, indent=1, ensure_ascii=False))
        if out is not None:
            write_json(out, results)

    tyro.cli(run, prog="bertworks evaluate", args=argv)


def fill_mask(argv: list[str]) -> None:
    """Guess the words at [MASK]: FOLDER "text with [MASK]" [--top-k 5]."""
    from pathlib import Path

    import tyro

    from .predictor import Predictor

    def run(folder: tyro.conf.Positional[Path], text: tyro.conf.Positional[str], top_k: int = 5) -> None:
        """The likeliest pieces for each [MASK], with their probabilities.

        Args:
            folder: model folder or run folder with a masked-LM head
            text: text with one or more [MASK]
            top_k: candidates for each mask
        """
        for number, candidates in enumerate(Predictor(folder).fill_mask(text, top_k), 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")

    tyro.cli(run, prog="bertworks fill-mask", args=argv)


def predict(argv: list[str]) -> None:
    """Label every line or row of a file: FOLDER FILE [--text col[,col2]] [--out FILE]; `-` reads lines from stdin."""
    from pathlib import Path

    import tyro

    from .predictor import Predictor, predict_file

    def run(
        folder: tyro.conf.Positional[Path],
        file: tyro.conf.Positional[str],
        text: str = "text",
        out: Path | None = None,
        all_scores: bool = False,
    ) -> None:
        """Write a JSON object a row: line, label, score, and cut (tokens that did not fit).

        Args:
            folder: run folder of `bertworks finetune`, or a model folder with a classifier
            file: text, a line each; or .csv, .tsv, .jsonl; or - for lines from standard input
            text: text column of a table, or two of them with a comma between
            out: file to write; standard output if left out
            all_scores: add the probabilities of all labels
        """
        predictor = Predictor(folder)
        rows = predict_file(predictor, file, tuple(text.split(",")), out, all_scores)
        cut = predictor.truncated
        print(f"{rows:,} rows" + (f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to "
              f"{predictor.max_length}" if cut["examples"] else ""), file=sys.stderr)  # fmt: skip

    tyro.cli(run, prog="bertworks predict", args=argv)


def plot(argv: list[str]) -> None:
    """Loss and accuracy curves of runs, several on one axis: RUN... [--out F] [--x tokens]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    from .plots import plot_runs

    def run(
        runs: tyro.conf.Positional[tuple[Path, ...]],
        out: Path | None = None,
        x: Literal["step", "tokens", "seconds"] = "step",
    ) -> None:
        """Draw what run folders logged, as PNG and SVG.

        Args:
            runs: folders of `bertworks pretrain` or `bertworks finetune`, finished or not
            out: file that ends in .png or .svg, or a name without ending for both; RUN/curves of the first if left out
            x: what the horizontal axis shows
        """
        for file in plot_runs(runs, out or (runs[0] / "curves" if runs else Path("curves")), x):
            print(file)

    tyro.cli(run, prog="bertworks plot", args=argv)


def demo(argv: list[str]) -> None:
    """The whole road in minutes on this machine's own text, no download: [--minutes 5] [--out runs/demo]."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from .demo import DemoConfig, default_config
    from .demo import demo as run

    @dataclass(frozen=True)
    class Command:
        """Pre-train a small BERT on the documentation strings of this Python, and show what that bought."""

        recipe: Annotated[DemoConfig, tyro.conf.arg(name="")]  # demo.toml, field by field
        out: Path = Path("runs/demo")  # run folder; the same line goes on where it stopped

    command = tyro.cli(Command, args=argv, default=Command(default_config()), prog="bertworks demo")
    try:
        results = run(command.recipe, command.out)
    except KeyboardInterrupt:
        print("\nstopped; the same line continues", file=sys.stderr)
        raise SystemExit(130) from None
    if results is None:
        raise SystemExit(3)


def _glue_task(name: str, folder: bool) -> Any:
    """The GLUE task of that name, if there is a folder to read it from."""
    from .files import InputError
    from .tasks.glue import GLUE

    if name not in GLUE or not folder:
        raise InputError(
            f"give --task ({' or '.join(GLUE)}) with --data DIR, or tables of your own with --train and --dev"
        )
    return GLUE[name]


def _taken(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of `flag VALUE` or `flag=VALUE`, and the other arguments."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1], [*argv[:i], *argv[i + 2 :]]
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :], [*argv[:i], *argv[i + 1 :]]
    return None, argv


VERBS: dict[str, Verb] = {
    "demo": demo,
    "tokenizer train": tokenizer_train,
    "tokenizer check": tokenizer_check,
    "corpus build": corpus_build,
    "corpus show": corpus_show,
    "pretrain": pretrain,
    "finetune": finetune,
    "evaluate": evaluate,
    "fill-mask": fill_mask,
    "predict": predict,
    "plot": plot,
}


def main(argv: list[str] | None = None) -> None:
    """Find the verb, run it; bad input prints one message and exits with 1, wrong arguments exit with 2."""
    from .files import InputError

    argv = sys.argv[1:] if argv is None else argv
    for words in (2, 1):
        verb = VERBS.get(" ".join(argv[:words]))
        if verb:
            break
    else:
        print(_help())
        if argv and argv[0] not in ("-h", "--help"):
            print(f"\nunknown verb: {argv[0]}", file=sys.stderr)
            raise SystemExit(2)
        raise SystemExit(0)
    try:
        verb(argv[words:])
    except InputError as error:
        print(f"bertworks: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:  # a full disk, a folder that may not be written: nothing half-written is left in place
        print(f"bertworks: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        raise SystemExit(1) from None


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:<{width}}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(["usage: bertworks VERB [arguments]   (bertworks VERB --help explains one)", "", *lines])


if __name__ == "__main__":
    main()

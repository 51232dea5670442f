"""The whole road on one screen: prose that every Python installation carries becomes a small BERT, and a table shows
the effect of pre-training.

Every step leaves its result in the run folder and is skipped when that is there: rerun the command to resume.
Documents are split by the name of what they describe before anything else happens. Pre-training sees one side; every
number shown comes from the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..config import load_recipe
from ..data.build import BuildConfig, build
from ..data.store import Store
from ..files import InputError, write_json, write_text
from ..finetuning.recipe import FinetuneConfig
from ..pretraining.recipe import PretrainConfig
from ..pretraining.run import pretrain
from ..reporting.figures import plot_groups, plot_runs
from ..reporting.progress import Progress
from ..reporting.run_files import read_results
from ..tokenizer import Tokenizer, TokenizerConfig
from ..training import machine
from .clock import Clock
from .evaluation import Comparison, evaluate_heldout, fill_masks, read_task
from .report import FINISHED, compared_with_guessing, effect_of, next_commands, report
from .text import (
    CollectConfig,
    Document,
    collect,
    find_sources,
    installed_roots,
    make_task,
    read_rows,
    split_by_name,
    write_rows,
)

FEWEST_FILES = 1500  # to read, however slowly: of fewer the task could not be made


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    minutes: float = 5.0  # minutes of pre-training; the other stages take two or three more
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    held_out: float = 0.2  # share of the documents, by package name, that are held out from pre-training
    labels: int = 8  # number of classes: the packages with the most documents
    train_examples: int = 200  # labelled documents to fine-tune on, over all classes
    dev_examples: int = 320  # labelled documents that select the learning rate
    test_examples: int = 1000  # labelled documents to report on, at most
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)  # learning rates to try; each side is shown at its best
    seeds: tuple[int, ...] = (1, 2, 3)  # seeds of fine-tuning; the first selects the learning rate
    workers: int = 0  # worker processes that read and tokenize; 0: one for each core

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and self.rates and self.seeds and self.labels > 1 and 0 < self.held_out < 1):
            raise ValueError("expected minutes above 0, a rate, a seed, two labels or more, and held_out in (0, 1)")


def default_config() -> DemoConfig:
    """What demo.toml says."""
    return load_recipe(Path(__file__).with_name("demo.toml"), DemoConfig)


def demo(
    config: DemoConfig, out: Path | str, roots: list[tuple[Path, str]] | None = None, quiet: bool = False
) -> dict[str, Any] | None:
    """Run the demo, or what is left of it, and return its results; None if it was stopped before its end.

    `roots`: folders of Python files and the label of each (see text.py); left out, what is installed.
    Raises InputError if `out` holds anything else, or there is too little to read.
    """
    out = Path(out)
    run = Demo(config, out, roots or installed_roots(), Console(quiet=quiet), quiet, Clock(config.minutes, out))
    run.open_folder()
    if (out / "results.json").exists():
        results: dict[str, Any] = read_results(
            out / "results.json", FINISHED, "remove the file to make it again from the runs"
        )
    else:
        run.say(run.clock.plan())
        run.collect()
        run.make_stores()
        if (pretrained := run.pretrain()) is None:
            return None
        known = run.evaluate(pretrained)
        if (comparison := run.compare()) is None:
            return None
        about = {"kind": "demo", "minutes": config.minutes, "seeds": list(config.seeds)}
        results = about | known | {"task": comparison, "cut": run.clock.cuts(), "machine": machine.facts()}
        run.plot(results)
        write_text(out / "REPORT.md", report(results))
        write_json(out / "results.json", results)
    run.show(results)
    return results


@dataclass(frozen=True)
class Demo:
    """One demo: its settings, its folder, and the steps in order."""

    config: DemoConfig
    out: Path
    roots: list[tuple[Path, str]]
    console: Console
    quiet: bool
    clock: Clock

    def step(self, number: int, text: str, stage: str = "") -> None:
        """Say what comes next; with the `stage` that begins, also how long it and the rest will take."""
        if stage:
            self.clock.begin(stage)
        left = f" [dim](about {self.clock.left()} to go)[/]" if stage else ""
        self.console.print(f"[bold cyan]\\[{number}/7][/] {escape(text)}{left}", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(f"      {text}", highlight=False, markup=False, soft_wrap=True)

    def open_folder(self) -> None:
        """Make the folder. Raises InputError if it has anything but a demo of as many minutes."""
        path, mine = self.out / "demo.json", {"minutes": self.config.minutes}
        if path.exists():
            if (found := read_results(path, {"minutes": float})) != mine:
                raise InputError(f"{self.out} is a demo of {found['minutes']} minutes; give that, or another --out")
            return
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InputError(f"{self.out}: not an empty folder; give another --out")
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(path, mine)

    # ---- text to store

    def collect(self) -> None:
        """Documents of both sides of the split, and the tables of the task."""
        self.step(1, "collecting documentation strings of the standard library and installed packages", "reading")
        folder = self.out / "documents"
        if not (folder / "train.jsonl").exists():
            train, held_out = split_by_name(self.read_documents(), self.config.held_out)
            counts = {n: getattr(self.config, f"{n}_examples") for n in ("train", "dev", "test")}
            for name, rows in make_task(held_out, counts, self.config.labels).items():
                write_rows(self.out / "task" / f"{name}.jsonl", rows)
            write_rows(folder / "heldout.jsonl", held_out)
            write_rows(folder / "train.jsonl", train)  # the last one: the others are complete where it exists
        train, held_out = read_rows(folder / "train.jsonl"), read_rows(folder / "heldout.jsonl")
        chars = sum(len(document.text) for document in train)
        self.say(f"{len(train):,} documents ({chars / 1e6:.1f} MB) to pre-train on, {len(held_out):,} held out")

    def read_documents(self) -> list[Document]:
        """The documents of all source files, or of those that are read within the stage's limit."""
        sources = find_sources(self.roots, self.config.collect.max_files)
        progress = Progress(not self.quiet)

        def at(done: int) -> bool:
            progress.at(done)
            stop = done >= FEWEST_FILES and done < len(sources) and self.clock.over()
            if stop:
                self.clock.cut(f"reading, after {done:,} of {len(sources):,} files")
            return stop

        with progress.stage("reading", len(sources), "files"):
            return list(collect(sources, self.config.collect, self.config.workers, at))

    def make_stores(self) -> None:
        """Vocabulary and stores."""
        self.step(2, "training a vocabulary and building the corpus store", "store")
        text, folder = self.out / "documents", self.out / "tokenizer"
        if not (folder / "tokenizer_config.json").exists():
            wanted = TokenizerConfig(vocab_size=self.config.pretrain.model.vocab_size)
            Tokenizer.train(self.texts(text / "train.jsonl"), wanted).save(folder)
        tokenizer = Tokenizer.load(folder)
        for name, source, share in (("store", "train", 0.02), ("heldout", "heldout", 0.0)):
            settings = BuildConfig(validation_share=share, workers=self.config.workers)
            if not (self.out / name / "manifest.json").exists():
                build([text / f"{source}.jsonl"], tokenizer, self.out / name, settings, progress=not self.quiet)
        tokens = Store.open(self.out / "store").manifest["counts"]["train"]["tokens"]
        self.say(f"{tokenizer.vocab_size:,} subwords in the vocabulary, {tokens:,} tokens in the corpus")

    def texts(self, path: Path) -> Iterator[str]:
        """The texts to train the vocabulary on: all, or those that are read within half of the stage's limit."""
        documents = read_rows(path)
        for number, document in enumerate(documents):
            if number >= FEWEST_FILES and self.clock.over(0.5):
                self.clock.cut(f"the vocabulary, after {number:,} of {len(documents):,} documents")
                return
            yield document.text

    # ---- store to encoder

    def pretrain(self) -> dict[str, Any] | None:
        """The encoder; None if stopped."""
        self.step(
            3, f"pre-training for {self.config.minutes:g} minutes: masked words and next sentences", "pre-training"
        )
        recipe = self.config.pretrain
        vocab_size = Store.open(self.out / "store").vocab_size  # little text gives fewer subwords than asked for
        model = replace(recipe.model, vocab_size=vocab_size)
        loop = replace(recipe.loop, hours=self.config.minutes / 60, steps=0, tokens=0)
        return pretrain(
            replace(recipe, model=model, loop=loop), self.out / "store", self.out / "pretrain", quiet=self.quiet
        )

    def evaluate(self, pretrained: dict[str, Any]) -> dict[str, Any]:
        """Held-out loss and accuracy, filled masks, and the facts of the pre-training."""
        self.step(4, "held-out documents: the encoder and guessing", "evaluation")
        heldout = evaluate_heldout(self.out, self.config.pretrain, self.clock)
        table = Table("", "BERT", "guessing", "")
        for row in compared_with_guessing(heldout):
            table.add_row(*row)
        self.console.print(table)
        self.step(5, "filling masks")
        filled = fill_masks(self.out / "pretrain")
        for sentence, words in filled.items():
            self.say(f"{sentence}  {', '.join(words)}")
        keep = ("steps", "tokens", "seconds", "machine")
        return {"heldout": heldout, "masks": filled, "pretraining": {key: pretrained[key] for key in keep}}

    # ---- encoder to classifier

    def compare(self) -> dict[str, Any] | None:
        """Fine-tune from pre-trained and from random weights; None if it was stopped."""
        task, rows = read_task(self.out / "task")
        self.step(
            6, f"which package is it from? {len(rows['train'])} examples, {len(task.labels)} packages", "fine-tuning"
        )
        config = self.config
        comparison = Comparison(config.finetune, config.rates, config.seeds, self.out, task, rows, self.clock)
        return comparison.run(self.say)

    # ---- results

    def plot(self, results: dict[str, Any]) -> None:
        """The curves of pre-training and the test accuracies, in plots/."""
        self.step(7, f"plots and report in {self.out}")
        plot_runs([self.out / "pretrain"], self.out / "plots" / "pretraining")
        task = results["task"]
        groups = {name: side["test"] for name, side in task["sides"].items()}
        title = f"Which package? {task['examples']['train']} labelled examples"
        plot_groups(groups, self.out / "plots" / "gain", "test accuracy", title, {"majority": task["majority"]})

    def show(self, results: dict[str, Any]) -> None:
        """Print the table, and what to try next."""
        task = results["task"]
        table = Table("fine-tuned from", "test accuracy", "sd", "best rate", title="effect of pre-training")
        for name, side in task["sides"].items():
            table.add_row(f"{name} weights", f"{side['mean']:.1%}", f"{side['sd']:.1%}", f"{side['rate']:g}")
        table.add_row("majority class", f"{task['majority']:.1%}", "", "")
        self.console.print(table)
        self.say(f"{results['pretraining']['seconds'] / 60:.1f} min of pre-training: {effect_of(results)}")
        for what in results.get("cut", []):
            self.say(f"cut short by the time limit: {what}")
        self.console.print(f"\nreport: {self.out / 'REPORT.md'}\n\nwhat to try next:", markup=False, soft_wrap=True)
        for line in next_commands(self.out, results):
            self.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)

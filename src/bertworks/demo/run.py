"""The whole road on one screen: prose that every Python installation carries becomes a small BERT, and a table says
what pre-training bought.

Every step leaves its result in the run folder and is skipped when that is there, so the same line typed again goes on.
Documents are split by the name of what they describe before anything else happens: pre-training sees one side, every
number shown comes from the other.
"""

import shutil
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..config import load_recipe
from ..data.build import BuildConfig, build
from ..data.store import Store
from ..files import InputError, write_json, write_text
from ..finetuning.job import FinetuneConfig
from ..finetuning.run import finetune
from ..inference.evaluation import evaluate as judge
from ..pretraining.run import PretrainConfig, pretrain
from ..reporting.figures import plot_groups, plot_runs
from ..reporting.progress import Progress
from ..reporting.run_files import read_results
from ..tasks.base import Data, Example, Task
from ..tokenizer import Tokenizer, TokenizerConfig
from ..training import machine
from .clock import Clock
from .judge import fill_masks, judge_heldout
from .report import FINISHED, compared_with_guessing, gain_of, interval_of, next_commands, report
from .text import CollectConfig, collect, find_sources, installed_roots, make_task, read_rows, split_by_name, write_rows

FEWEST_FILES = 1500  # to read, however slowly: of fewer the task could not be made
TRIED = 8  # updates by which the time of one is measured
SIDES = {"pre-trained": False, "random": True}  # whether the weights are fresh


@dataclass(frozen=True)
class DemoConfig:
    """What the demo does."""

    minutes: float = 5.0  # of pre-training; the rest takes two or three more, on a busy machine up to this a stage
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    held_out: float = 0.2  # share of the names whose documents pre-training does not see
    labels: int = 8  # classes: the packages with most documents
    train_examples: int = 200  # labelled documents to fine-tune on, over all classes
    dev_examples: int = 320  # to choose the learning rate on
    test_examples: int = 1000  # to report on; fewer if there are not so many
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)  # each side is shown at its best of these
    seeds: tuple[int, ...] = (1, 2, 3)  # of fine-tuning; the first chooses the rate
    workers: int = 0  # processes that read and tokenize; 0: one a core

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and self.rates and self.seeds and self.labels > 1 and 0 < self.held_out < 1):
            raise ValueError("expected minutes above 0, a rate, a seed, two labels or more, and held_out in (0, 1)")


def default_config() -> DemoConfig:
    """What demo.toml says."""
    return load_recipe(Path(__file__).with_name("demo.toml"), DemoConfig)


def demo(
    config: DemoConfig, out: Path | str, roots: list[tuple[Path, str]] | None = None, quiet: bool = False
) -> dict[str, Any] | None:
    """Run the demo, or what is left of it, and return its results; None if pre-training was stopped before its end.

    `roots`: folders of Python files and the label of each (see text.py); left out, what is installed.
    Raises InputError if `out` holds anything else, or there is too little to read.
    """
    out = Path(out)
    run = _Demo(config, out, roots or installed_roots(), Console(quiet=quiet), quiet, Clock(config.minutes, out))
    run.claim_folder()
    if (out / "results.json").exists():
        results: dict[str, Any] = read_results(out / "results.json", FINISHED, "remove the file to go on from the runs")
    else:
        run.say(run.clock.plan())
        run.gather()
        run.make_store()
        if (pretrained := run.pretrain()) is None:
            return None
        results = run.compare(run.judge(pretrained))
        run.plot(results)
        write_text(out / "REPORT.md", report(results))
        write_json(out / "results.json", results)
    run.finish(results)
    return results


class Tuning(NamedTuple):
    """What all fine-tuning runs have in common."""

    task: Task
    rows: dict[str, list[Example]]  # train, dev and test
    steps: int  # updates


@dataclass(frozen=True)
class _Demo:
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

    def claim_folder(self) -> None:
        """Note whose folder this is. Raises InputError if it is somebody else's, or a demo's with another budget."""
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

    def gather(self) -> None:
        """Documents of both sides of the split, and the tables of the task."""
        self.step(1, "collecting documentation strings of the standard library and installed packages", "reading")
        folder = self.out / "documents"
        if not (folder / "train.jsonl").exists():
            sources = find_sources(self.roots, self.config.collect.max_files)
            progress = Progress(not self.quiet)
            with progress.stage("reading", len(sources), "files"):

                def at(done: int) -> bool:
                    progress.at(done)
                    stop = done >= FEWEST_FILES and done < len(sources) and self.clock.over()
                    if stop:
                        self.clock.cut(f"reading, after {done:,} of {len(sources):,} files")
                    return stop

                documents = list(collect(sources, self.config.collect, self.config.workers, at))
            train, held_out = split_by_name(documents, self.config.held_out)
            counts = {n: getattr(self.config, f"{n}_examples") for n in ("train", "dev", "test")}
            for name, rows in make_task(held_out, counts, self.config.labels).items():
                write_rows(self.out / "task" / f"{name}.jsonl", rows)
            write_rows(folder / "heldout.jsonl", held_out)
            write_rows(folder / "train.jsonl", train)  # last: it says that all are there
        train, held_out = read_rows(folder / "train.jsonl"), read_rows(folder / "heldout.jsonl")
        chars = sum(len(document.text) for document in train)
        self.say(f"{len(train):,} documents ({chars / 1e6:.1f} MB) to pre-train on, {len(held_out):,} held out")

    def make_store(self) -> None:
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
        self.say(f"{tokenizer.vocab_size:,} pieces, {tokens:,} tokens")

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
        vocab_size = Store.open(self.out / "store").vocab_size  # of little text fewer pieces are made than asked for
        model = replace(recipe.model, vocab_size=vocab_size)
        loop = replace(recipe.loop, hours=self.config.minutes / 60, steps=0, tokens=0)
        return pretrain(
            replace(recipe, model=model, loop=loop), self.out / "store", self.out / "pretrain", quiet=self.quiet
        )

    def judge(self, pretrained: dict[str, Any]) -> dict[str, Any]:
        """What the encoder knows of held-out documents, beside what guessing gives."""
        self.step(4, "held-out documents: what the encoder knows, and what guessing gives", "judging")
        heldout = judge_heldout(self.out, self.config.pretrain, self.clock)
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

    def compare(self, results: dict[str, Any]) -> dict[str, Any]:
        """Fine-tune both sides, each at its best rate on dev; judge every seed on test."""
        task, rows = read_task(self.out / "task")
        counts = {name: len(examples) for name, examples in rows.items()}
        self.step(
            6, f"which package is it from? {counts['train']} examples, {len(task.labels)} packages", "fine-tuning"
        )
        tuning = Tuning(task, rows, self.tuning_steps(task, rows))
        sides: dict[str, Any] = {}
        for side in SIDES:
            dev = {rate: self.tune(side, rate, self.config.seeds[0], tuning) for rate in self.config.rates}
            best = max(dev, key=lambda rate: dev[rate]["metrics"]["accuracy"])
            test = []
            for seed in self.config.seeds:
                self.tune(side, best, seed, tuning)
                test.append(judge(self.folder_of(side, best, seed), task, rows["test"])["metrics"]["accuracy"])
            scores = {f"{rate:g}": found["metrics"]["accuracy"] for rate, found in dev.items()}
            spread = statistics.stdev(test) if len(test) > 1 else 0.0
            sides[side] = {"rate": best, "dev": scores, "test": test, "mean": statistics.fmean(test), "sd": spread}
            self.say(f"{side}: {sides[side]['mean']:.1%} on {counts['test']} held-out documents")
        majority = max(Counter(example.label for example in rows["test"]).values()) / counts["test"]
        compared = {"labels": list(task.labels), "examples": counts, "majority": majority, "sides": sides}
        compared["steps"] = tuning.steps
        compared |= {
            "gain": sides["pre-trained"]["mean"] - sides["random"]["mean"],
            "gain_interval": interval_of(sides),
        }
        about = {"kind": "demo", "minutes": self.config.minutes, "seeds": list(self.config.seeds)}
        return about | results | {"task": compared, "cut": self.clock.cuts(), "machine": machine.facts()}

    def folder_of(self, side: str, rate: float, seed: int) -> Path:
        return self.out / "finetune" / side / f"lr-{rate:g}" / f"seed-{seed}"

    def tuning_steps(self, task: Task, rows: dict[str, list[Example]]) -> int:
        """Updates of every fine-tuning run: those of the settings, or fewer if a slow machine would exceed the limit.

        The time of an update is measured once, before the first run. The number is recorded, and a rerun reads it: it
        is the same for both sides, and nothing in a run depends on the clock.
        """
        recipe = self.config.finetune
        planned = recipe.loop.steps or self.tuning_recipe().steps_of(len(rows["train"]))
        path, probe = self.out / "finetune" / "steps.json", self.out / "finetune" / "probe"
        found: dict[str, Any] = read_results(path, {"steps": int, "planned": int}) if path.exists() else {}
        if found.get("planned") != planned:
            shutil.rmtree(probe, ignore_errors=True)  # of a demo that was killed here
            began = self.clock.now()
            tried = self.tune("random", self.config.rates[0], self.config.seeds[0], Tuning(task, rows, TRIED), probe)
            rest = self.clock.now() - began - tried["seconds"]  # reading, judging and writing
            shutil.rmtree(probe)
            runs = len(SIDES) * (len(self.config.rates) + len(self.config.seeds) - 1)
            found = {"planned": planned, "steps": self.clock.fitting(planned, tried["seconds"] / TRIED, rest, runs)}
            write_json(path, found)
        steps: int = found["steps"]
        if steps < planned:
            self.clock.cut(f"fine-tuning, to {steps} of {planned} updates in every run of both sides")
        return steps

    def tuning_recipe(self) -> FinetuneConfig:
        """Fine-tuning's settings with the epochs of so short a demo."""
        recipe = self.config.finetune
        return replace(recipe, epochs=recipe.epochs * self.clock.share_of_epochs)

    def tune(self, side: str, rate: float, seed: int, tuning: Tuning, out: Path | None = None) -> dict[str, Any]:
        """One fine-tuning run; finished ones are read. `out`: left out, the run's place in the demo's folder."""
        recipe = self.tuning_recipe()
        # Judged once, at the end: the last epoch is as good as any with a rate that decays to zero.
        loop = replace(recipe.loop, seed=seed, eval_every=10**9, save_every=10**9, steps=tuning.steps)
        recipe = replace(recipe, random_init=SIDES[side], loop=loop, optim=replace(recipe.optim, lr=rate))
        data = Data(tuning.rows["train"], tuning.rows["dev"], "docstrings")
        out = out or self.folder_of(side, rate, seed)
        results = finetune(recipe, tuning.task, data, self.out / "pretrain", out, quiet=True)
        if results is None:
            raise KeyboardInterrupt
        return results

    # ---- telling

    def plot(self, results: dict[str, Any]) -> None:
        self.step(7, f"plots and report in {self.out}")
        plot_runs([self.out / "pretrain"], self.out / "plots" / "pretraining")
        task = results["task"]
        groups = {name: side["test"] for name, side in task["sides"].items()}
        title = f"Which package? {task['examples']['train']} labelled examples"
        plot_groups(groups, self.out / "plots" / "gain", "test accuracy", title, {"majority": task["majority"]})

    def finish(self, results: dict[str, Any]) -> None:
        """The table, and what to try next."""
        task = results["task"]
        table = Table("fine-tuned from", "test accuracy", "sd", "best rate", title="what pre-training bought")
        for name, side in task["sides"].items():
            table.add_row(f"{name} weights", f"{side['mean']:.1%}", f"{side['sd']:.1%}", f"{side['rate']:g}")
        table.add_row("majority class", f"{task['majority']:.1%}", "", "")
        self.console.print(table)
        self.say(f"{results['pretraining']['seconds'] / 60:.1f} min of pre-training: {gain_of(results)}")
        for what in results.get("cut", []):
            self.say(f"cut short by the time limit: {what}")
        self.console.print(f"\nreport: {self.out / 'REPORT.md'}\n\nwhat to try next:", markup=False, soft_wrap=True)
        for line in next_commands(self.out, results):
            self.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def read_task(folder: Path) -> tuple[Task, dict[str, list[Example]]]:
    """The task of telling packages apart, and its rows."""
    documents = {name: read_rows(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    rows = {name: [Example(d.text, None, d.label) for d in found] for name, found in documents.items()}
    return Task("packages", ("text",), "label", labels=tuple(sorted({d.label for d in documents["train"]}))), rows

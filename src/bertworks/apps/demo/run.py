"""The whole road on one screen: prose that every Python installation carries becomes a small BERT, and tables show
the effect of pre-training.

Every step leaves its result in the run folder and is skipped when that is there: rerun the command to resume.
Documents are split by the name of what they describe before anything else happens. Pre-training sees one side; every
number shown comes from the other.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ...config import differences, load_recipe, to_toml
from ...data.build import BuildConfig, build
from ...data.store import Store
from ...files import InputError, write_json, write_text
from ...pretraining.job import pretrain
from ...reporting.figures import plot_groups, plot_runs
from ...reporting.log import duration
from ...reporting.run_files import LOG, RESULTS, read_log, read_results
from ...tokenizer import Tokenizer, TokenizerConfig
from ...training import machine
from ...training.identity import reproducible_settings
from .clock import Clock
from .comparison import Comparison
from .config import DemoConfig, TaskConfig
from .evaluation import evaluate_heldout, fill_masks
from .page import write_page
from .prose import unmarked
from .report import (
    FINISHED,
    METRICS,
    ROWS,
    TITLES,
    compared_weights,
    compared_with_guessing,
    effect_of,
    next_commands,
    report,
    too_little,
    unit_of,
)
from .screen import Screen, Step, score_table
from .tasks import Rows, read_packages, read_tags, split_by_name, write_packages, write_tags
from .text import Document, collect, find_sources, installed_roots, read_rows, write_rows

SETTINGS = "demo.toml"  # the resolved settings, in the demo's folder
STEPS = {  # name on the screen: what it does, and the stage of the clock that it begins
    "text": ("read the docstrings of the standard library and installed packages", "reading"),
    "corpus": ("train a vocabulary and build the corpus store", "store"),
    "pre-train": ("predict masked words and next sentences", "pre-training"),
    "evaluate": ("held-out documents and filled masks, beside guessing", "evaluation"),
    "tags": ("fine-tune: which words name parameters or are code?", "tags"),
    "packages": ("fine-tune: which package is a text from?", "packages"),
    "report": ("plots, report.html and REPORT.md", ""),
}


def demo(
    config: DemoConfig, out: Path | str, roots: list[tuple[Path, str]] | None = None, quiet: bool = False
) -> dict[str, Any] | None:
    """Run the demo, or what is left of it, and return its results; None if it was stopped before its end.

    `roots`: folders of Python files and the label of each (see text.py); left out, what is installed.
    Raises InputError if `out` holds anything else, or there is too little to read.
    """
    out, console, clock = Path(out), Console(quiet=quiet), Clock(config.minutes, config.tokens)
    screen = Screen(clock.plan(), [Step(name, about) for name, (about, _) in STEPS.items()], console)
    run = Demo(config, out, roots or installed_roots(), screen, clock)
    run.open_folder()
    if (out / RESULTS).exists():
        results: dict[str, Any] | None = read_results(
            out / RESULTS, FINISHED, "remove the file to make it again from the runs"
        )
    else:
        with screen.shown():
            results = run.work()
    if results is None:
        run.too_short()
        return None
    show(results, out, console)
    return results


@dataclass(frozen=True)
class Demo:
    """One demo: its settings, its folder, and the steps in order."""

    config: DemoConfig
    out: Path
    roots: list[tuple[Path, str]]
    screen: Screen
    clock: Clock

    def work(self) -> dict[str, Any] | None:
        """All steps; None if one was stopped."""
        with self.step():
            self.collect()
        with self.step():
            self.make_stores()
        with self.step():
            if (pretrained := self.pretrain()) is None:
                return None
        with self.step():
            known = self.evaluate(pretrained)
        tasks = {}
        for read, settings in ((read_tags, self.config.tags), (read_packages, self.config.packages)):
            with self.step():
                found = read(self.out / STEP_NAMES[self.screen.number - 1])
                if (comparison := self.compare(found, settings)) is None:
                    return None
                tasks[found.task.name] = comparison
        with self.step():
            start = self.config.pretrain.model.start
            results = {"kind": "demo", "start": start, **known, "tasks": tasks, "machine": machine.facts()}
            self.plot(results)
            write_text(self.out / "REPORT.md", report(results))
            write_page(self.out, results)
            write_json(self.out / RESULTS, results)
        return results

    @contextmanager
    def step(self) -> Iterator[None]:
        """The next step, from its beginning to its end."""
        name = STEP_NAMES[self.screen.number]
        if stage := STEPS[name][1]:
            self.clock.begin(stage)
        self.screen.begin(self.clock.left() if stage else 1.0)
        yield
        if self.screen.current.notes:  # else it was stopped
            self.screen.end()

    def open_folder(self) -> None:
        """Make the folder. Raises InputError if it has anything but a demo with settings that give the same results."""
        path = self.out / SETTINGS
        if path.exists():
            unlike = differences(_decisive(load_recipe(path, DemoConfig)), _decisive(self.config))
            if shown := ", ".join(f"{key} = {old} (given: {new})" for key, old, new in unlike[:3]):
                raise InputError(f"{self.out} is a demo with {shown}; give the same settings, or another --out")
            return
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InputError(f"{self.out}: not an empty folder; give another --out")
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(path, to_toml(self.config))

    def too_short(self) -> None:
        """Say that there is no comparison yet, why, and how to go on."""
        screen, name = self.screen, STEP_NAMES[self.screen.number - 1]
        why = f"The limit of {self.config.minutes:g} minutes is used up" if self.clock.over() else "Stopped"
        screen.console.print(
            f"\n{why} in step {screen.number} of {len(screen.steps)} ({name}): too early for a comparison. All that "
            "was done is kept. Rerun the command to continue, with more --minutes if you like.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    # ---- text to store

    def collect(self) -> None:
        """Documents of both sides of the split, and the rows of both tasks."""
        folder = self.out / "documents"
        if not (folder / "train.jsonl").exists():
            train, held_out = split_by_name(self.read_documents(), self.config.held_out)
            write_tags(held_out, self.config.tags, self.out / "tags")
            held_out = [document._replace(text=unmarked(document.text)) for document in held_out]
            write_packages(held_out, self.config.packages, self.config.labels, self.out / "packages")
            write_rows(folder / "heldout.jsonl", held_out)
            # the last one: the others are complete where it exists
            write_rows(folder / "train.jsonl", (d._replace(text=unmarked(d.text)) for d in train))
        train, held_out = read_rows(folder / "train.jsonl"), read_rows(folder / "heldout.jsonl")
        chars = sum(len(document.text) for document in train)
        self.screen.note(f"{len(train):,} documents ({chars / 1e6:.1f} MB), {len(held_out):,} more held out")

    def read_documents(self) -> list[Document]:
        """The documents of all source files, with marks."""
        sources = find_sources(self.roots, self.config.collect.max_files)

        def at(done: int) -> None:
            self.screen.at(done, len(sources), "files")

        return list(collect(sources, self.config.collect, self.config.workers, at))

    def make_stores(self) -> None:
        """Vocabulary and stores."""
        text, folder = self.out / "documents", self.out / "tokenizer"
        if not (folder / "tokenizer_config.json").exists():
            wanted = TokenizerConfig(vocab_size=self.config.pretrain.model.vocab_size)
            Tokenizer.train((document.text for document in read_rows(text / "train.jsonl")), wanted).save(folder)
        self.screen.at(1, 3)
        tokenizer = Tokenizer.load(folder)
        for done, (name, source, share) in enumerate((("store", "train", 0.02), ("heldout", "heldout", 0.0)), 2):
            settings = BuildConfig(validation_share=share, workers=self.config.workers)
            if not (self.out / name / "manifest.json").exists():
                build([text / f"{source}.jsonl"], tokenizer, self.out / name, settings, progress=False)
            self.screen.at(done, 3)
        tokens = Store.open(self.out / "store").manifest["counts"]["train"]["tokens"]
        self.screen.note(f"{tokenizer.vocab_size:,} subwords, {tokens:,} tokens")

    # ---- store to encoder

    def pretrain(self) -> dict[str, Any] | None:
        """The encoder; None if stopped."""
        recipe, store, folder = self.config.pretrain, Store.open(self.out / "store"), self.out / "pretrain"
        model = replace(recipe.model, vocab_size=store.vocab_size)  # little text gives fewer subwords than asked for
        loop = replace(recipe.loop, hours=0.0, steps=0, tokens=self.config.tokens)
        self.screen.entropy = store.unigram_entropy()
        for record in read_log(folder) if (folder / LOG).exists() else ():
            self.watch(record)
        recipe = replace(recipe, model=model, loop=loop)
        results = pretrain(recipe, self.out / "store", folder, quiet=True, on_record=self.watch)
        if results is not None:
            tokens, seconds = results["tokens"], results["seconds"]  # 0 if every step compiled a graph
            self.screen.note(f"{tokens:,} tokens" + (f", {tokens / seconds:,.0f} a second" if seconds else ""))
        return results

    def watch(self, record: Mapping[str, Any]) -> bool:
        """Show a record of the log; returns whether the time limit is used up."""
        if record["kind"] == "train" and "mlm_loss" in record:
            self.screen.losses.append((record["tokens"], record["mlm_loss"]))
            self.screen.at(record["tokens"], self.config.tokens, "tokens")
        return self.clock.over()

    def evaluate(self, pretrained: dict[str, Any]) -> dict[str, Any]:
        """Held-out loss and accuracy, filled masks, and the facts of the pre-training."""
        heldout = evaluate_heldout(self.out, self.config.pretrain)
        filled = fill_masks(self.out / "pretrain")
        self.screen.note(f"held-out loss {heldout['mlm_loss']:.2f}, guessing {heldout['unigram_entropy']:.2f}")
        keep = ("steps", "tokens", "seconds", "machine")
        return {"heldout": heldout, "masks": filled, "pretraining": {key: pretrained[key] for key in keep}}

    # ---- encoder to tagger and classifier

    def compare(self, found: Rows, settings: TaskConfig) -> dict[str, Any] | None:
        """Fine-tune from pre-trained and from random weights; None if it was stopped."""
        recipe, finished = replace(self.config.finetune, epochs=settings.epochs), set[str]()

        def after(name: str) -> None:
            finished.add(name)
            self.screen.at(len(finished), comparison.runs)

        comparison = Comparison(recipe, self.config.rates, settings.seeds, self.out, found, self.clock, after)
        results = comparison.run()
        if results is not None:
            self.screen.note(effect_of(results))
        return results

    # ---- results

    def plot(self, results: dict[str, Any]) -> None:
        """The curves of pre-training and the test scores, in plots/."""
        plots = self.out / "plots"
        plot_runs([self.out / "pretrain"], plots / "pretraining", "tokens")
        for name, task in results["tasks"].items():
            groups = {weights: side["test"] for weights, side in task["sides"].items()}
            levels = {"linear": task["linear"]["test"]}
            title = f"{TITLES[name]}\n{task['examples']['train']} labelled {ROWS[name]}"
            plot_groups(groups, plots / name, f"test {METRICS[task['metric']]}", title, levels)
        self.screen.note(f"{self.out}: report.html, REPORT.md, plots/")


STEP_NAMES = list(STEPS)


def _decisive(config: DemoConfig) -> DemoConfig:
    """The settings without what changes no result: time limit, worker processes, how often runs log and save."""
    pretraining, finetuning = reproducible_settings(config.pretrain), reproducible_settings(config.finetune)
    return replace(config, minutes=1.0, workers=0, pretrain=pretraining, finetune=finetuning)


def show(results: dict[str, Any], out: Path, console: Console) -> None:
    """Print the tables, and what to try next."""

    def say(text: str, wrap: bool = True) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=not wrap)

    how = results["pretraining"]
    held = Table(title="held-out documents", title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for header in ("", "BERT", "guessing", "guessing by"):
        held.add_column(header)
    for row in compared_with_guessing(results["heldout"]):
        held.add_row(*row)
    console.print()
    console.print(held)
    say("")
    for sentence, words in results["masks"].items():
        say(f"  {sentence}\n      {', '.join(words)}")
    for name, task in results["tasks"].items():
        counts = f"{task['examples']['train']:,} labelled {ROWS[name]}, seeds: {len(task['seeds'])}"
        rows = compared_weights(name, task)
        console.print(score_table(f"\n{TITLES[name]} ({counts})", METRICS[task["metric"]], rows))
        say(f"  effect of pre-training: {effect_of(task)}")
    say(f"\n  {unit_of(results['tasks']['tags'])}")
    say(f"  {how['tokens']:,} tokens of pre-training in {duration(how['seconds'])}.")
    if warning := too_little(results):
        say(f"\n{warning}")
    say(f"\nreport: {out / 'report.html'}\n\nwhat to try next:", wrap=False)
    for line in next_commands(out, results):
        say(f"  {line}", wrap=False)

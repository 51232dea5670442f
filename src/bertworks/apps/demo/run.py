"""The steps of the demo. Each one leaves its result in the demo's folder, so that rerunning the command resumes.

Documents are divided before anything is trained: the small BERT is pre-trained on one part, and the examples of both
tasks come from the other.
"""

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...api import pretrain
from ...checkpoint.folder import find_model, run_name
from ...config import differences, load_recipe, to_toml
from ...data.batches import Vocabulary
from ...data.build import BuildConfig, build
from ...data.opening import open_store
from ...data.store import Store
from ...files import InputError, write_json, write_text
from ...inference.predictor import Predictor
from ...pretraining.recipe import PretrainConfig
from ...reporting.log import duration
from ...reporting.progress import Progress
from ...reporting.run_files import RESULTS, read_results
from ...tokenizer import Tokenizer, TokenizerConfig
from ...training import machine
from .config import DemoConfig
from .page import write_page
from .prose import unmarked
from .tables import FORM, describe_scores, final_text, mask_lines
from .tasks import split_by_name, write_examples
from .text import collect, find_sources, installed_roots, read_lines, write_lines
from .tuning import Tuning

SETTINGS = "demo.toml"
ENGLISH = (
    "She opened the [MASK] and walked into the room.",
    "The king died, and his [MASK] succeeded him to the throne.",
    "He studied at the [MASK] of Oxford.",
)
DOCSTRINGS = (
    "Return the [MASK] of the array along the given axis.",
    "If True, the result is a [MASK] of the input.",
    "Raises an error if the [MASK] does not exist.",
)
# fractions of the time limit: further seeds of the encoder begin before the first, pre-training ends at the second
SEEDS_UNTIL, PRETRAINING_UNTIL, LEAST_PRETRAINING = 0.4, 0.8, 0.25


def demo(config: DemoConfig, out: Path | str, roots: list[Path] | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run the demo, or what is left of it, and return its results.

    roots: folders of Python files; none: the standard library and the installed packages. Raises InputError if `out`
    holds anything else or there is too little text, KeyboardInterrupt after Ctrl-C.
    """
    run = Demo(config, Path(out), Progress(not quiet), quiet)
    run.open_folder()
    if not (run.out / RESULTS).exists():
        run.work(roots or installed_roots())
    results: dict[str, Any] = read_results(run.out / RESULTS, FORM, "remove the file to make it again from the runs")
    run.say("\n" + final_text(results, run.out))
    return results


@dataclass(frozen=True)
class Demo:
    """One demo: its settings, its folder, and its steps."""

    config: DemoConfig
    out: Path
    progress: Progress
    quiet: bool
    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print lines of the result."""
        if not self.quiet:
            print(text, flush=True)

    def used(self) -> float:
        """The fraction of the time limit that is used."""
        return (time.monotonic() - self.started) / (60 * self.config.minutes)

    def open_folder(self) -> None:
        """Make the folder. Raises InputError if it holds something else than a demo with these settings."""
        path, config = self.out / SETTINGS, self.config
        if path.exists():
            # a rerun may have another time limit and number of processes
            try:
                earlier = load_recipe(path, DemoConfig)
            except InputError as error:
                raise InputError(f"{error}; a demo of another version; give another --out") from None
            earlier = replace(earlier, minutes=config.minutes, workers=config.workers)
            unlike = differences(earlier, config)
            if shown := ", ".join(f"{key} = {old} (given: {new})" for key, old, new in unlike[:3]):
                raise InputError(f"{self.out} is a demo with {shown}; give the same settings, or another --out")
        elif self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InputError(f"{self.out}: not an empty folder; give another --out")
        else:
            self.out.mkdir(parents=True, exist_ok=True)
            write_text(path, to_toml(config))

    def work(self, roots: list[Path]) -> None:
        """All steps; the last one writes results.json and report.html."""
        self.say(f"bertworks demo: at most about {self.config.minutes:g} min; rerun the command to resume after Ctrl-C")
        self.collect(roots)
        encoder = self.encoder()
        tuning = Tuning(self.config, self.out, lambda: self.used() < SEEDS_UNTIL, self.progress)
        model, name = (self.config.model, run_name(encoder)) if encoder else (None, None)
        results: dict[str, Any] = {"kind": "demo", "model": model, "name": name}
        if encoder:
            results["masks"] = self.fill_masks(encoder, ENGLISH)
            self.say("\n".join(mask_lines(results["masks"])))
        scores = tuning.compare({"encoder": (encoder, False), "encoder-random": (encoder, True)}) if encoder else {}
        sizes = {"examples": tuning.size("train"), "tested": tuning.size("test")}
        results["tags"] = {"scores": scores, "linear": tuning.linear(), **sizes}
        if encoder:
            self.say(describe_scores(results))
        results["pretraining"] = self.pretrain()
        own = self.out / "pretrain"
        results["own_masks"] = self.fill_masks(own, DOCSTRINGS)
        tuning = replace(tuning, in_time=lambda: self.used() < 0.9)
        scores |= tuning.compare({"own": (own, False), "own-random": (own, True)})
        results |= {"seconds": time.monotonic() - self.started, "machine": machine.facts()}
        write_page(self.out, results)
        write_json(self.out / RESULTS, results)

    def collect(self, roots: list[Path]) -> None:
        """Read the docstrings, and write the text for pre-training and the labelled examples."""
        folder = self.out / "documents"
        if not (folder / "train.jsonl").exists():
            sources, documents = find_sources(roots, self.config.max_files), []
            with self.progress.stage("reading docstrings", len(sources), "file"):
                for done, of_file in enumerate(collect(sources, self.config.workers), 1):
                    documents += of_file
                    self.progress.at(done)
            train, held_out = split_by_name(documents, self.config.held_out)
            write_examples(held_out, self.config, self.out)
            for name, part in (("heldout", held_out), ("train", train)):  # train last: it marks the step as finished
                rows = (document._replace(text=unmarked(document.text))._asdict() for document in part)
                write_lines(folder / f"{name}.jsonl", rows)
        size = (folder / "train.jsonl").stat().st_size
        self.say(f"text: docstrings of installed packages, {size / 1e6:.1f} MB for pre-training; examples from others")

    def encoder(self) -> Path | None:
        """The folder of the encoder to fine-tune. If it is missing, prints a message and returns None."""
        try:
            folder = find_model(self.config.model)
            if (folder / "config.json").exists():
                return folder
            problem = f"{self.config.model}: not installed, and no model folder"
        except InputError as error:
            problem = str(error)
        self.say(f"{problem}. Only a small BERT is pre-trained and compared; --model takes another encoder")
        return None

    def fill_masks(self, model: Path, sentences: tuple[str, ...]) -> dict[str, list[str]]:
        """The three most probable words for the mask of each sentence, with their probabilities."""
        predicted = Predictor(model).fill_mask(sentences, top_k=3)
        return {
            sentence: [f"{candidate['token']} {candidate['score']:.0%}" for candidate in candidates[0]]
            for sentence, candidates in zip(sentences, predicted, strict=True)
        }

    # ---- the small BERT

    def pretrain(self) -> dict[str, Any]:
        """Vocabulary, corpus store and pre-training in the time that is left; what it gave on held-out documents."""
        text, folder, corpus = self.out / "documents" / "train.jsonl", self.out / "tokenizer", self.out / "store"
        if not (folder / "tokenizer_config.json").exists():
            settings = TokenizerConfig(vocab_size=self.config.recipe.model.vocab_size)
            Tokenizer.train((str(row["text"]) for row in read_lines(text)), settings).save(folder)
        tokenizer = Tokenizer.load(folder)
        build(
            [text], tokenizer, corpus, BuildConfig(validation_share=0.02, workers=self.config.workers), progress=False
        )
        recipe, started = self.config.recipe, self.out / "pretrain" / "recipe.toml"
        if started.exists():  # a resumed run has the budget that it began with
            recipe = load_recipe(started, PretrainConfig)
        else:
            fraction = max(LEAST_PRETRAINING, PRETRAINING_UNTIL - self.used())
            model = replace(recipe.model, vocab_size=tokenizer.vocab_size)  # fewer tokens, if there is little text
            recipe = replace(recipe, model=model, loop=replace(recipe.loop, hours=fraction * self.config.minutes / 60))
        seconds = 3600 * recipe.loop.hours
        self.say(f"pre-training a BERT of {recipe.model.num_hidden_layers} layers for {duration(seconds)}")
        with self.progress.stage("pre-training", seconds, "second"):
            run = pretrain(
                recipe, corpus, started.parent, quiet=True,
                on_record=lambda record: self.progress.at(record["seconds"]),
            )  # fmt: skip
        if not run.finished:
            raise KeyboardInterrupt
        facts = {key: run.details[key] for key in ("steps", "tokens", "seconds")}
        return facts | {"held_out": run.metrics | baselines(recipe, open_store(corpus), tokenizer)}


def baselines(recipe: PretrainConfig, store: Store, tokenizer: Tokenizer) -> dict[str, float]:
    """The accuracy of constant answers on the held-out text, and the least informative accuracy of next sentences.

    An accuracy of next sentences is informative above `nsp_least`: two standard errors above the more frequent answer.
    """
    data = recipe.data(store, "validation", Vocabulary.of(tokenizer), recipe.phases[-1].length)
    batches = list(data.batches(64, recipe.eval_batches))
    masked = [int(label) for batch in batches for label in batch["masked_labels"] if label >= 0]
    pairs = Counter(int(label) for batch in batches for label in batch["pair_labels"])
    majority = max(pairs.values()) / pairs.total()
    frequent = int(store.unigram_counts().argmax())
    return {
        "mlm_baseline": masked.count(frequent) / len(masked),
        "nsp_baseline": majority,
        "nsp_least": majority + 2 * math.sqrt(majority * (1 - majority) / pairs.total()),
        "masked": len(masked),
        "pairs": pairs.total(),
    }

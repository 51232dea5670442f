"""`bertworks probe word`, `neighbours`, `particles`, `attention`, `heads` and `layers`: what an encoder has learned."""

import itertools
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from ..apps.probing.config import HeadsConfig, LayersConfig, NeighbourConfig, ParticlesConfig, WordConfig
from ..data.corpus import InputOptions, read_documents
from ..data.sentences import split_sentences
from ..files import to_json, write_text
from .arguments import DevRows, Flat, Positional, TrainRows, flags_in, parse, required


@dataclass(frozen=True)
class WordArguments:
    """Compare a word's vectors in two sentences, at every layer.

    The cosines of random words are printed for comparison.

    Example:
        bertworks probe word runs/base bank "the river bank" "money in the bank"

    Three or more sentences give a matrix of cosines at one layer.
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    word: Positional[str]  # word that occurs in every sentence
    sentences: Annotated[tuple[str, ...], Positional, required("SENTENCE")]  # two sentences or more
    baseline: tuple[str, ...] = ()
    """text files whose first 200 sentences provide the random words; none: the sentences themselves"""
    config: Flat[WordConfig] = field(default_factory=WordConfig)
    out: Path | None = None  # file to write, besides printing: .json, .png or .svg


def word(argv: list[str]) -> None:
    """Print the cosines, and write or draw them if asked to."""
    arguments = parse(WordArguments, argv, "probe word", "--model")
    from ..apps.probing import similarity
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.pictures import check_out

    check_out(arguments.out, data=arguments.baseline, folders=[arguments.model])
    texts = (document.text for document in read_documents(arguments.baseline)) if arguments.baseline else ()
    sentences = (sentence for text in texts for sentence in split_sentences(text))
    others = list(itertools.islice(sentences, similarity.MOST))
    model, config = ProbedModel(arguments.model), arguments.config
    results = similarity.compare_word(model, arguments.word, arguments.sentences, config, others)
    results["settings"] = {**results["settings"], "baseline": list(arguments.baseline)}
    for sheet in similarity.sheets(results):
        sheet.show()
    _write(results, arguments.out, similarity.plot)


@dataclass(frozen=True)
class NeighboursArguments:
    """Find the contexts of a word that are nearest to its use in a given sentence.

    Example:
        bertworks probe neighbours runs/base bank --data texts --sentence "my bank"
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    word: Positional[str]  # word to search for
    data: tuple[str, ...]  # text to search: files, folders, globs or archives
    config: Flat[NeighbourConfig] = field(default_factory=NeighbourConfig)
    input: InputOptions = field(default_factory=InputOptions)
    out: Path | None = None  # .json file to write, besides printing


def neighbours(argv: list[str]) -> None:
    """Print the nearest contexts, and write them if asked to."""
    arguments = parse(NeighboursArguments, argv, "probe neighbours", "--model")
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.neighbours import find_neighbours, show
    from ..apps.probing.pictures import check_out

    check_out(arguments.out, (".json",), arguments.data, [arguments.model])
    model = ProbedModel(arguments.model)
    results = find_neighbours(model, arguments.word, arguments.data, arguments.config, arguments.input)
    show(results)
    _write(results, arguments.out)


@dataclass(frozen=True)
class ParticlesArguments:
    """Measure what Korean nouns and particles account for in a word's vector.

    It needs the extra `korean`, whose analyser finds nouns and particles.

    Example:
        bertworks probe particles runs/ko --data texts
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    data: tuple[str, ...]  # Korean text: files, folders, globs or archives
    config: Flat[ParticlesConfig] = field(default_factory=ParticlesConfig)
    input: InputOptions = field(default_factory=InputOptions)
    out: Path | None = None  # file to write, besides printing: .json, .png or .svg


def particles(argv: list[str]) -> None:
    """Print the table of layers, and write or draw it if asked to."""
    arguments = parse(ParticlesArguments, argv, "probe particles", "--model")
    from ..apps.probing import particles as probe
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.pictures import check_out

    check_out(arguments.out, data=arguments.data, folders=[arguments.model])
    texts = (document.text for document in read_documents(arguments.data, arguments.input))
    sentences = (sentence for text in texts for sentence in split_sentences(text, "ko"))
    results = probe.probe_particles(ProbedModel(arguments.model), sentences, arguments.config)
    probe.sheet(results).show()
    _write(results, arguments.out, probe.plot)


@dataclass(frozen=True)
class AttentionArguments:
    """Write the attention weights of every head on a text.

    A name that ends in .json gets the weights and statistics of every head; one that ends in .html the page of
    `bertworks explain`.

    Example:
        bertworks probe attention runs/base "The cat sat." "It slept." --out a.json
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    text: Positional[str]  # text to show
    pair: Positional[str | None] = None  # second text of a sentence pair
    out: Path = field(kw_only=True)  # .json or .html file to write
    max_length: int | None = None  # tokens to show; longer texts are truncated; none: the model's limit, .html: 48


def attention(argv: list[str]) -> None:
    """Write the weights, or the page."""
    arguments = parse(AttentionArguments, argv, "probe attention", "--model")
    from ..apps.probing.attention import attend, results_of
    from ..apps.probing.explanation import explain
    from ..apps.probing.explanation_page import explain_page
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.pictures import check_out
    from ..inference.predictor import Predictor

    out, texts = arguments.out, (arguments.text, arguments.pair, arguments.max_length)
    check_out(out, (".json", ".html"), folders=[arguments.model])
    if out.suffix.lower() == ".html":
        found = explain(Predictor(arguments.model), *texts)
        written = explain_page(found)
    else:
        found = results_of(attend(ProbedModel(arguments.model), *texts))
        written = to_json(found) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, written)
    if found["cut"]:
        print(f"{found['cut']:,} tokens did not fit and were cut", file=sys.stderr)
    print(f"written: {out}", file=sys.stderr)


@dataclass(frozen=True)
class HeadsArguments:
    """Measure each attention head of a fine-tuned model by switching it off.

    Example:
        bertworks probe heads runs/mrpc --task mrpc --data glue/MRPC

    Tables have the columns of the table that the model was fine-tuned on.

    The command evaluates once for each head.
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    rows: Flat[DevRows] = field(default_factory=DevRows)
    config: Flat[HeadsConfig] = field(default_factory=HeadsConfig)
    out: Path | None = None  # .json file to write, besides printing


def heads(argv: list[str]) -> None:
    """Print the table of heads, and write or draw it if asked to."""
    arguments = parse(HeadsArguments, argv, "probe heads", "--model")
    from ..apps.probing import heads as probe
    from ..apps.probing.pictures import check_out
    from ..inference.evaluation import remembered

    rows = remembered(arguments.rows, arguments.model, {flag.removeprefix("--") for flag in flags_in(argv)})
    check_out(arguments.out, (".json",), rows.find()[1], [arguments.model])
    results = probe.ablate_heads(arguments.model, *rows.read(), arguments.config)
    probe.show(results)
    _write(results, arguments.out)


@dataclass(frozen=True)
class LayersArguments:
    """Measure each layer by the accuracy of a linear classifier on its vectors.

    The accuracy on a control task is printed for comparison.

    Example:
        bertworks probe layers runs/base --task conll2003 --data conll2003
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    rows: Flat[TrainRows] = field(default_factory=TrainRows)
    config: Flat[LayersConfig] = field(default_factory=LayersConfig)
    out: Path | None = None  # file to write, besides printing: .json, .png or .svg


def layers(argv: list[str]) -> None:
    """Print the table of layers, and write or draw it if asked to."""
    arguments = parse(LayersArguments, argv, "probe layers", "--model")
    from ..apps.probing import layers as probe
    from ..apps.probing.items import read_items
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.pictures import check_out
    from ..tasks.base import Limits

    task, (train, dev) = arguments.rows.find()
    check_out(arguments.out, data=(train, dev), folders=[arguments.model])
    if arguments.rows.task and arguments.rows.label not in ("", task.label):  # part_of_speech of conll2003, for example
        task = replace(task, label=arguments.rows.label, labels=(), written=())
    config, model = arguments.config, ProbedModel(arguments.model)
    limits = Limits(max_seq_length=min(config.max_seq_length, model.positions))
    learned = read_items(task, train, model.tokenizer, limits, config.train_items, config.first_seed)
    judged = read_items(task, dev, model.tokenizer, limits, config.dev_items, config.first_seed, learned.names)
    results = probe.probe_layers(model, learned, judged, config)
    probe.sheet(results).show()
    _write(results, arguments.out, probe.plot)


def _write(results: dict[str, Any], out: Path | None, plot: Any = None) -> None:
    """Write the results to `out`, if it is given, as JSON or drawn by `plot`, and print the names of the files."""
    from ..apps.probing.pictures import write_or_plot

    if out is not None:
        print(f"written: {', '.join(map(str, write_or_plot(results, out, plot)))}", file=sys.stderr)

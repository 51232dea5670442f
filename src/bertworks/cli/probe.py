"""`bertworks probe explain`, `word`, `neighbours`, `heads` and `layers`: what a model has learned."""

import itertools
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from ..apps.probing.config import HeadsConfig, LayersConfig, NeighbourConfig, WordConfig
from ..data.corpus import InputOptions, read_documents
from ..data.sentences import split_sentences
from ..files import to_json, write_text
from .arguments import ENCODING, DevRows, Flat, Positional, TrainRows, names_in, parse, required


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Arguments that all probes with a table share."""

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    out: Path | None = None  # file to which the results are also written: .json, or .png or .svg for a table by layer


@dataclass(frozen=True, kw_only=True)
class WordArguments(Probe):
    """Compare a word's vectors in two sentences, at every layer.

    The cosines of random words are printed for comparison.

    Example:
        bertworks probe word runs/base bank "the river bank" "money in the bank"

    Three or more sentences give a matrix of cosines at one layer.
    """

    word: Positional[str]  # word that occurs in every sentence
    sentences: Annotated[tuple[str, ...], Positional, required("SENTENCE")]  # two sentences or more
    baseline: tuple[str, ...] = ()
    """text files whose first 200 sentences the random words are drawn from; none: the given sentences"""
    config: Flat[WordConfig] = field(default_factory=WordConfig)


def word(argv: list[str]) -> None:
    """Print the cosines, and write or draw them with --out."""
    arguments = parse(WordArguments, argv, "probe word")
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


@dataclass(frozen=True, kw_only=True)
class NeighboursArguments(Probe):
    """Find the contexts of a word that are nearest to its use in a given sentence.

    Example:
        bertworks probe neighbours runs/base bank --data texts --sentence "my bank"
    """

    word: Positional[str]  # word to search for
    data: tuple[str, ...]  # text to search: files, folders, globs or archives
    config: Flat[NeighbourConfig] = field(default_factory=NeighbourConfig)
    input: InputOptions = field(default_factory=InputOptions)


def neighbours(argv: list[str]) -> None:
    """Print the nearest contexts, and write them with --out."""
    arguments = parse(NeighboursArguments, argv, "probe neighbours", ENCODING)
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.neighbours import find_neighbours, show
    from ..apps.probing.pictures import check_out

    check_out(arguments.out, (".json",), arguments.data, [arguments.model])
    model = ProbedModel(arguments.model)
    results = find_neighbours(model, arguments.word, arguments.data, arguments.config, arguments.input)
    show(results)
    _write(results, arguments.out)


@dataclass(frozen=True)
class ExplainArguments:
    """Write an HTML page that shows what the model computes for a text or a pair.

    It shows embeddings, attention and predictions, and works without a network.

    Example:
        bertworks probe explain runs/base "The cat sat." "It slept." --out page.html

    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    text: Positional[str]  # text to explain; for question answering the question
    pair: Positional[str | None] = None  # second text of a sentence pair; for question answering the context
    out: Path = field(kw_only=True)  # .html file to write, or .json for the numbers alone
    max_length: int | None = None  # largest number of tokens; the rest is cut; none: 48, or the model's smaller limit
    top_k: int = 5  # number of predictions to show for each masked token


def explain(argv: list[str]) -> None:
    """Write the page."""
    arguments = parse(ExplainArguments, argv, "probe explain")
    from ..apps.probing.explanation import explain as compute
    from ..apps.probing.explanation_page import explain_page
    from ..apps.probing.pictures import check_out
    from ..inference.predictor import Predictor

    out = arguments.out
    check_out(out, (".html", ".json"), folders=[arguments.model])
    predictor = Predictor(arguments.model)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    data = compute(predictor, arguments.text, arguments.pair, arguments.max_length, arguments.top_k)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, explain_page(data) if out.suffix.lower() == ".html" else to_json(data) + "\n")
    if data["cut"]:
        print(f"{data['cut']:,} tokens did not fit and were cut; --max-length raises the limit", file=sys.stderr)
    print(f"written: {out}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class HeadsArguments(Probe):
    """Measure each attention head of a fine-tuned model by switching it off.

    Example:
        bertworks probe heads runs/mrpc --task mrpc --data glue/MRPC

    The columns of a table default to those used in fine-tuning.

    The model is evaluated once per head.
    """

    rows: Flat[DevRows] = field(default_factory=DevRows)
    config: Flat[HeadsConfig] = field(default_factory=HeadsConfig)


def heads(argv: list[str]) -> None:
    """Print the table of heads, and write or draw it with --out."""
    arguments = parse(HeadsArguments, argv, "probe heads")
    from ..apps.probing import heads as probe
    from ..apps.probing.pictures import check_out
    from ..inference.evaluation import remembered

    rows = remembered(arguments.rows, arguments.model, names_in(argv))
    check_out(arguments.out, (".json",), rows.find()[1], [arguments.model])
    results = probe.ablate_heads(arguments.model, *rows.read(), arguments.config)
    probe.show(results)
    _write(results, arguments.out)


@dataclass(frozen=True, kw_only=True)
class LayersArguments(Probe):
    """Measure each layer by the accuracy of a linear classifier on its vectors.

    The accuracy on a control task is printed for comparison.

    Example:
        bertworks probe layers runs/base --task conll2003 --data conll2003
    """

    rows: Flat[TrainRows] = field(default_factory=TrainRows)
    config: Flat[LayersConfig] = field(default_factory=LayersConfig)


def layers(argv: list[str]) -> None:
    """Print the table of layers, and write or draw it with --out."""
    arguments = parse(LayersArguments, argv, "probe layers")
    from ..apps.probing import layers as probe
    from ..apps.probing.items import read_items
    from ..apps.probing.model import ProbedModel
    from ..apps.probing.pictures import check_out
    from ..tasks.base import LengthLimits

    rows = arguments.rows
    task, (train, dev) = (replace(rows, label="") if rows.task else rows).find()
    if Path(train).resolve() == Path(dev).resolve():
        print("warning: train and dev are the same file: the accuracies are of training examples", file=sys.stderr)
    check_out(arguments.out, data=(train, dev), folders=[arguments.model])
    if rows.task and rows.label not in ("", task.label):  # part_of_speech of conll2003, for example
        task = replace(task, label=rows.label, labels=(), raw_labels=())
    config, model = arguments.config, ProbedModel(arguments.model)
    limits = LengthLimits(max_seq_length=min(config.max_seq_length, model.positions))
    trained = read_items(task, train, model.tokenizer, limits, config.train_items, config.first_seed)
    evaluated = read_items(task, dev, model.tokenizer, limits, config.dev_items, config.first_seed, trained.names)
    results = probe.probe_layers(model, trained, evaluated, config)
    probe.sheet(results).show()
    _write(results, arguments.out, probe.plot)


def _write(results: dict[str, Any], out: Path | None, plot: Any = None) -> None:
    """Write the results to `out`, if it is given, as JSON or drawn by `plot`, and print the names of the files."""
    from ..apps.probing.pictures import write_or_plot

    if out is not None:
        print(f"written: {', '.join(map(str, write_or_plot(results, out, plot)))}", file=sys.stderr)

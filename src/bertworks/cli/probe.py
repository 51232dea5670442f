"""`bertworks probe word`, `neighbours`, `attention`, `heads` and `layers`: what an encoder has learned."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tasks.base import Task


def word(argv: list[str]) -> None:
    """How far a word's vector moves with its sentence, by layer: FOLDER WORD "sentence" "sentence" [--out F]."""
    from typing import Annotated

    import tyro

    from ..data.corpus import read_documents
    from ..data.sentences import split_sentences
    from ..probing.model import ProbedModel
    from ..probing.pictures import check_out, write_results
    from ..probing.similarity import MOST, WordConfig, compare_word, plot, sheets

    def run(
        folder: tyro.conf.Positional[Path],
        word: tyro.conf.Positional[str],
        sentences: tyro.conf.Positional[tuple[str, ...]],
        baseline: tuple[str, ...] = (),
        config: Annotated[WordConfig, tyro.conf.arg(name="")] = WordConfig(),  # noqa: B008
        out: Path | None = None,
    ) -> None:
        """Cosine of a word's vector in two sentences at every layer, beside that of random words; of more, a matrix.

        Args:
            folder: model folder or run folder
            word: stands in every sentence
            sentences: two or more
            baseline: files whose first 200 sentences give the random words; left out, those of the sentences themselves
            out: file to write: .json, .png or .svg
        """
        import itertools

        check_out(out)
        texts = (document.text for document in read_documents(baseline)) if baseline else ()
        others = list(itertools.islice((one for text in texts for one in split_sentences(text)), MOST))
        results = compare_word(ProbedModel(folder), word, sentences, config, others)
        results["settings"] = {**results["settings"], "baseline": list(baseline)}
        for sheet in sheets(results):
            sheet.show()
        if out is not None:
            _wrote(write_results(results, out, plot))

    tyro.cli(run, prog="bertworks probe word", args=argv)


def neighbours(argv: list[str]) -> None:
    """The nearest contexts of a word in a corpus: FOLDER WORD --corpus FILE... [--sentence "..."]."""
    from typing import Annotated

    import tyro

    from ..data.corpus import InputOptions
    from ..files import write_json
    from ..probing.model import ProbedModel
    from ..probing.neighbours import NeighbourConfig, find_neighbours, show
    from ..probing.pictures import check_out

    def run(
        folder: tyro.conf.Positional[Path],
        word: tyro.conf.Positional[str],
        corpus: tuple[str, ...],
        config: Annotated[NeighbourConfig, tyro.conf.arg(name="")] = NeighbourConfig(),  # noqa: B008
        input: InputOptions = InputOptions(),  # noqa: B008
        out: Path | None = None,
    ) -> None:
        """Print the contexts in which the word's vector is nearest to what it is in the sentence.

        Args:
            folder: model folder or run folder
            word: to look for
            corpus: files, folders, globs or archives of text
            out: .json file to write too
        """
        check_out(out, (".json",))
        results = find_neighbours(ProbedModel(folder), word, corpus, config, input)
        show(results)
        if out is not None:
            write_json(out, results)
            _wrote([out])

    tyro.cli(run, prog="bertworks probe neighbours", args=argv)


def attention(argv: list[str]) -> None:
    """What every attention head looks at, as one HTML page: FOLDER "text" ["second text"] --out PAGE.html."""
    import tyro

    from ..files import write_text
    from ..probing.attention import attend
    from ..probing.attention_page import page
    from ..probing.model import ProbedModel
    from ..probing.pictures import check_out

    def run(
        folder: tyro.conf.Positional[Path],
        text: tyro.conf.Positional[str],
        pair: tyro.conf.Positional[str | None] = None,
        *,
        out: Path,
        max_length: int | None = None,
    ) -> None:
        """Write a page that any browser of 2023 or later opens, without a network.

        Args:
            folder: model folder or run folder
            text: a text
            pair: a second text, if the two are a pair
            out: .html file to write
            max_length: tokens to look at, the rest is cut; left out, as many as the model has positions
        """
        check_out(out, (".html",))
        attention = attend(ProbedModel(folder), text, pair, max_length)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, page(attention))
        if attention.cut:
            print(f"{attention.cut:,} tokens did not fit and were cut", file=sys.stderr)
        _wrote([out])

    tyro.cli(run, prog="bertworks probe attention", args=argv)


def heads(argv: list[str]) -> None:
    """What each attention head is worth to a fine-tuned folder: RUN --task NAME --data DIR, or --dev FILE."""
    from typing import Annotated

    import tyro

    from ..probing.heads import HeadsConfig, ablate_heads, plot, show
    from ..probing.pictures import check_out, write_results
    from .arguments import DevRows

    def run(
        folder: tyro.conf.Positional[Path],
        rows: Annotated[DevRows, tyro.conf.arg(name="")] = DevRows(),  # noqa: B008
        config: Annotated[HeadsConfig, tyro.conf.arg(name="")] = HeadsConfig(),  # noqa: B008
        out: Path | None = None,
    ) -> None:
        """The development metric without each head in turn. An evaluation a head: the number is told beforehand.

        Args:
            folder: run folder of `bertworks finetune`, or a model folder with a supervised head
            out: file to write: .json, .png or .svg
        """
        check_out(out)
        results = ablate_heads(folder, *rows.read(), config)
        show(results)
        if out is not None:
            _wrote(write_results(results, out, plot))

    tyro.cli(run, prog="bertworks probe heads", args=argv)


def layers(argv: list[str]) -> None:
    """What each layer knows of a task, by linear probes: FOLDER --task NAME --data DIR, or --train F --dev F."""
    from typing import Annotated

    import tyro

    from ..probing.items import read_items
    from ..probing.layers import LayersConfig, plot, sheet
    from ..probing.layers import probe_layers as probe
    from ..probing.model import ProbedModel
    from ..probing.pictures import check_out, write_results
    from ..tasks.base import Limits
    from ..tasks.kinds import own_task
    from .arguments import check_alone, own_files, words

    def run(
        folder: tyro.conf.Positional[Path],
        task: str = "",
        data: Path | None = None,
        train: Path | None = None,
        dev: Path | None = None,
        kind: str = "",
        text: str = "text",
        label: str = "",
        config: Annotated[LayersConfig, tyro.conf.arg(name="")] = LayersConfig(),  # noqa: B008
        out: Path | None = None,
    ) -> None:
        """Accuracy of a linear classifier on the frozen vectors of each layer, beside that on a control task.

        Args:
            folder: model folder or run folder
            task: a task that bertworks knows, of single texts, pairs or tags (bertworks tasks lists them)
            data: folder of the task's files
            train: your own table to train on (.csv, .tsv, .jsonl, .parquet; CoNLL columns)
            dev: your own table to judge on
            kind: of your own table: single, pair, tagging
            text: its text column, or two of them with a comma between
            label: label column; of a tagging task any of its columns, part_of_speech of conll2003 for instance
            out: file to write: .json, .png or .svg
        """
        check_out(out)
        if task:
            own = {"--train": train, "--dev": dev, "--kind": kind}
            check_alone("--task", {name: value for name, value in own.items() if value})
            asked, files = _known_task(task, data, label)
        else:
            files = own_files(train, dev)
            asked = own_task(kind, words(text), label or "label")
        model = ProbedModel(folder)
        limits = Limits(max_seq_length=min(config.max_seq_length, model.positions))
        most, seed = (config.train_items, config.dev_items), config.first_seed
        learned = read_items(asked, files[0], model.tokenizer, limits, most[0], seed)
        judged = read_items(asked, files[1], model.tokenizer, limits, most[1], seed, learned.names)
        results = probe(model, learned, judged, config)
        sheet(results).show()
        if out is not None:
            _wrote(write_results(results, out, plot))

    tyro.cli(run, prog="bertworks probe layers", args=argv)


def _known_task(name: str, data: Path | None, label: str) -> tuple["Task", list[Path]]:
    """A task of the catalogue, of another of its label columns if one is named, and its files to learn and to judge."""
    from ..tasks.catalogue import find_task
    from .arguments import folder_of

    task, folder = find_task(name), folder_of(name, data)
    if label not in ("", task.label):
        task = replace(task, label=label, labels=(), written=())
    return task, [folder / task.train, folder / task.dev]


def _wrote(files: list[Path]) -> None:
    print(f"written: {', '.join(map(str, files))}", file=sys.stderr)

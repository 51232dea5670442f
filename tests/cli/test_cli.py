"""The command line: its verbs, and what a failure looks like from outside."""

import ast
import dataclasses
import errno
import importlib
import inspect
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

import bertworks
from bertworks import cli
from bertworks.cli import PRINTERS, VERBS, main
from bertworks.cli import tokenizer as tokenizer_verb
from bertworks.cli.arguments import ALIASES, DevRows
from bertworks.cli.ending import EXIT_STATUSES
from bertworks.cli.pretrain import print_estimate
from bertworks.config import recipe_names
from bertworks.data.build import BuildConfig
from bertworks.files import InputError
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.pretraining.recipe import DistillConfig, PretrainConfig, StaticConfig
from bertworks.reporting import run_files
from bertworks.tokenizer import TokenizerConfig


def status(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_version_is_the_packages(capsys):
    main(["--version"])
    commit = run_files.commit()
    assert capsys.readouterr().out == f"bertworks {bertworks.__version__}{f' (commit {commit})' if commit else ''}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_verb(arguments, capsys):
    assert status(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {verb} " in out for verb in VERBS)


SUBVERBS = {
    first: [verb for verb in VERBS if verb.startswith(f"{first} ")] for first in ("tokenizer", "corpus", "probe")
}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("pretrian", "did you mean pretrain?"),
        ("finetun", "did you mean finetune?"),
        ("probe wrod", "did you mean probe word?"),
        ("tokenizer trian", "did you mean tokenizer train?"),
        ("probe zzz", "expected one of"),
        ("tokenizer", "expected one of"),
        ("probe", "expected one of"),
        ("zzz", "`bertworks --help` lists the verbs"),
    ],
)
def test_an_unknown_verb_is_named_in_a_short_message(line, hint, capsys):
    assert status(line.split() + ["text"] * (" " in line)) == 2
    shown = capsys.readouterr()
    first, *others = shown.err.splitlines()
    assert shown.out == "" and first == f"unknown verb: {line}; {hint}"
    assert [" ".join(other.split()) for other in others] == [
        f"{verb} {VERBS[verb]}" for verb in SUBVERBS.get(line.split()[0], [])
    ]


@pytest.mark.parametrize("first", SUBVERBS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_a_first_word_lists_its_verbs(first, flag, capsys):
    assert status([first, flag]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and re.findall(r"^  (\w+ \w+) +(.*)$", shown.out, re.M) == [
        (verb, VERBS[verb]) for verb in SUBVERBS[first]
    ]


@pytest.mark.parametrize(
    ("line", "hints"),
    [
        ("finetune m --out x --lr 1", {"--lr": "--optim.lr"}),
        ("finetune m --outt x", {"--outt": "--out"}),
        ("finetune m --out x --train-batch-size 3", {"--train-batch-size": "--batch-size"}),
        ("finetune m --out x --max-length 3", {"--max-length": "--max-seq-length"}),
        ("pretrain cpu --corpus c --out x --weight-decay 0", {"--weight-decay": "--optim.weight-decay"}),
        ("predict m f --out x --zzz 1", {}),
        ("finetune m --out x --optim.lrr 1", {"--optim.lrr": "--optim.lr"}),
        ("finetune m --out x --loop.micro-batch-size 1", {"--loop.micro-batch-size": "--micro-batch-size"}),
        (
            "pretrain cpu --corpus c --out x --loop.micro-batch-size 8",
            {"--loop.micro-batch-size": "--phases.0.micro-batch-size"},
        ),
        ("pretrain cpu --batch-sise 8", {"--batch-sise": "--phases.0.batch-size"}),
        ("convert a b --casde", {"--casde": "--cased"}),
        ("serve m --key abc", {"--key": "--key-file"}),
        ("finetune m", {}),
        ("pretrain cpu --phases.0.length 64 --corpus c", {}),
    ],
)
def test_an_unknown_flag_of_other_programs_gets_ours(line, hints, capsys):
    assert status(shlex.split(line)) == 2
    shown = capsys.readouterr().err
    assert dict(re.findall(r"^unknown flag (\S+); did you mean (\S+)\?$", shown, re.M)) == hints
    assert not hints or "Perhaps" not in shown  # one hint, not a second one of another mind
    assert "--zzz" not in line or "unknown flag --zzz\n" in shown


def test_hints_know_every_flag_of_the_help(capsys, monkeypatch):
    known = set()
    monkeypatch.setattr("bertworks.cli.arguments.flag_hints", lambda words, flags: known.update(flags) or [])
    for verb, text in every_help(capsys, 300, monkeypatch):
        known.clear()
        assert status([*verb.split(), "--zzz"]) == 2, verb
        capsys.readouterr()
        shown = set(re.findall(r"(?:^ |  |, )(--[a-z][a-z.-]*[a-z])(?=[ ,\n])", text, re.M))
        assert "--help" in shown and shown - {"--help", "--cased", "--uncased"} <= known, verb
        assert len(shown) > 20 or verb != "finetune"


def test_ctrl_c_ends_any_verb_without_a_traceback(capsys, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "function_of", lambda _: interrupted)
    for verb in VERBS:
        assert status(verb.split()) == 130
        assert capsys.readouterr().err == "\nstopped\n"


def test_ctrl_c_that_a_library_turns_into_another_error(capsys, monkeypatch):
    """As numpy does while it is being imported."""

    def interrupted(_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError from None

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(cli, "function_of", lambda _: interrupted)
    assert status(["features"]) == 130 and capsys.readouterr().err == "\nstopped\n"
    assert signal.getsignal(signal.SIGINT) is before

    def failing(_):
        raise RecursionError

    monkeypatch.setattr(cli, "function_of", lambda _: failing)
    with pytest.raises(RecursionError):  # a defect of ours is shown
        main(["features"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["--version", "--help"])
def test_output_that_cannot_be_written_is_one_message(line):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "bertworks", line], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "bertworks: standard output: No space left on device\n")


def test_exit_statuses_are_the_same_in_the_help_and_in_the_docs(capsys):
    assert status(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.partition("exit status")[2].split())
    assert shown == " ".join(f"{number} {meaning}" for number, meaning in EXIT_STATUSES.items())
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.M)
    assert rows == [(str(number), meaning) for number, meaning in EXIT_STATUSES.items()]


def test_every_verb_is_a_function_of_the_module_of_its_name():
    """The table names no verb without a module, and no module is left out of it."""
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    called = {cli.function_of(verb).__module__.rpartition(".")[2] for verb in VERBS}
    assert modules - called == {"__init__", "__main__", "arguments", "ending"}
    assert VERBS.keys() >= PRINTERS
    words = [verb.replace("-", "_").split() for verb in VERBS]
    for module in called:
        home = f"bertworks.cli.{module}"
        functions = [f for f in vars(importlib.import_module(home)).values() if inspect.isfunction(f)]
        verbs = {f.__name__ for f in functions if f.__module__ == home and "argv" in inspect.signature(f).parameters}
        assert {name for name in verbs if not name.startswith("_")} == {one[-1] for one in words if one[0] == module}


def test_the_help_fits_80_columns(capsys):
    assert status(["--help"]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


def test_the_packages_names_can_be_listed():
    assert {*dir(bertworks)} == {*bertworks.__all__, "__version__"} and "load_encoder" in bertworks.__all__
    with pytest.raises(AttributeError, match=r"no attribute 'Predicter'; did you mean Predictor\?"):
        bertworks.Predicter  # noqa: B018
    assert not hasattr(bertworks, "zzz")


@pytest.mark.filterwarnings("ignore:get_parser")
@pytest.mark.parametrize(
    "config", [PretrainConfig, FinetuneConfig, DistillConfig, BuildConfig, StaticConfig, TokenizerConfig]
)
def test_every_flag_of_a_recipe_is_explained_by_its_own_comment(config):
    """A field without a comment is explained by the one above it, or by none."""
    parser = tyro.extras.get_parser(config)
    seen = {}
    for action in parser._actions:
        text = re.sub(r"\s*\((default|required).*", "", action.help, flags=re.DOTALL).strip()
        name = action.option_strings[0]
        assert text and seen.setdefault(text, name) == name
    headings = [group.description or "" for group in parser._action_groups]
    assert not any(heading.startswith("0:") for heading in headings)


def test_a_folder_is_given_first_or_as_model(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    for line in ("evaluate none --dev {}", "evaluate --dev {} --model none"):
        assert status(line.format(tmp_path / "a.csv").split()) == 1
        assert "none: no such folder" in capsys.readouterr().err
    for verb, rest in (("predict", "a.txt"), ("fill-mask", "x"), ("features", "a.txt --out a.safetensors")):
        for line in (f"{verb} none {rest}", f"{verb} --model none {rest}", f"{verb} {rest} --model=none"):
            assert status(line.split()) == 1
            assert "none: no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("a.txt: no such file"), "bertworks: a.txt: no such file\n"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.parquet"),
            "bertworks: out.parquet: No space left on device\n",
        ),
    ],
)
def test_failures_are_one_line(error, said, capsys, monkeypatch):
    def failing(_):
        raise error

    monkeypatch.setattr(cli, "function_of", lambda _: failing)
    assert status(["features", "folder"]) == 1
    assert capsys.readouterr().err == said


def test_rows_to_judge_on_are_a_tasks_or_of_ones_own_columns(tmp_path):
    (tmp_path / "own.csv").write_text("a,b,gold\none,two,x\nthree,four,y\n")
    task, rows = DevRows(dev=tmp_path / "own.csv", text="a,b", label="gold").read()
    assert task.text == ("a", "b") and [row.text for row in rows] == ["one", "three"]
    assert [row.label for row in rows] == ["x", "y"] and [row.pair for row in rows] == ["two", "four"]
    (tmp_path / "quiz.csv").write_text("text,first,second,label\nwho,me,you,1\n")
    task, rows = DevRows(dev=tmp_path / "quiz.csv", kind="choice", choices="first,second").read()
    assert task.kind == "choice" and rows[0].choices == ("me", "you")
    for asked, message in (
        (DevRows(task="mrpc", data=tmp_path, dev=tmp_path / "own.csv"), "--task cannot be combined with --dev"),
        (DevRows(task="mrpc"), "--task mrpc needs --data"),
        (DevRows(), "no rows; give --task NAME with --data DIR, or your own --dev$"),
    ):
        with pytest.raises(InputError, match=message):
            asked.read()


@pytest.mark.parametrize("printing", ["print('x' * 999, flush=True)", "rich.print('x' * 999)"])
def test_a_reader_that_has_seen_enough_ends_a_verb_quietly(printing):
    """As `| head -1` does; rich ends a process whose reader left with status 1."""
    line = "import rich\nfrom bertworks import cli\n"
    line += f"cli.function_of = lambda _: lambda _: [{printing} for _ in range(999)]\n"
    line += "cli.main(['tasks'])"
    with subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_work_goes_on_when_nobody_reads_what_it_says(tmp_path, stream):
    """Only verbs that make nothing but their output may end early with status 0."""
    line = f"""
import sys, pathlib
from bertworks import cli
def train(_):
    for _ in range(999):
        print("x" * 999, file=sys.{stream}, flush=True)
    pathlib.Path("done").touch()
cli.function_of = lambda _: train
cli.main(["pretrain"])"""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", line], cwd=tmp_path, **streams) as process:
        reader = getattr(process, stream)
        reader.readline()
        reader.close()
        assert process.wait() == 0
    assert (tmp_path / "done").exists()


def test_output_that_is_never_read_is_no_failure():
    for argv in (["recipes"], ["--help"]):
        line = f"from bertworks.cli import main\nmain({argv})"
        with subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            assert process.stderr.read() == b"" and process.wait() == 0


def test_another_tokenizer_is_not_replaced(tmp_path, capsys):
    """The same again ends in the same bytes, as after a kill."""
    (tmp_path / "a.txt").write_text("One two three four " * 20)
    train = ["tokenizer", "train", str(tmp_path / "a.txt"), "--out", str(tmp_path / "tok"), "--vocab-size", "100"]
    main(train)
    first = (tmp_path / "tok" / "tokenizer.json").read_bytes()
    main(train)
    assert status([*train, "--cased"]) == 1 and "tok holds another tokenizer; give" in capsys.readouterr().err
    assert (tmp_path / "tok" / "tokenizer.json").read_bytes() == first
    main([*train, "--cased", "--overwrite"])
    assert (tmp_path / "tok" / "tokenizer.json").read_bytes() != first
    assert status([*train, "--cased", "--uncased"]) == 1
    assert "--cased and --uncased; expected one of them" in capsys.readouterr().err


def test_a_vocabulary_smaller_than_asked_is_reported(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("One two three four " * 20)
    main(["tokenizer", "train", str(tmp_path / "a.txt"), "--out", str(tmp_path / "tok"), "--vocab-size", "500"])
    size = len((tmp_path / "tok" / "vocab.txt").read_text().splitlines())
    said = f"tok: {size} of 500 tokens: the text has no more; give the model --model.vocab-size {size}. Next: "
    assert size < 500 and said in capsys.readouterr().out


def test_training_a_vocabulary_says_what_it_reads(tmp_path, capsys, monkeypatch):
    """On a terminal or not, because it may take minutes; the vocabulary's own line stays alone on stdout."""
    monkeypatch.setattr(tokenizer_verb, "EVERY", 0.0)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("One two three four " * 20)
    main(["tokenizer", "train", str(tmp_path / "*.txt"), "--out", str(tmp_path / "tok"), "--vocab-size", "100"])
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert [line.split(",")[0] for line in lines[:3]] == [
        "reading: 0.0 million characters",
        "reading: 0.0 million characters",
        "read 758 characters; learning the vocabulary",
    ]
    assert said.out.count("\n") == 1


def test_an_estimate_has_the_units_of_the_log(capsys):
    found = {"tokens_per_second": 1234.56, "memory": 415490048, "hours": 0.0123, "tokens": 20000000.0}
    print_estimate(found | {"phase_1_length_24_hours": 2.5})
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["tokens_per_second", "1,235"],
        ["memory", "396 MiB"],
        ["time", "44 s"],
        ["tokens", "20,000,000"],
        ["phase_1_length_24_time", "2 h 30 min"],
    ]


def test_recipes_are_listed_and_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("pretrain/cpu  ") and "20 million tokens" in line for line in lines)
    assert all(len(line) <= 80 for line in lines) and not any(line.endswith(("...", "al")) for line in lines)
    main(["recipes", "study/masking"])
    assert "base = " in capsys.readouterr().out
    main(["recipes", "distilbert"])  # only one kind has it
    assert "DistilBERT" in capsys.readouterr().out
    assert status(["recipes", "cpu"]) == 1
    assert "distill/cpu, pretrain/cpu" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["pretrain", "distill", "study"])
def test_a_recipe_is_given_by_name(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = {"study": "masking"}.get(verb, "cpu")
    rest = ["--corpus", "nowhere", "--out", "out", *(["--teacher", "nobody"] if verb == "distill" else [])]
    assert status([verb, name, *rest]) == 1
    said = capsys.readouterr().err
    assert "no recipe" not in said and ("nowhere" in said or "nobody" in said)
    assert status([verb, f"{name}x", *rest]) == 1
    assert f"did you mean {name}?" in capsys.readouterr().err


def parsed(line, monkeypatch):
    """The arguments of a command line, or the exit status of a wrong one."""
    found = []

    def keep(*positional, **named):
        found.append(parse(*positional, **named))
        raise SystemExit(found[-1])

    parse = tyro.cli
    monkeypatch.setattr(tyro, "cli", keep)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    monkeypatch.setattr(tyro, "cli", parse)
    return ended.value.code


OLD_AND_NEW = [
    ("tokenizer train t --out o --model bpe", "tokenizer train t --out o --algorithm bpe"),
    ("tokenizer train t --out o --model=bpe --cased", "tokenizer train t --out o --algorithm bpe --lowercase False"),
    ("tokenizer train t --out o --uncased", "tokenizer train t --out o --lowercase=True"),
    ("tokenizer check v.txt t --cased", "tokenizer check v.txt t --lowercase False"),
    ("tokenizer check v.txt t --uncased", "tokenizer check v.txt t --lowercase True"),
    ("convert a b --cased", "convert a b --do-lower-case False"),
    ("convert a b --uncased", "convert a b --do-lower-case=True"),
    ("convert a b --do-lower-case", "convert a b --do-lower-case=True"),
    ("convert a b --normalize", "convert a b --normalize=True"),
    ("convert a b --no-normalize", "convert a b --normalize=False"),
    ("probe neighbours m w --corpus a b --top 3", "probe neighbours m w --data a b --top 3"),
    (
        "corpus build t --tokenizer k --out o --encoding cp949",
        "corpus build t --tokenizer k --out o --input.encoding cp949",
    ),
    ("corpus build t --tokenizer v.txt --out o --cased", "corpus build t --tokenizer v.txt --out o --lowercase=False"),
    ("corpus build t --tokenizer v.txt --out o --uncased", "corpus build t --tokenizer v.txt --out o --lowercase=True"),
    ("tokenizer train t --out o --encoding cp949", "tokenizer train t --out o --input.encoding cp949"),
    ("tokenizer check v.txt t --encoding cp949", "tokenizer check v.txt t --input.encoding cp949"),
    ("probe neighbours m w --data t --encoding cp949", "probe neighbours m w --data t --input.encoding cp949"),
    ("probe particles m --data t --encoding cp949", "probe particles m --data t --input.encoding cp949"),
]


@pytest.mark.parametrize(("old", "new"), OLD_AND_NEW)
def test_an_alias_stands_for_the_flag_of_today(old, new, monkeypatch):
    assert parsed(old, monkeypatch) == parsed(new, monkeypatch) != 2


def test_every_alias_is_tried():
    tried = {(verb, flag) for verb, table in ALIASES.items() for flag in table for old, _ in OLD_AND_NEW
             if old.startswith(verb) and flag in re.split("[ =]", old)}  # fmt: skip
    assert tried == {(verb, flag) for verb, table in ALIASES.items() for flag in table}


@pytest.mark.parametrize(
    "lines",
    [
        (
            "predict m f --out o",
            "predict --model m f --out o",
            "predict --out o --data f --model=m",
            "predict m --data f --out o",
            "predict --data f m --out o",
            "predict --data=f m --out o",
            "predict --out o m --data f",
            "predict --out=o --data f m",
        ),
        ("predict --n-best 2 m -", "predict --model m --n-best 2 -"),
        ("features m f --out o", "features --out o --model m --data f", "features --data f --out o m"),
        ("fill-mask m x", "fill-mask x --model m"),
        ("next-sentence m a b", "next-sentence a b --model m"),
        ("next-sentence m --data f", "next-sentence --data f --model m"),
        ("evaluate m --dev f", "evaluate --dev f m", "evaluate --dev f --model m"),
        ("finetune m --out o", "finetune --model m --out o", "finetune --out o --model m"),
        ("convert a b", "convert --model a --out b", "convert a --out b", "convert b --model a", "convert --out b a"),
        ("corpus show s", "corpus show --corpus s"),
        ("corpus build a b --tokenizer t --out o", "corpus build --tokenizer t --out o --data a b"),
        ("tokenizer train a b --out o", "tokenizer train --data a b --out o", "tokenizer train --out o a b"),
        ("tokenizer check t a b", "tokenizer check a b --tokenizer t", "tokenizer check t --data a b"),
        (
            "tokenizer check t a --lowercase=True",
            "tokenizer check --data=a t --uncased",
            "tokenizer check --uncased t --data a",
        ),
        ("tokenizer extend m --words w --out o", "tokenizer extend --words w --out o --model m"),
        ("explain m a b --out o", "explain a b --out o --model m"),
        ("probe word m w a b", "probe word w a b --model m"),
        ("probe neighbours m w --data a", "probe neighbours --data a --model m w"),
        ("probe particles m --data a", "probe particles --data a --model m"),
        ("probe attention m a b --out o", "probe attention a b --out o --model m"),
        ("probe heads m --dev f", "probe heads --dev f --model m"),
        ("probe layers m --out o", "probe layers --model m --out o"),
        ("study masking --out o", "study --out o --recipe masking", "study --out o masking"),
        ("pretrain cpu --corpus s --out o", "pretrain --corpus s --out o --recipe cpu"),
        ("distill cpu --corpus s --out o --teacher t", "distill --teacher t --corpus s --recipe=cpu --out o"),
    ],
    ids=lambda lines: lines[0],
)
def test_a_positional_argument_may_be_given_as_its_flag(lines, monkeypatch):
    first, *others = [parsed(line, monkeypatch) for line in lines]
    assert dataclasses.is_dataclass(first)
    assert all(other == first for other in others)


@pytest.mark.parametrize("line", ["tokenizer check t a --data b", "corpus build a --data b --tokenizer t --out o"])
def test_files_with_and_without_their_flag_are_refused(line, capsys):
    assert status(line.split()) == 1
    assert "found a without a flag, and --data b; give all of them with --data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("finetune m --train a.csv --train b.csv --dev c.csv --out o", "--train is given twice; expected once"),
        ("finetune m --train=a.csv --dev c.csv --optim.lr 1 --train a.csv", "--train is given twice"),
        ("predict --model a --model b f", "--model is given twice; .* put several values behind one flag"),
        ("tokenizer train a --out o --lowercase=True --uncased", "--lowercase is given twice"),
        (
            "evaluate m a.csv --dev b.csv",
            "found a.csv without a flag, and --dev; expected one of them; leave the other",
        ),
        ("evaluate m a.csv --data b", "found a.csv without a flag, and --data; expected one of them"),
        ("predict m f --data g", "found f without a flag, and --data; expected one of them"),
        ("finetune m --model n --out o", "found m without a flag, and --model; expected one of them"),
        ("pretrain cpu --recipe base --out o", "found cpu without a flag, and --recipe; expected one of them"),
    ],
)
def test_an_argument_given_twice_is_refused(line, message, capsys):
    """One of the two values would be ignored."""
    assert status(line.split()) == 1
    assert re.search(message, capsys.readouterr().err)


def every_help(capsys, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb in VERBS:
        assert status([*verb.split(), "--help"]) == 0
        yield verb, capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 120])
def test_the_help_of_a_verb_fits_the_terminal(columns, capsys, monkeypatch):
    """The flags that tyro cannot break are let through: the names of a pair of flags."""
    for verb, text in every_help(capsys, columns, monkeypatch):
        wide = [line for line in text.splitlines() if len(line) > columns and not line.startswith("usage: ")]
        assert not wide, f"{verb}: {wide}"
        assert "{None}" not in text and "(default: )" not in text and "''" not in text, verb


def test_model_out_data_and_recipe_are_what_they_are_in_every_verb(capsys, monkeypatch):
    """The type that --help shows; where a verb takes it first, the text says so."""
    for verb, text in every_help(capsys, 300, monkeypatch):
        text = text[text.index("╭") :] if "╭" in text else text[text.index("options") :]
        for flag in ("--model", "--out", "--data", "--recipe", "--corpus", "--teacher"):
            shown = re.findall(rf"{flag} (?!\()([^ │,)]*)", text)
            assert set(shown) <= {flag.removeprefix("--").upper(), "PATH", "TEXT", "DIR"}, f"{verb}: {flag} {shown}"


def test_the_docs_list_every_verb_and_every_alias():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z -]+)` \| (.+) \| (.+) \|$", page, re.M)
    assert [verb for verb, *_ in rows if verb in VERBS][: len(VERBS)] == list(VERBS)
    aliases = [(verb, flag, new) for verb, table in ALIASES.items() for flag, new in table.items()]
    assert [(verb, flag.strip("`"), new.strip("`")) for verb, flag, new in rows[len(VERBS) :]] == aliases


def test_the_docs_name_the_flags_of_each_verb(capsys, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    rows = {verb: line for verb, line in re.findall(r"^\| `([a-z -]+)` (\|.*)$", page.partition("Some flags")[0], re.M)}
    for verb, text in every_help(capsys, 300, monkeypatch):
        named = set(re.findall(r"--[a-z]+", rows[verb]))
        shown = set(re.findall(r"(?<![\w`-])--[a-z]+(?![\w.-])", text))
        assert named <= shown, verb
        assert shown & {"--model", "--out", "--data", "--recipe", "--corpus", "--teacher"} <= named, verb


def test_the_help_of_study_lists_every_study(capsys, monkeypatch):
    text = next(text for verb, text in every_help(capsys, 80, monkeypatch) if verb == "study")
    listed = re.findall(r"^    ([a-z/-]+) {2,}\S", text.partition("╭")[0], re.M)
    assert sorted(listed) == recipe_names("study")


def test_none_is_no_value_but_a_path_may_be_called_so(monkeypatch):
    found = parsed("finetune m --out o --optim.layer-decay none --data none --train None", monkeypatch)
    assert found.config.optim.layer_decay is None and found.rows.data == Path("none") and found.rows.train is None
    assert parsed("finetune m --out o --optim.layer-decay 0.8 --seeds 1 2", monkeypatch).config.seeds == (1, 2)


def test_help_has_no_line_broken_by_the_source():
    """tyro keeps the line ends of a text below a that has several lines; those of a comment it joins."""
    broken = []
    for path in Path(bertworks.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body = node.body if isinstance(node, ast.ClassDef) else []
            for field, text in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and text.end_lineno > text.lineno:
                    broken.append(f"{path.name}, line {text.lineno}")
    assert not broken

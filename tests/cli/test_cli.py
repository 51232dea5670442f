"""The command line: its commands, and what a failure looks like from outside."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from bertworks import cli
from bertworks.cli import COMMANDS, GROUPS, exit_status, main
from bertworks.cli.arguments import parse_recipe
from bertworks.cli.finetune import Arguments as Finetuning
from bertworks.cli.finetune import read_arguments
from bertworks.cli.pretrain import Arguments as Pretraining
from bertworks.files import InputError
from bertworks.pretraining.recipe import PretrainConfig


def status(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_help_fits_one_screen_and_leads_to_every_command(capsys):
    assert status(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    names = [name for group in GROUPS.values() for name in group]
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in names)
    assert {command.split()[0] for command in COMMANDS} == {*names} and len({*names}) == len(names)
    for command in COMMANDS:
        first, *below = command.split()
        if below:
            assert status([first, "--help"]) == 0
            assert f"  {command} " in capsys.readouterr().out
    assert status(["probe"]) == 0 and "probe layers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("pretrian", "did you mean `bertworks pretrain`?"),
        ("probe wrod m", "did you mean `bertworks probe word`?"),
        ("zzz", "`bertworks --help` lists the commands"),
    ],
)
def test_an_unknown_command_gets_the_nearest(line, hint, capsys):
    assert status(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("no command ") and shown.err.endswith(f"{hint}\n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("predict m f --outt x", "Perhaps you meant:.*--out PATH"),
        ("finetune m --out x --lr 1", "Perhaps you meant:.*--optim.lr FLOAT"),
        ("predict m f g", "Unrecognized options: g"),
        ("predict m f --data g", "Unrecognized options: f"),
        ("finetune m", "Missing from bertworks finetune:.*--out PATH"),
        ("tokenizer train t --out o --lowercase=False", "Unrecognized options: False"),
        ("pretrain cpu --phases.0.length many --corpus c --out o", "invalid literal"),
    ],
)
def test_a_wrong_command_line_is_explained(line, message, capsys):
    assert status(shlex.split(line)) == 2
    assert re.search(message, capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("finetune m --train a.csv --train b.csv --dev c.csv --out o", "--train is given twice; expected once"),
        ("finetune m --batch_size 1 --batch-size=2 --out o", "--batch-size is given twice"),
        ("tokenizer train a --out o --cased --uncased", "--lowercase is given twice"),
        ("corpus build a --tokenizer t --out o --encoding a --input.encoding b", "--input.encoding is given twice"),
        ("doctor d --task mrpc --label a", "task cannot be combined with label"),
        ("probe heads mini --task mrpc --data d --text a", "task cannot be combined with text"),
        ("pretrain --corpus c --out o cpu", "found the recipe cpu behind flags; give it first, or with --recipe"),
    ],
)
def test_nothing_on_a_command_line_is_silently_ignored(line, message, refused):
    assert message in refused(*line.split())


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("tokenizer train t --out o --cased", "tokenizer train t --out o --no-lowercase"),
        ("tokenizer check v.txt t --uncased", "tokenizer check v.txt t --lowercase"),
        ("convert a b --cased", "convert a b --no-do-lower-case"),
        (
            "corpus build t --tokenizer k --out o --encoding=cp949",
            "corpus build t --tokenizer k --out o --input.encoding cp949",
        ),
    ],
)
def test_a_short_form_stands_for_a_flag(short, long, monkeypatch):
    assert parsed(short, monkeypatch) == parsed(long, monkeypatch) != 2


def test_every_command_is_a_function_and_every_module_has_one():
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    functions = {command: cli.function_of(command) for command in COMMANDS}
    assert len({*functions.values()}) == len(COMMANDS)
    called = {function.__module__.rpartition(".")[2] for function in functions.values()}
    assert modules - called == {"__init__", "__main__", "arguments", "exit_status"}


def test_exit_statuses_are_the_same_in_the_code_and_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*?)(?::.*)? \|$", page, re.M)
    assert rows == re.findall(r"^(\d+) +(.*)$", exit_status.__doc__, re.M) and len(rows) == 7


def test_ctrl_c_that_a_library_turns_into_another_error(capsys, monkeypatch):
    """As numpy does while it is being imported."""

    def interrupted(_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError from None

    monkeypatch.setattr(cli, "function_of", lambda _: interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        assert status(["features"]) == 130 and capsys.readouterr().err == "\nstopped\n"
    finally:
        signal.signal(signal.SIGINT, before)

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


def test_failures_are_one_line(refused, monkeypatch):
    def failing(_):
        raise InputError("a.txt: no such file")

    monkeypatch.setattr(cli, "function_of", lambda _: failing)
    assert refused("features", "folder") == "bertworks: a.txt: no such file\n"


@pytest.mark.parametrize("argv", [["recipes"], ["--help"]])
def test_a_reader_that_left_ends_a_command_quietly(argv):
    """As `| true` does."""
    line = [sys.executable, "-m", "bertworks", *argv]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == exit_status.UNREAD


def test_closed_streams_are_no_failure():
    """As `bertworks recipes >&- 2>&-`."""
    closed = [sys.executable, "-c", "import os, sys; os.close(1); os.close(2); os.execv(sys.executable, sys.argv[1:])"]
    for argv, expected in ((["recipes"], 0), (["predict", "a", "--none"], 2), (["predict", "none", "a.txt"], 1)):
        assert subprocess.run([*closed, sys.executable, "-m", "bertworks", *argv]).returncode == expected


def test_another_tokenizer_is_not_replaced(tmp_path, refused):
    """The same again ends in the same bytes, as after a kill."""
    (tmp_path / "a.txt").write_text("One two three four " * 20)
    train = ["tokenizer", "train", str(tmp_path / "a.txt"), "--out", str(tmp_path / "tok"), "--vocab-size", "100"]
    main(train)
    first = (tmp_path / "tok" / "tokenizer.json").read_bytes()
    main(train)
    assert "tok holds another tokenizer; give" in refused(*train, "--cased")
    assert (tmp_path / "tok" / "tokenizer.json").read_bytes() == first
    main([*train, "--cased", "--overwrite"])
    assert (tmp_path / "tok" / "tokenizer.json").read_bytes() != first


def test_recipes_are_listed_and_printed(capsys, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("pretrain/cpu  ") and "20 million tokens" in line for line in lines)
    assert all(len(line) <= 80 for line in lines) and not any(line.endswith(("...", " al")) for line in lines)
    main(["recipes", "study/masking"])
    assert "base = " in capsys.readouterr().out
    main(["recipes", "distilbert"])  # only one kind has it
    assert "DistilBERT" in capsys.readouterr().out
    assert "distill/cpu, pretrain/cpu" in refused("recipes", "cpu")


@pytest.mark.parametrize("verb", ["pretrain", "distill", "study run"])
def test_a_recipe_is_given_by_name(verb, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = {"study run": "masking"}.get(verb, "cpu")
    rest = ["--corpus", "nowhere", "--out", "out", *(["--teacher", "nobody"] if verb == "distill" else [])]
    message = refused(*verb.split(), name, *rest)
    assert "no recipe" not in message and any(word in message for word in ("nowhere", "nobody", "--data is missing"))
    message = refused(*verb.split(), f"{name}x", *rest)
    assert f"{name}x: found no file and no recipe" in message and f"{name}," in message


def test_a_budget_replaces_that_of_the_recipe(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[loop]\nsteps = 5\ntokens = 7_000\n", encoding="utf-8")
    for given, budget in (
        ("--loop.log-every=3", "5 steps or 7,000 tokens, whichever comes first"),
        ("--loop.hours=3", "3 hours"),
    ):
        words = [str(recipe), "--corpus", "store", "--out", "out", given]
        assert parse_recipe(Pretraining, PretrainConfig, words, "pretrain").config.loop.budget == budget
        words = ["model", "--recipe", str(recipe), "--out", "out", given]
        assert read_arguments(Finetuning, words, "finetune").config.loop.budget == budget


class Parsed(BaseException):
    """Raised in place of the work of a command, with its arguments."""


def parsed(line, monkeypatch):
    """The arguments of a command line by name."""

    def keep(*positional, **named):
        raise Parsed(vars(parse(*positional, **named)))

    parse = tyro.cli
    monkeypatch.setattr(tyro, "cli", keep)
    with pytest.raises(Parsed) as ended:
        main(shlex.split(line))
    monkeypatch.setattr(tyro, "cli", parse)
    return ended.value.args[0]


@pytest.mark.parametrize(
    "lines",
    [
        (
            "predict m f --out o",
            "predict --model m f --out o",
            "predict --data=f m --out o",
            "predict --out=o --data f m",
        ),
        ("predict --n-best 2 m -", "predict --model m --n-best 2 -"),
        ("features m f --out o", "features --out o --model m --data f", "features --data f --out o m"),
        ("predict next-sentence m a b", "predict next-sentence a b --model m"),
        ("finetune m --out o", "finetune --model m --out o", "finetune --out o --model m"),
        ("convert a b", "convert --model a --out b", "convert a --out b", "convert b --model a", "convert --out b a"),
        ("corpus build a b --tokenizer t --out o", "corpus build --tokenizer t --out o --data a b"),
        ("tokenizer train a b --out o", "tokenizer train --data a b --out o", "tokenizer train --out o a b"),
        ("tokenizer check t a b", "tokenizer check a b --tokenizer t", "tokenizer check t --data a b"),
        ("probe word m w a b", "probe word w a b --model m"),
        ("probe neighbours m w --data a", "probe neighbours --data a --model m w"),
        ("study run masking --out o", "study run --out o --recipe masking", "study run --out o masking"),
        (
            "study sweep m paper --out o",
            "study sweep --grid paper --model m --out o",
            "study sweep m --grid paper --out o",
        ),
        ("pretrain cpu --corpus s --out o", "pretrain --corpus s --out o --recipe cpu"),
        ("distill cpu --corpus s --out o --teacher t", "distill --teacher t --corpus s --recipe=cpu --out o"),
    ],
    ids=lambda lines: lines[0],
)
def test_a_positional_argument_may_be_given_as_its_flag(lines, monkeypatch):
    first, *others = [parsed(line, monkeypatch) for line in lines]
    assert isinstance(first, dict)
    assert all(other == first for other in others)


def every_help(capsys, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb in COMMANDS:
        assert status([*verb.split(), "--help"]) == 0
        yield verb, capsys.readouterr().out


def test_the_docs_name_the_flags_of_each_verb(capsys, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    rows = {verb: line for verb, line in re.findall(r"^\| `([a-z][a-z -]*)` (\|.*)$", page, re.M)}
    assert list(rows) == list(COMMANDS)
    for verb, text in every_help(capsys, 300, monkeypatch):
        named = set(re.findall(r"--[a-z]+", rows[verb]))
        shown = set(re.findall(r"(?<![\w`-])--[a-z]+(?![\w.-])", text))
        assert named <= shown, verb


def test_the_docs_describe_each_command_as_its_help_does():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `([a-z][a-z -]*)` \| \[(.*?)\]\(", page, re.M)) == {
        verb: line.removesuffix(".") for verb, line in COMMANDS.items()
    }


def test_a_text_may_begin_with_dashes(monkeypatch):
    assert parsed("predict m --string=--no --n-best 2", monkeypatch)["string"] == ("--no",)
    assert parsed("predict fill-mask m -- --top-k --top-k", monkeypatch)["texts"] == ("--top-k", "--top-k")

"""The commands and snippets in the docs: all parse, and almost all run on tiny files in the second tier.

test_readme.py runs those of README.
"""

import contextlib
import functools
import inspect
import io
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
import tyro

from bertworks.cli import COMMANDS, main
from support.docs_files import KOREAN_TOKENS, SHORT, TINY, shortened, write_all

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FOLDERS = (DOCS, DOCS / "ko", DOCS / "results")
PAGES = [
    ROOT / "README.md",
    ROOT / "README.ko.md",
    *(page for folder in FOLDERS for page in sorted(folder.glob("*.md"))),
]
OTHERS = {  # flags of docker, pip, hf, systemctl, curl, dask, torchrun, Slurm and kubectl, by the page that names them
    "serving.md": "json",
    "search.md": "json",
    "deploy.md": "json",
    "commands.md": "local-dir",
    # of the original code and of transformers, up to their first underscore
    "coming-from.md": "bert do dupe init input max num num-train-epochs output vocab",
    "pretraining.md": "logdir",
    "cluster.md": "cpus-per-task gpus-per-node master-addr master-port mem-per-cpu nnodes node-rank nodes "
    "nthreads ntasks-per-node nworkers port rdzv-backend rdzv-endpoint rdzv-id",
    "production.md": "env file index-url now publish name network read-only retry tag tmpfs volume",
}
SHORTER = {  # what is appended to a command, by its beginning, so that it takes seconds; the first that fits
    "bertworks tokenizer train": "--overwrite",
    "bertworks pretrain korean --init": SHORT,
    "bertworks pretrain korean --corpus": f"{TINY} {SHORT} --model.vocab-size {KOREAN_TOKENS}",
    "bertworks pretrain cpu --init": SHORT,
    "bertworks pretrain study --init": SHORT,
    "bertworks pretrain": f"{TINY} {SHORT}",
    "bertworks distill": SHORT,
    "bertworks study sweep": "--max-seq-length 16 --seeds 1",
    "bertworks finetune --recipe small --train own.csv --dev-share 0.2 --model mini": "--epochs 1 --max-seq-length 16 "
    "--model runs/shallow",  # whose graph is exported
    "bertworks finetune": "--epochs 1 --max-seq-length 16",
    "bertworks study run": "--dry-run",
}
FEWER_STEPS = {"heart.md": ("StreamPosition(), 50", "StreamPosition(), 10")}  # of a page's Python
ELSEWHERE = {  # commands that take long or need processes; tests/apps, experiments, pretraining and training run such
    "demo.md": ("bertworks demo",),
    "index.md": ("bertworks demo",),
    "student.md": ("bertworks demo",),
    "deploy.md": ("bertworks export runs/served --compare", "bertworks serve"),
    "scale.md": ("bertworks", "torchrun"),
    "cluster.md": ("bertworks", "torchrun"),
    "export.md": ("bertworks export runs/sst2 --precision", "bertworks export runs/sst2 --compare"),
    "pretraining.md": ("torchrun",),
    "search.md": ("bertworks serve",),
    "serving.md": ("bertworks serve", "bertworks export runs/nsmc-mini --compare"),
}
SERVED = ("serving.md",)  # pages whose Python needs a server; it runs in tests/serve
BEFORE = {  # what the snippets of a page take as given
    "features.md": "import bertworks\ntexts, pairs = ['one text', 'another'], [('one text', 'its pair')]\n"
    "encoder, tokenizer = bertworks.load_encoder('mini'), bertworks.Tokenizer.load('tok')\n",
}


class Parsed(Exception):
    """Raised in place of the work of a verb, once its arguments are parsed."""


def commands(page):
    """The commands in the code blocks of a page, without comments."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^    ((?:bertworks|torchrun) .*)$", text, re.MULTILINE):
        yield re.sub(r"\s+#\s.*$", "", line).strip()


def pages_with_commands():
    return [page for page in PAGES if any(commands(page))]


def examples():
    """The examples of verbs, whose outputs are recorded; the site shows them."""
    return tomllib.loads((DOCS / "verbs/examples.toml").read_text(encoding="utf-8"))["examples"]


def test_every_verb_has_an_example_with_its_output():
    outputs = json.loads((DOCS / "verbs/outputs.json").read_text(encoding="utf-8"))
    without = {"study sweep"}
    assert {one["verb"] for one in examples()} == {*COMMANDS} - without == {*outputs} and all(
        map(any, outputs.values())
    )
    for one in examples():
        assert any(line.startswith(f"bertworks {one['verb']}") for line in one["run"]), one["verb"]
        assert (DOCS / one["more"]).exists() and one["note"].endswith("."), one["verb"]


def lines_of(source):
    """The commands of a page, or those of an example without what the shell does with their output."""
    if isinstance(source, Path):
        return commands(source)
    return [re.sub(r" (?:\||>).*", "", line) for line in source["run"] if line.startswith("bertworks")]


@pytest.mark.parametrize(
    "page", [*pages_with_commands(), *examples()], ids=lambda p: getattr(p, "name", None) or p["verb"]
)
def test_the_commands_of_a_page_parse(page, monkeypatch, capsys, tmp_path):
    parse = tyro.cli

    def parse_alone(verb, **named):  # tyro calls a function itself, of a dataclass it makes an instance
        @functools.wraps(verb)
        def nothing(*arguments, **named):
            raise Parsed

        parse(nothing if inspect.isfunction(verb) else verb, **named)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", parse_alone)
    monkeypatch.setattr("bertworks.pretraining.job.of_shape", lambda recipe, init: recipe)  # no model is here
    monkeypatch.chdir(tmp_path)
    for line in lines_of(page):
        try:
            main(shlex.split(line.partition(" -m ")[2] or line)[1:])
        except Parsed:
            continue
        except SystemExit as ending:
            printed = capsys.readouterr()
            assert not ending.code, f"{line}\n{printed.out}{printed.err}"
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def flags():
    """Every flag that the help of a verb names, or a script in benchmarks/ has."""
    printed = io.StringIO()
    for verb in (*COMMANDS, "pretrain base"):  # a recipe with two phases
        with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
            main([*verb.split(), "--help"])
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    added = re.findall(r'add_argument\(\s*"(--[a-z-]+)"', scripts)
    return {"--nproc-per-node", *added, *re.findall(r"--[a-z][a-z0-9.-]*[a-z0-9]", printed.getvalue())}


def test_every_flag_that_a_page_names_is_a_flag(flags):
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]", page.read_text(encoding="utf-8")))
        others = {f"--{name}" for name in OTHERS.get(page.name, "").split()}
        assert named - flags - others == set(), page.name


def snippets(page):
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with all that the pages name; each page gets a copy."""
    folder = tmp_path_factory.mktemp("docs")
    write_all(folder)
    shutil.copytree(folder / "runs/base/model", folder / "mini")  # a path has priority over the bundled encoder's name
    return folder


def run_here(line):
    """Run a command in this process."""
    try:
        main(shlex.split(line)[1:])
    except SystemExit as ending:
        assert not ending.code, line


@pytest.mark.heavy
@pytest.mark.parametrize("page", [p for p in PAGES[2:] if any(commands(p)) or snippets(p)], ids=lambda page: page.name)
def test_the_commands_and_snippets_of_a_page_run(page, files, tmp_path, monkeypatch):
    folder = shutil.copytree(files, tmp_path / "docs")
    asked = [line for line in commands(page) if not line.startswith(ELSEWHERE.get(page.name, "nowhere"))]
    for run in ("runs/korean", "runs/mrpc", "runs/nsmc-mini", "runs/swag"):
        if any(line.endswith(f" --out {run}") for line in asked):
            shutil.rmtree(folder / run)  # the page makes it itself
    more = [next((more for begun, more in SHORTER.items() if line.startswith(begun)), "") for line in asked]
    shorter = [*map(shortened, asked, more)]
    monkeypatch.chdir(folder)
    for line in shorter:
        run_here(line)
    names, (steps, fewer) = {}, FEWER_STEPS.get(page.name, ("", ""))
    assert steps in "".join(snippets(page))
    for code in [BEFORE.get(page.name, "import bertworks"), *([] if page.name in SERVED else snippets(page))]:
        exec(code.replace(steps, fewer) if steps else code, names)


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"))])
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in headings(target), f"{page.name}: {link}"


def test_readme_names_every_package():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"^    src/bertworks/\n((?:^      .*\n)+)", text, re.MULTILINE)[1]
    packages = {path.name for path in (ROOT / "src/bertworks").iterdir() if path.is_dir() and path.name[0] != "_"}
    assert set(re.findall(r"^      (\w+)/", tree, re.MULTILINE)) == packages


def test_the_guide_names_the_functions_of_a_step():
    text = (ROOT / "docs/heart.md").read_text(encoding="utf-8")
    step = re.findall(r"^\d\. .*?\[`(\w+)\.(\w+)`\]\((.*?)\)", text, re.MULTILINE)
    assert len(step) == 5
    for name, method, file in step:
        code = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\b.*?^    def {method}\(", code, re.MULTILINE | re.DOTALL), (name, method)


def test_files_of_code_that_pages_name_exist():
    for page in [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY"))]:
        if page.name in ("log.md", "results.md") or page.parent.name == "results":  # what was true when it was written
            continue
        for name in set(re.findall(r"(?<![\w./:])(?:[a-z_]+/)+[a-z_0-9]+\.py\b", page.read_text(encoding="utf-8"))):
            assert (ROOT / "src/bertworks" / name).exists() or (ROOT / name).exists(), f"{page.name}: {name}"

"""Model cards: their front matter is what model hubs read, and their snippets run."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from huggingface_hub import ModelCard

from bertworks.checkpoint.folder import save_folder
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import _origin, finetune
from bertworks.model.build import build_model
from bertworks.tasks.base import Data, Example
from bertworks.tasks.catalogue import TASKS, find_task
from bertworks.training.config import LoopConfig
from support.tiny_task import TINY, tiny_folder


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """The card of a tiny model that was fine-tuned on rows of SST-2's form, from a folder with a license."""
    place = tmp_path_factory.mktemp("card")
    start = tiny_folder(place / "start")
    (start / "README.md").write_text('---\nlicense: "apache-2.0"\n---\n\nlicense: none\nbase_model: none\n')
    rows = [Example(f"{word} film", label=label) for word, label in (("good", "positive"), ("bad", "negative"))] * 4
    config = FinetuneConfig(max_seq_length=16, loop=LoopConfig(steps=2, eval_every=0))
    task = replace(find_task("sst2"), metrics=("accuracy", "matthews"))
    finetune(config, task, Data(rows, rows), start, place / "run", quiet=True)
    return place / "run/model/README.md"


def test_the_front_matter_is_what_a_hub_reads(card):
    data = ModelCard.load(card, ignore_metadata_errors=False).data
    assert (data.license, data.base_model, data.datasets) == ("apache-2.0", None, ["nyu-mll/glue"])
    assert data.library_name == "transformers" and data.pipeline_tag == "text-classification"
    text = card.read_text()
    assert "# start fine-tuned on sst2\n" in text and re.search('"metrics": {[^}]*"accuracy": [01]', text)


@pytest.mark.parametrize(
    "line", ["base_model: a/b.c-d", 'base_model: "a/b.c-d"', "base_model:\n- a/b.c-d\n- e", "base_model: [a/b.c-d, e]"]
)
def test_the_base_is_the_one_that_its_own_card_names(line, tmp_path):
    """The name of a local folder is nobody's on a hub."""
    (tmp_path / "README.md").write_text(f"---\n{line}\nlicense: mit\n---\n")
    job = SimpleNamespace(folder=tmp_path, task=find_task("sst2"), config=FinetuneConfig())
    assert _origin(job)["base_model"] == "a/b.c-d"
    assert "base_model" not in _origin(SimpleNamespace(**vars(job) | {"config": FinetuneConfig(random_init=True)}))
    (tmp_path / "README.md").write_text("---\nbase_model:\nlicense: mit\n---\n")
    assert _origin(job).keys() == {"license", "datasets"}
    for damaged in ("---\nlicense: [\n---\n", "---\n" + "[" * 100_000 + "\n---\n", "---\n- a\n---\n", "license: mit"):
        (tmp_path / "README.md").write_text(damaged)
        assert _origin(job).keys() == {"datasets"}, damaged[:20]


def test_names_that_yaml_and_markdown_would_misread(tmp_path):
    facts = {"title": 'a: "b"\n---\n# <c>\udcff', "base_model": "on", "task": "x: [y"}
    save_folder(tmp_path, build_model(TINY, ("classifier",), 2, seed=1), None, facts, ["no", "yes"])
    data = ModelCard.load(tmp_path / "README.md", ignore_metadata_errors=False).data
    assert data.base_model == "on" and data.license is None
    assert '\n# a: "b" --- \\# &lt;c&gt;?\n' in (tmp_path / "README.md").read_text()


def test_how_facts_are_written(tmp_path):
    """As JSON that gives the same values; of a confusion matrix results.json has more."""
    labels = ["<script>alert(1)</script>", "a|b\n# top", "\n```\n", "\ud7ff é 가", "yes"]
    run = {
        "seed": 12345,
        "collapsed": False,
        "results": {"mlm accuracy": 0.4125, "loss": None},
        "teacher": {"name": "t"},
    }
    facts = run | {"language": "ko", "confusion": {"a": {"a": 77}}}
    save_folder(tmp_path, build_model(TINY, ("classifier",), len(labels), seed=1), None, facts, labels)
    text = (tmp_path / "README.md").read_text()
    shape, found = (json.loads(block) for block in re.findall("\n```json\n(.*?)\n```\n", text, re.DOTALL))
    assert found == run and "\nlanguage: ko\n" in text
    assert shape["labels"] == labels and shape["parameters"]["total"] > shape["parameters"]["encoder"]


def test_every_public_task_names_its_data():
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+", task.dataset) for task in TASKS.values())

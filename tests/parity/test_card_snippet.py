"""The lines of a model card's "Use" section run as they are, in bertworks and in transformers."""

import re
from dataclasses import replace

import pytest

from bertworks.checkpoint.folder import save_folder
from bertworks.model.build import build_model
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY, VOCAB

pytest.importorskip("transformers")

ROTARY = replace(TINY, position_embedding_type="rotary")
ALBERT = replace(TINY, family="albert", shared_layers="all", embedding_size=8)
FOLDERS = {  # name: shape, heads, labels, the class that the card names
    "pre-trained": (TINY, ("mlm", "nsp"), (), "AutoModelForMaskedLM"),
    "masks": (TINY, ("mlm",), (), "AutoModelForMaskedLM"),
    "left": (replace(TINY, direction="left"), ("mlm",), (), "AutoModelForCausalLM"),
    "classes": (TINY, ("classifier",), ("bad", "good"), "AutoModelForSequenceClassification"),
    "tags": (TINY, ("tagger",), ("O", "B-X"), "AutoModelForTokenClassification"),
    "answers": (TINY, ("span",), (), "AutoModelForQuestionAnswering"),
    "choice": (TINY, ("choice",), (), "AutoModelForMultipleChoice"),
    "encoder": (TINY, (), (), "AutoModel"),
    "rotary": (ROTARY, ("mlm", "nsp"), (), "AutoModelForMaskedLM"),
    "rotary tags": (ROTARY, ("tagger",), ("O", "B-X"), "AutoModelForTokenClassification"),
    "distilbert": (replace(TINY, family="distilbert", type_vocab_size=0), ("mlm",), (), "AutoModelForMaskedLM"),
    "albert": (
        replace(TINY, family="albert", shared_layers="all", embedding_size=8),
        ("mlm",),
        (),
        "AutoModelForMaskedLM",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_lines_of_a_card_run(name, tmp_path):
    shape, heads, labels, auto = FOLDERS[name]
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(VOCAB) + "\n")
    model = build_model(shape, heads, labels=len(labels), seed=1)
    save_folder(tmp_path / "model", model, Tokenizer.load(vocab, lowercase=True), labels=list(labels) or None)
    card = (tmp_path / "model" / "README.md").read_text()
    ours, theirs = re.findall(r"```python\n(.*?)```", card[card.index("## Use") :], re.S)
    assert f"from transformers import {auto}, AutoTokenizer" in theirs
    for block in (ours, theirs):
        found = {}
        exec(block.replace('"this folder"', repr(str(tmp_path / "model"))), found)
        assert found["model"] is not None
    config = found["model"].config
    assert found["tokenizer"]("good")["input_ids"][0] < config.vocab_size


def test_a_card_of_a_model_that_transformers_lacks(tmp_path):
    save_folder(tmp_path, build_model(replace(TINY, norm="pre"), ("mlm",), seed=1), None)
    use = (tmp_path / "README.md").read_text().partition("## Use")[2]
    assert "Transformers does not open this folder" in use and "from transformers" not in use

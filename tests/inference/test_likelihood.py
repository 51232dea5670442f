"""The likelihood of texts beside a reference implementation on transformers, and minimal pairs."""

import json

import pytest
import torch
import transformers

import bertworks
from bertworks import Predictor
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.likelihood import minimal_pairs

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a good ##ness ##es film bad , .".split()  # noqa: SIM905
TEXTS = ["a goodnesses film .", "bad", "a bad , good film , goodness .", "what ?"]  # the last one is unknown


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random BERT of transformers with a masked-LM head."""
    folder = tmp_path_factory.mktemp("likelihood")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    torch.manual_seed(1)
    sizes = {"vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=64, max_position_embeddings=16, initializer_range=0.2)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@torch.no_grad()
def reference(folder, text, method):
    """The definition, one token at a time, on transformers."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoding = tokenizer(text, return_tensors="pt")
    ids, words, total = encoding.input_ids[0], encoding.word_ids(), 0.0
    for position in range(1, len(ids) - 1):
        masked = ids.clone()
        for other in range(position, len(ids) - 1):
            if other == position or (method == "word-l2r" and words[other] == words[position]):
                masked[other] = tokenizer.mask_token_id
        scores = model(masked[None]).logits[0, position]
        total += scores.log_softmax(-1)[ids[position]].item()
    return total


@pytest.mark.parametrize("method", ["word-l2r", "plain"])
def test_texts_have_the_likelihood_of_the_reference(folder, method):
    expected = [reference(folder, text, method) for text in TEXTS]
    assert Predictor(folder, device="cpu").score(TEXTS, method) == pytest.approx(expected, rel=1e-4)


def test_the_methods_differ_where_a_word_has_several_tokens(folder):
    predictor = Predictor(folder, device="cpu")
    together, single = predictor.score(TEXTS), predictor.score(TEXTS, "plain")
    assert [a != pytest.approx(b) for a, b in zip(together, single, strict=True)] == [True, False, True, False]
    assert predictor.score(TEXTS[0]) == pytest.approx(together[0])
    assert predictor.score([]) == []


@pytest.mark.parametrize(("text", "found"), [("", "'' has 0 tokens"), ("a " * 30, "has 30 tokens; expected 1 to 14")])
def test_a_text_without_tokens_or_with_too_many(folder, text, found):
    with pytest.raises(InputError, match=found):
        Predictor(folder, device="cpu").score(["a", text])
    with pytest.raises(InputError, match="method = 'l2r'; expected one of word-l2r, plain"):
        Predictor(folder, device="cpu").score("a", "l2r")


def test_minimal_pairs(folder, tmp_path, capsys):
    """The accuracy is the mean over files, not over pairs."""
    likelihood = dict(zip(TEXTS, Predictor(folder, device="cpu").score(TEXTS), strict=True))
    best, *_, worst = sorted(TEXTS, key=likelihood.get, reverse=True)
    right, wrong = ({"sentence_good": a, "sentence_bad": b} for a, b in ((best, worst), (worst, best)))
    tie = {"sentence_good": best, "sentence_bad": best}
    for name, pairs in {"one": [right], "two": [wrong, right, tie, wrong]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    results = bertworks.evaluate(folder, task="blimp", data=tmp_path)
    assert results.details["by_file"] == {"one": 1.0, "two": 0.25}
    assert results.metrics == {"accuracy": 0.625} and "blimp: 5 rows" in str(results)
    own = {"dev": "a.csv", "kind": "pair", "text": "a", "label": "b", "choices": "c", "encoding": "cp949", "sheet": "d"}
    for name, value in own.items():
        with pytest.raises(InputError, match=f"task cannot be combined with {name}; leave"):
            bertworks.evaluate(folder, task="blimp", data=tmp_path, **{name: value})
        if name != "encoding":  # the files of other tasks have one
            with pytest.raises(InputError, match=f"task cannot be combined with {name}; leave"):
                bertworks.evaluate(folder, task="mrpc", data=tmp_path, **{name: value})
    with pytest.raises(InputError, match="blimp needs data"):
        bertworks.evaluate(folder, task="blimp")
    main(["evaluate", str(folder), "--task", "blimp", "--data", str(tmp_path)])
    assert json.loads(capsys.readouterr().out) == results.details
    assert minimal_pairs(folder, tmp_path, pairs_per_file=2)["by_file"] == {"one": 1.0, "two": 0.5}
    (tmp_path / "three.jsonl").write_text("")
    for data, found in ((tmp_path, "no pairs in this file"), (folder, r"no file NAME\.jsonl in it")):
        with pytest.raises(InputError, match=found):
            minimal_pairs(folder, data)

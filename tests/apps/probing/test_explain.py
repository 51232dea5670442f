"""What `explain` computes against forward passes of every kind of encoder, and the page that draws it."""

import base64
import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from bertworks.apps.probing.explanation import explain
from bertworks.apps.probing.explanation_arrays import head_vectors, visible_spans
from bertworks.apps.probing.explanation_page import explain_page
from bertworks.checkpoint.folder import save_folder
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY, tiny_folder

A, B = "good film , abc", "bad d"
LOCAL = {"position_embedding_type": "rotary", "attention_window": 2, "global_every": 2, "local_rope_theta": 100.0}
ENCODERS = {  # name: what differs from BERT, and what is left out
    "bert": ({}, set()),
    "roberta": ({"family": "roberta", "position_offset": 2, "type_vocab_size": 1}, set()),
    "albert": ({"family": "albert", "embedding_size": 16, "shared_layers": "all"}, set()),
    "distilbert": ({"family": "distilbert", "type_vocab_size": 0}, {"segment"}),
    "rotary": ({"position_embedding_type": "rotary", "norm": "pre"}, {"position"}),
    "local": (LOCAL, {"position"}),
    "left": ({"direction": "left"}, {"masks"}),
    "recurrent": ({"layer_type": "lstm"}, {"attention"}),
    "pair": ({"direction": "pair"}, {"attention", "embeddings", "masks"}),
    "no layers": ({"num_hidden_layers": 0}, {"attention"}),
}
EVIL = '</script><script>document.body.dataset.evil="yes"</script> <img src=x onerror=alert(1)> @@DATA@@ \u2028 &lt;'


def unpacked(found):
    """The array that `packed` wrote."""
    return np.frombuffer(base64.b64decode(found["float16"]), "<f2").reshape(found["shape"]).astype(np.float32)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer.load(tiny_folder(tmp_path_factory.mktemp("explain") / "model"))


def predictor_of(folder, tokenizer, heads=("mlm",), labels=(), task=None, **changes) -> Predictor:
    """A model with uneven weights, so that no step is nearly the identity."""
    config = dataclasses.replace(TINY, **{"num_hidden_layers": 3, **changes})
    model = build_model(config, heads, labels=len(labels), seed=3)
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.ndim == 2):
            weight.mul_(6)
    save_folder(folder, model, tokenizer, labels=labels or None, task=task)
    return Predictor(folder, device="cpu")


@pytest.fixture(scope="module")
def pretrained(tokenizer, tmp_path_factory):
    return predictor_of(tmp_path_factory.mktemp("explain") / "m", tokenizer, ("mlm", "nsp"))


# ---- numbers


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_every_step_is_that_of_the_encoder(name, tokenizer, tmp_path):
    changes, left_out = ENCODERS[name]
    predictor = predictor_of(tmp_path / "m", tokenizer, () if name == "pair" else ("mlm",), **changes)
    found, encoder = explain(predictor, A, B), predictor.loaded.model.encoder
    json.dumps(found, allow_nan=False)
    expected = {"next_sentence", "answer", "labels", "tags"} | left_out
    assert set(found["left_out"]) == expected
    encoding = tokenizer.encode(A, B)
    assert [token["text"] for token in found["tokens"]] == encoding.tokens
    inputs = torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids])
    if found["embeddings"] is not None:
        check_embeddings(found["embeddings"], encoder, inputs, encoding)
    if found["attention"] is not None:
        check_attention(found["attention"], encoder, inputs)
    states = encoder(*inputs).states
    layers = {key: unpacked(found["layers"][key]) for key in ("cosines", "static", "vectors")}
    abc = next(i for i, word in enumerate(found["words"]) if word["text"] == "abc")
    last = states[-1][4:7].mean(0)  # a, ##b, ##c
    np.testing.assert_allclose(layers["vectors"][-1, abc, : len(last)], last, rtol=1e-3, atol=1e-3)
    other = states[-1][1]
    cosine = float(torch.nn.functional.cosine_similarity(last, other, dim=0))
    assert layers["cosines"][-1, abc, 0] == pytest.approx(cosine, abs=1e-3)
    assert found["layers"]["names"][:2] == ["static", "embeddings"] and len(layers["cosines"]) == len(states) + 1


def check_embeddings(found, encoder, inputs, encoding):
    """The sum of the rows, normalised and projected, is the first hidden state."""
    total, tables = torch.tensor(unpacked(found["total"])), encoder.embeddings
    parts = [torch.tensor(unpacked(found[key])) for key in ("word", "position", "segment") if found[key]]
    torch.testing.assert_close(torch.stack(parts).sum(0), total, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(parts[0], tables.word.weight[encoding.ids], rtol=1e-3, atol=1e-3)
    first = tables.norm(total)
    torch.testing.assert_close(torch.tensor(unpacked(found["output"])), first, rtol=5e-3, atol=5e-3)
    first = first if tables.projection is None else tables.projection(first)
    torch.testing.assert_close(encoder(*inputs).states[0], first, rtol=1e-2, atol=1e-2)


def check_attention(found, encoder, inputs):
    """Softmax of q k / sqrt(H) over visible keys gives the encoder's weights; their sums of v give the next state."""
    out = encoder(*inputs, attentions=True)
    heads, spans = head_vectors(encoder, out.states), visible_spans(encoder.config)
    assert found["spans"] == spans
    T, H = heads["query"].shape[2:]
    distance = torch.arange(T) - torch.arange(T)[:, None]  # of the key from the query
    for number, weights in enumerate(out.attentions):
        scores = heads["query"][number] @ heads["key"][number].transpose(1, 2) / H**0.5  # (N, T, T)
        left, right = ((T if side is None else side) for side in spans[number])
        mine = scores.masked_fill((distance < -left) | (distance > right), -torch.inf).softmax(-1)
        torch.testing.assert_close(mine, weights[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.sum(-1), torch.ones_like(mine[..., 0]))
        layer = encoder.layers[0 if encoder.config.shared_layers == "all" else number]
        context = (mine @ heads["value"][number]).transpose(0, 1).flatten(1)  # (T, D)
        x = out.states[number] + layer.attention.output(context)
        x = x if layer.pre else layer.attention_norm(x)
        x = x + layer.feed_forward(layer.output_norm(x) if layer.pre else x)
        x = x if layer.pre else layer.output_norm(x)
        if number == len(out.attentions) - 1 and encoder.final_norm is not None:
            x = encoder.final_norm(x)
        torch.testing.assert_close(x, out.states[number + 1], rtol=1e-3, atol=1e-4)
    for key, whole in heads.items():
        np.testing.assert_allclose(unpacked(found[key]), whole, rtol=1e-3, atol=1e-3)


def test_hidden_tokens_are_predicted_as_by_fill_mask(pretrained):
    found = explain(pretrained, "good film", top_k=3)["masks"]
    assert [one["position"] for one in found] == [1, 2]
    [expected] = pretrained.fill_mask("good [MASK]", top_k=1000)
    assert [(one["id"], one["token"]) for one in found[1]["top"]] == [(c["id"], c["token"]) for c in expected[:3]]
    assert [one["score"] for one in found[1]["top"]] == pytest.approx([one["score"] for one in expected[:3]], abs=1e-5)
    order = [one["id"] for one in expected]
    assert found[1]["rank"] == order.index(found[1]["token"]) + 1
    assert found[1]["score"] == pytest.approx(expected[found[1]["rank"] - 1]["score"], abs=1e-5)
    [alone] = explain(pretrained, "good [MASK]", top_k=3)["masks"]  # of the text: no other token is hidden
    assert [one["id"] for one in alone["top"]] == order[:3]
    assert (alone["position"], alone["rank"], alone["score"]) == (2, None, None)


def test_a_pair_asks_whether_b_follows(pretrained):
    assert explain(pretrained, A, B)["next_sentence"] == pretrained.next_sentence(A, B)
    assert explain(pretrained, A)["left_out"]["next_sentence"] == "no-second-text"


def test_heads_of_fine_tuning(tokenizer, tmp_path):
    tags, names = ["O", "B-X", "I-X"], ["one", "two", "three"]
    classifier = predictor_of(tmp_path / "c", tokenizer, ("classifier",), names, {"kind": "single", "name": "own"})
    expected = {"kind": "single", **classifier.classify(A, all_scores=True)}
    found = explain(classifier, A)
    assert found["labels"] == expected and found["left_out"]["masks"] == "no-mlm"
    assert explain(classifier, A, B)["left_out"]["labels"] == "needs-single"
    tagger = predictor_of(tmp_path / "t", tokenizer, ("tagger",), tags, {"kind": "tagging"})
    assert explain(tagger, A)["tags"] == next(tagger.tag_words([A]))
    span = predictor_of(tmp_path / "s", tokenizer, ("span",), (), {"kind": "span"})
    found = explain(span, A, B)["answer"]
    scores = span.loaded.scores(span.answerer.prepare([(A, B)]).inputs).softmax(0)
    np.testing.assert_allclose(np.stack([found["start"], found["end"]], 1), scores, atol=1e-5)
    assert found["best"] == span.answer(A, B) and sum(found["start"]) == pytest.approx(1, abs=1e-5)
    assert explain(span, A)["left_out"]["answer"] == "no-context"


def test_long_texts_are_cut_and_bad_input_is_refused(pretrained):
    found = explain(pretrained, "a b c " * 20)
    assert len(found["tokens"]) == 32 and found["cut"] == 30
    assert len(explain(pretrained, "a b c " * 20, max_length=10)["tokens"]) == 10
    for arguments, said in (
        ((" ",), "text A, ' ', has no token; expected a sentence"),
        (("a", ""), "text B, '', has no token"),
        ((None,), "a is None; expected a text"),
        (("a", None, 99), "max_length = 99; expected 8 to 32"),
        (("a", None, None, 0), "top_k = 0; expected 1 or more"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            explain(pretrained, *arguments)


# ---- the page


def test_no_text_becomes_markup(pretrained):
    data = explain(pretrained, A, B)
    plain, evil = explain_page(data), explain_page(explain(pretrained, EVIL, EVIL))
    assert re.findall(r"<[/\w]+", evil) == re.findall(r"<[/\w]+", plain)
    assert evil.count("<script") == evil.count("</script>") == 2 and "<img" not in evil
    hostile = {**data, "model": EVIL, "tokens": [{**token, "text": EVIL} for token in data["tokens"]]}
    [stored] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', explain_page(hostile), re.S)
    assert "<" not in stored and json.loads(stored) == hostile


# ---- long texts


@pytest.mark.parametrize(
    "text", ["a bad film , abc d " * 20, "bad " * 9 + "abcabcabcabc" * 5, "\u00e9" * 60 + " a" * 60]
)
@pytest.mark.parametrize("pair", [None, "good d " * 30])
def test_a_long_text_is_cut_once_for_every_part(tokenizer, tmp_path, text, pair):
    """Heads read what the page shows: explaining the part that was kept gives the same, and nothing is cut."""
    predictor = predictor_of(tmp_path / "m", tokenizer, ("classifier",), ("x", "y"))
    found = explain(predictor, text, pair, max_length=20)
    assert found["cut"] == len(tokenizer.encode(text, pair).ids) - len(found["tokens"]) > 0
    assert text.startswith(found["text"]) and len(found["text"]) < len(text)
    again = explain(predictor, found["text"], found["pair"], max_length=20)
    assert again == found | {"cut": 0}
    direct = predictor.classify(found["text"], found["pair"], all_scores=True)
    assert found["labels"]["scores"] == pytest.approx(direct["scores"], abs=1e-6)

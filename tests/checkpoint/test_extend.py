"""New words in a vocabulary: where they go, what their rows are, that transformers reads the same; what is refused."""

import json
from pathlib import Path

import pytest
import torch

from bertworks.checkpoint.convert.extension import extend, extend_folder
from bertworks.checkpoint.folder import load_model, load_tokenizer, read_config, save_folder
from bertworks.checkpoint.pooling import Pooling, read_pooling, write_pooling
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCAB = ["[PAD]", "[unused0]", "[unused1]", *SPECIAL_TOKENS[1:], *LETTERS, *(f"##{c}" for c in LETTERS), "the", "-"]
WORDS = ["Aspirin", "the", "codeine", "beta-blocker", "aspirin", "statin", "ibuprofen", "##ase", "x" * 201]
TEXT = "The codeine and aspirins, a statin or Ibuprofen."


def tokenizer_of(folder: Path, vocab=VOCAB) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    return Tokenizer.load(folder / "vocab.txt", lowercase=True)


@pytest.fixture
def saved(tmp_path) -> Path:
    config = ModelConfig(
        vocab_size=len(VOCAB),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
    )
    model = build_model(config, ("mlm", "nsp"), seed=1)
    torch.nn.init.normal_(model.heads["mlm"].bias, generator=torch.Generator().manual_seed(2))
    save_folder(tmp_path / "model", model, tokenizer_of(tmp_path), max_length=30)
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n\n")
    return tmp_path / "model"


def test_unused_entries_first_then_the_end_and_rows_are_means(saved, tmp_path):
    done = extend_folder(saved, tmp_path / "words.txt", tmp_path / "new")
    old, tokenizer = load_tokenizer(saved), load_tokenizer(tmp_path / "new")
    size = len(VOCAB)
    assert done.slots == 2 and tokenizer.vocab_size == size + 2
    places = {"aspirin": 1, "codeine": 2, "statin": size, "ibuprofen": size + 1}
    assert {word: tokenizer.vocab.index(word) for word in places} == places
    assert tokenizer.vocab[3:size] == VOCAB[3:]
    assert "aspirin ##s" in " ".join(tokenizer.tokenize(TEXT)) and "[UNK]" not in tokenizer.tokenize("codeine")
    one, other = load_model(saved), load_model(tmp_path / "new")
    before, after = (model.encoder.embeddings.word.weight for model in (one, other))
    for word, number in places.items():
        pieces = old.ids_of([word])[0]
        assert done.subwords[number] == pieces and len(pieces) == len(word)
        torch.testing.assert_close(after[number], before[pieces].mean(0))
        torch.testing.assert_close(other.heads["mlm"].bias[number], one.heads["mlm"].bias[pieces].mean())
    assert torch.equal(after[3:size], before[3:]) and torch.equal(after[0], before[0])
    same = one.state_dict().keys() - {"encoder.embeddings.word.weight", "heads.mlm.bias"}
    assert all(torch.equal(one.state_dict()[name], other.state_dict()[name]) for name in same)
    assert read_config(tmp_path / "new")[1]["vocab_size"] == size + 2
    settings = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 30


def test_transformers_gets_the_same_ids_and_outputs(saved, tmp_path):
    transformers = pytest.importorskip("transformers")
    extend_folder(saved, tmp_path / "words.txt", tmp_path / "new")
    tokenizer, model = load_tokenizer(tmp_path / "new"), load_model(tmp_path / "new")
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")(TEXT, return_tensors="pt")
    ids = torch.tensor([tokenizer.encode(TEXT).ids])
    assert torch.equal(inputs["input_ids"], ids) and len(VOCAB) in ids
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "new")(**inputs)
    out = model.encoder(ids)
    torch.testing.assert_close(model.masked_lm_logits(out.packed), theirs.prediction_logits[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.heads["nsp"](out.pooled), theirs.seq_relationship_logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{"direction": "pair"}, {"tie_word_embeddings": False}, {"embedding_size": 8}])
def test_every_table_of_words_grows(changes, tmp_path):
    config = ModelConfig(
        vocab_size=len(VOCAB),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        **changes,
    )
    heads = () if changes.get("direction") else ("mlm",)
    save_folder(tmp_path / "model", build_model(config, heads, seed=1), tokenizer_of(tmp_path))
    (tmp_path / "words.txt").write_text("one\ntwo\nthree\n")
    extend_folder(tmp_path / "model", tmp_path / "words.txt", tmp_path / "new")
    model, old = load_model(tmp_path / "new"), load_model(tmp_path / "model").state_dict()
    grown = {name: t for name, t in model.state_dict().items() if old[name].shape != t.shape}
    assert len(grown) == 2 if changes.get("embedding_size") or heads == () else 3
    assert all(len(tensor) == len(VOCAB) + 1 for tensor in grown.values())


def test_labels_stay(tmp_path):
    config = ModelConfig(
        vocab_size=len(VOCAB), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = build_model(config, ("tagger",), labels=3, seed=1)
    save_folder(tmp_path / "model", model, tokenizer_of(tmp_path), None, ["O", "B-X", "I-X"], task={"kind": "tagging"})
    (tmp_path / "words.txt").write_text("word\n")
    extend_folder(tmp_path / "model", tmp_path / "words.txt", tmp_path / "new")
    one, other = (read_config(folder)[1] for folder in (tmp_path / "model", tmp_path / "new"))
    assert one == other  # a slot was free: the config has not even a new size


def test_the_command_tells_what_it_did_and_skipped(saved, tmp_path, capsys):
    main(["tokenizer", "extend", str(saved), "--words", str(tmp_path / "words.txt"), "--out", str(tmp_path / "new")])
    printed = capsys.readouterr().out
    assert "skipped the: already in the vocabulary" in printed
    assert "skipped aspirin: given twice" in printed
    assert "skipped beta-blocker: always split before the vocabulary is used, into beta - blocker" in printed
    assert "skipped ##ase: always split" in printed and "longer than 200 characters" in printed
    assert "4 words added, 2 in place of [unused] entries, 2 appended" in printed


def test_a_tokenizer_alone(tmp_path):
    tokenizer_of(tmp_path).save(tmp_path / "tok")
    (tmp_path / "words.txt").write_text("aspirin\n")
    extend_folder(tmp_path / "tok", tmp_path / "words.txt", tmp_path / "new")
    assert Tokenizer.load(tmp_path / "new").ids_of(["aspirin"]) == [[1]]
    assert not (tmp_path / "new" / "config.json").exists()


def test_the_pooling_of_sentence_transformers_stays(saved, tmp_path):
    pooling = Pooling("cls", normalize=True, max_length=17)
    write_pooling(saved, pooling, 16)
    extend_folder(saved, tmp_path / "words.txt", tmp_path / "new")
    assert read_pooling(tmp_path / "new") == (tmp_path / "new", pooling)


def test_what_is_refused(saved, tmp_path):
    def refusal(folder, words, out) -> str:
        with pytest.raises(InputError) as caught:
            extend_folder(folder, words, out)
        return str(caught.value)

    words, new = tmp_path / "words.txt", tmp_path / "new"
    assert "exists and is not empty; give a new folder" in refusal(saved, words, saved)
    assert "nothing.txt: no such file; expected one word per line" in refusal(saved, tmp_path / "nothing.txt", new)
    words.write_text("the\n\n")
    assert "no word to add (the: already in the vocabulary)" in refusal(saved, words, new)
    words.write_bytes(b"caf\xe9\n")
    assert "words.txt: byte 3 is not UTF-8" in refusal(saved, words, new)
    assert not new.exists()


def test_other_kinds_of_vocabularies_are_refused_clearly():
    import tokenizers
    from tokenizers import models

    bpe = tokenizers.Tokenizer(models.BPE({"<s>": 0}, []))

    class Other:
        pipeline = bpe.to_str()

    with pytest.raises(InputError, match=r"words.txt: the vocabulary is of the kind BPE; only WordPiece"):
        extend(Other(), ["word"], "words.txt")

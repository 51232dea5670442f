"""Byte-level BPE and Unigram: against transformers and SentencePiece, as properties, and on damaged files."""

import io
import json
import pickle
import random
import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertworks.data.sentences import split_sentences
from bertworks.files import InputError
from bertworks.tasks.contexts import tokenize_contexts
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support.shared_data import shared
from support.texts import ENGLISH, KOREAN, same_in_transformers

TEXTS = [
    ENGLISH,
    KOREAN,
    "",
    "A <mask> and a [MASK] here",
    "  two  spaces ",
    "x\u00a0y\tz",
    "émoji 😀👍🏽!",
    "``quotes''",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def trained(request: pytest.FixtureRequest) -> Tokenizer:
    config = TokenizerConfig(algorithm=request.param, vocab_size=500, character_coverage=1.0, limit_alphabet=200)
    return Tokenizer.train([f"{ENGLISH}\n{KOREAN}\nmask [ ] A in text"] * 20, config)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train([f"{ENGLISH}\n{KOREAN}"] * 20, TokenizerConfig(algorithm="bpe", vocab_size=500))


# ---- against transformers and SentencePiece


def sentences_of(name: str, language: str, most: int) -> list[str]:
    """The first sentences of a corpus of the shared folder."""
    zstandard = pytest.importorskip("zstandard")
    found: list[str] = []
    with (
        open(shared(f"data/text/{name}.tar.zst"), "rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as raw,
        tarfile.open(fileobj=io.BufferedReader(raw), mode="r|") as archive,
    ):
        for member in archive:
            inner = archive.extractfile(member) if member.isfile() else None
            for line in (inner.read().decode() if inner else "").split("\n"):
                found += [] if line.startswith("<") else split_sentences(line, language)
            if len(found) >= most:
                break
    return found[:most]


@pytest.fixture(scope="module", params=[150, pytest.param(5000, marks=pytest.mark.slow)])
def sentences(request: pytest.FixtureRequest) -> list[str]:
    most = request.param
    return [*sentences_of("enwiki", "en", most), *sentences_of("kowiki", "ko", most)]


def same_as(theirs, ours: Tokenizer, sentences: list[str]) -> None:
    """Ids, offsets and type ids of sentences and pairs, whole and cut."""
    plain = theirs(sentences, return_offsets_mapping=True)
    encodings = ours.encode_batch(sentences)
    assert [e.ids for e in encodings] == plain.input_ids
    assert [e.offsets for e in encodings] == plain.offset_mapping
    assert [ids[1:-1] for ids in plain.input_ids] == ours.ids_of(sentences)
    cut = theirs(sentences, truncation=True, max_length=16)
    assert [e.ids for e in ours.encode_batch(sentences, max_length=16)] == cut.input_ids
    first, second = sentences[: len(sentences) // 4], sentences[-(len(sentences) // 4) :]
    pairs = theirs(first, second, return_token_type_ids=True, return_offsets_mapping=True)
    encodings = ours.encode_batch(first, second)
    assert [e.ids for e in encodings] == pairs.input_ids
    assert [e.type_ids for e in encodings] == pairs.token_type_ids
    assert [e.offsets for e in encodings] == pairs.offset_mapping
    short = theirs(first, ["one two"] * len(first), truncation=True, max_length=24)
    assert [e.ids for e in ours.encode_batch(first, ["one two"] * len(first), 24)] == short.input_ids


def test_ids_of_roberta(sentences: list[str]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = shared("data/vocab/roberta-base")
    same_as(transformers.RobertaTokenizerFast.from_pretrained(folder), Tokenizer.load(folder), sentences)


def test_ids_of_albert(sentences: list[str], tmp_path: Path) -> None:
    """transformers' class over this vocabulary, and SentencePiece itself after the original's preprocessing.

    The class gets the pieces as they are. If it reads the .model itself, transformers 5 takes ( ) " - . and others, the
    user-defined symbols, out of the text first and begins a new word behind them, which the original does not.
    """
    transformers = pytest.importorskip("transformers")
    sentencepiece = pytest.importorskip("sentencepiece")
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2", exc_type=ImportError).ModelProto()
    path = shared("data/vocab/albert-base-v2/spiece.model")
    with pytest.raises(InputError, match="a SentencePiece model, which is not read"):
        Tokenizer.load(path.parent)
    proto.ParseFromString(path.read_bytes())
    theirs = transformers.AlbertTokenizer(
        vocab=[(piece.piece, piece.score) for piece in proto.pieces],
        _spm_precompiled_charsmap=proto.normalizer_spec.precompiled_charsmap,
    )
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    same_as(theirs, ours, sentences)
    original = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode(list(map(as_albert_does, sentences)))
    different = [pair for pair in zip(ours.ids_of(sentences), original, strict=True) if pair[0] != pair[1]]
    # Where two ways to cut a word are equally probable the two may take another one: once in 10,000.
    assert len(different) <= 1 and all(sorted(one) == sorted(other) for one, other in different)


def as_albert_does(text: str) -> str:
    """preprocess_text of google-research/albert, tokenization.py, with lower-casing."""
    text = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).lower()


@pytest.mark.parametrize("model_type", [None, "roberta", "albert", "bertworks"])
def test_transformers_gives_our_ids(trained: Tokenizer, tmp_path: Path, model_type: str | None) -> None:
    same_in_transformers(trained, tmp_path, model_type, TEXTS)


# ---- training, saving, loading


@pytest.mark.parametrize("model", ["wordpiece", "bpe", "unigram"])
def test_training_twice_gives_the_same_bytes(model: str, tmp_path: Path) -> None:
    """In two processes, since hash tables are seeded by process."""
    code = (
        "import random, sys; from bertworks.tokenizer import *; r = random.Random(1)\n"
        "words = [''.join(r.choices('abcdefghij가나다라마', k=r.randint(1, 6))) for _ in range(3000)]\n"
        "config = TokenizerConfig(algorithm=sys.argv[2], vocab_size=700, limit_alphabet=int(sys.argv[3]))\n"
        "Tokenizer.train([' '.join(words)], config).save(sys.argv[1])\n"
    )
    limit = "0" if model == "bpe" else "24"
    for name in "ab":
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name), model, limit], check=True)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    more = {"wordpiece": ["vocab.txt"], "bpe": ["merges.txt", "vocab.json"], "unigram": []}[model]
    assert files == sorted(["tokenizer.json", "tokenizer_config.json", *more])
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert Tokenizer.load(tmp_path / "a").vocab_size == 700


def test_special_tokens_by_role(trained: Tokenizer) -> None:
    ids = [trained.cls_id, trained.pad_id, trained.sep_id, trained.unk_id, trained.mask_id]
    if trained.kind == "bpe":
        assert ids == [0, 1, 2, 3, trained.vocab_size - 1] and trained.vocab[-1] == "<mask>"
        assert (trained.layout.pair_separators, trained.layout.segments, trained.lowercase) == (2, False, False)
    else:
        assert ids == [2, 0, 3, 1, 4] and trained.vocab[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        assert (trained.layout.pair_separators, trained.layout.segments, trained.lowercase) == (1, True, True)
    for text in ("<mask> <s> </s> <pad> <unk>", "[MASK] [CLS] [SEP]", "a<pad>b"):  # never out of a text
        assert not {*ids} - {trained.unk_id} & {*trained.ids_of([text])[0]}
        assert trained.pad_id not in trained.ids_of([text])[0] and trained.mask_id not in trained.ids_of([text])[0]
    mask = trained.roles["mask"]
    assert trained.encode(f"a {mask} b", specials=True).ids.count(trained.mask_id) == 1


def test_uncased_leaves_hangul_whole() -> None:
    for model in ("bpe", "unigram"):
        config = TokenizerConfig(
            algorithm=model, vocab_size=500, lowercase=True, character_coverage=1.0, limit_alphabet=200
        )
        tokenizer = Tokenizer.train([f"{ENGLISH}\n{KOREAN}"] * 20, config)
        assert tokenizer.normalize("한국어 Café ÅNGSTRÖM") == "한국어 cafe angstrom"
        ids = tokenizer.ids_of([KOREAN])[0]
        assert tokenizer.unk_id not in ids and tokenizer.decode(ids) == KOREAN


def test_save_and_load(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    for other in (Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(trained))):
        assert other.fingerprint == trained.fingerprint
        assert (other.vocab, other.layout, other.roles) == (trained.vocab, trained.layout, trained.roles)
        assert other.encode_batch(TEXTS, TEXTS[::-1], 20) == trained.encode_batch(TEXTS, TEXTS[::-1], 20)
    if trained.kind == "bpe":  # the bare files say the same
        (tmp_path / "tokenizer.json").unlink()
        for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
            assert Tokenizer.load(path).fingerprint == trained.fingerprint


def test_unigram_training_finds_the_words() -> None:
    """Text of a few words becomes these words; a character beyond the alphabet's limit stays unknown."""
    rng = random.Random(3)
    words = ["river", "mountain", "walks", "slowly", "한국어", "위키백과"]
    text = " ".join(rng.choices(words, k=3000)) + " 龍"
    config = TokenizerConfig(algorithm="unigram", vocab_size=100, character_coverage=0.9999)
    tokenizer = Tokenizer.train([text], config)
    assert tokenizer.tokenize("slowly 한국어 river") == ["▁slowly", "▁한국어", "▁river"]
    assert tokenizer.unk_id in tokenizer.ids_of(["龍"])[0]
    learned = [piece for piece in tokenizer.vocab if piece not in tokenizer.roles.values()]
    assert {*"rivemountalkswy한국어위키백과▁"} <= {*learned}


def test_pieces_hold_no_mark_beside_letters() -> None:
    tokenizer = Tokenizer.train(["one, two, 12, three."] * 200, TokenizerConfig(algorithm="unigram", vocab_size=100))
    assert tokenizer.tokenize("one, 12.") == ["▁one", ",", "▁12", "."]


# ---- using


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("한국😀\u200b<mask></s> \n\n  é\x00")
def test_bytes_come_back(bpe: Tokenizer, text: str) -> None:
    """No text is unknown to byte-level BPE, and none is changed."""
    encoding = bpe.encode(text)
    assert bpe.decode(encoding.ids) == text
    assert bpe.unk_id not in encoding.ids
    for start, end in encoding.offsets:
        assert 0 <= start <= end <= len(text)


def test_bytes_of_one_character_have_its_offsets(bpe: Tokenizer) -> None:
    encoding = bpe.encode("a😀 힣.")
    inner = list(zip(encoding.tokens, encoding.offsets, strict=True))[1:-1]
    assert inner[0] == ("a", (0, 1)) and inner[-1] == (".", (4, 5))
    assert {offsets for _, offsets in inner[1:5]} == {(1, 2)}  # four bytes of one character
    assert {(3, 4)} <= {offsets for _, offsets in inner[5:-1]} <= {(3, 4), (3, 3)}  # (3, 3): a space by itself


def test_a_pair_is_cut_with_its_separators(trained: Tokenizer) -> None:
    separators = 2 if trained.kind == "bpe" else 1
    short = trained.encode("one river", "two", max_length=separators + 4)
    assert len(short.ids) == separators + 4
    assert short.n_cut == len(trained.tokenize("one river")) + len(trained.tokenize("two")) - 2


def test_readable_and_joined(trained: Tokenizer) -> None:
    mark = "Ġ" if trained.kind == "bpe" else "▁"
    word = next(i for i, p in enumerate(trained.vocab) if p[0] == mark and len(p) > 2 and p[1:].isascii())
    part = trained.vocab.index("s")
    assert trained.joined("a ", word) == trained.joined("a", word) == f"a {trained.readable(word)}"
    assert trained.joined("", word) == trained.readable(word)
    assert trained.joined("a ", part) == "as"
    assert not trained.continuation[[trained.cls_id, trained.mask_id, word]].any() and trained.continuation[part]


def test_words_of_contexts_are_those_of_the_text(trained: Tokenizer) -> None:
    """Word by word or at once, the pieces and their places are the same."""
    texts = [ENGLISH, KOREAN, f"{ENGLISH} {KOREAN}", "re-opened re-opened", "café"]
    contexts = tokenize_contexts(trained, texts)
    for i, encoding in enumerate(trained.encode_batch(texts)):
        own = slice(*contexts.edges[i : i + 2])
        assert contexts.ids[own].tolist() == encoding.ids[1:-1]
        places = np.stack([contexts.begin[own], contexts.end[own]], 1)
        assert list(map(tuple, places.tolist())) == encoding.offsets[1:-1]


# ---- damaged files


VOCAB = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6, "<mask>": 7}


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        (b'{"a": 0,\n "b"}', b"", "vocab.json: not valid JSON .*line 2"),
        (json.dumps({**VOCAB, "한": 8}).encode(), b"", "'한' is not written in bytes"),
        (json.dumps({"a": 0, "b": 1, "ab": 2}).encode(), b"a b\n", r"lacks \[PAD\] or <pad>"),
        (None, None, "merges.txt: no such file"),
        (None, b"a b\na c\n", "merge 2 is 'a c'"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path: Path, vocab: bytes | None, merges: bytes | None, message: str) -> None:
    (tmp_path / "vocab.json").write_bytes(json.dumps(VOCAB).encode() if vocab is None else vocab)
    if merges is not None:
        (tmp_path / "merges.txt").write_bytes(merges)
    with pytest.raises(InputError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    ("trained", "part", "key", "value", "said"),
    [
        ("bpe", "model", "dropout", 0.5, "leaves out merges at random"),
        ("unigram", "model", "unk_id", None, "its model.unk_id is null"),
        ("unigram", "post_processor", "pair", [{"Sequence": {"id": "A", "type_id": 0}}], "post_processor|cannot read"),
    ],
    indirect=["trained"],
)
def test_a_pipeline_that_would_fail_in_use_is_refused(
    trained: Tokenizer, part: str, key: str, value: object, said: str
) -> None:
    pipeline = json.loads(trained.pipeline)
    pipeline[part][key] = value
    with pytest.raises(InputError, match=said):
        Tokenizer(json.dumps(pipeline))

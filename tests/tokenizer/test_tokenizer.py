"""The tokenizer against the original's recorded outputs, against its rules in plain Python, against transformers."""

import collections
import gzip
import io
import json
import pickle
import random
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bertworks.files import InputError
from bertworks.tokenizer import Tokenizer, TokenizerConfig, bert_rules, compose, normalize
from bertworks.tokenizer.bert_rules import CLASSES, BertRules
from bertworks.tokenizer.check import check, normalizer_mismatch
from bertworks.tokenizer.training import VocabModel, sample_lines
from bertworks.tokenizer.wordpiece import SPECIAL_TOKENS
from support import reference_tokenizer as reference
from support.texts import ENGLISH, KOREAN, same_in_transformers

SHARED = Path(__file__).parents[2] / "../shared"
VOCABS = SHARED / "data/vocab"
ORACLE = SHARED / "oracle/tokenization/tokenization.jsonl.gz"
needs_vocabs = pytest.mark.skipif(
    not VOCABS.exists(), reason="the published vocabularies are not at ../shared/data/vocab"
)
needs_oracle = pytest.mark.skipif(not ORACLE.exists(), reason="the original's outputs are not at ../shared/oracle")

TEXTS = [ENGLISH, KOREAN, ENGLISH.upper(), "", "A [MASK] in the text", "x" * 150, "x" * 201]
TEXTS += ["中文 and 日本語 がギ", "हिन्दी й Ё"]
NFD_KOREAN = unicodedata.normalize("NFD", KOREAN)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def trained(request: pytest.FixtureRequest) -> Tokenizer:
    config = TokenizerConfig(vocab_size=400, lowercase=request.param, character_coverage=1.0, limit_alphabet=180)
    return Tokenizer.train([f"{ENGLISH}\n{KOREAN}\nmask [ ] A in text"] * 20, config)


def write_vocab(path: Path, pieces: list[str]) -> Path:
    path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
    return path


# ---- the original's outputs


# A character kept inside the word "a?b" makes it [UNK]; split off, it leaves "a" and "b"; removed, "a ##b".
PROBE_IDS = {piece: i for i, piece in enumerate([*SPECIAL_TOKENS, "a", "b", "##b"])}
PROBES: dict[bool, Tokenizer] = {}


@pytest.fixture(scope="module", autouse=True)
def probes(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write_vocab(tmp_path_factory.mktemp("probe") / "vocab.txt", list(PROBE_IDS))
    PROBES.update({lowercase: Tokenizer.load(path, lowercase) for lowercase in (True, False)})


SETTINGS = [
    ("bert-base-uncased", True),
    ("bert-base-cased", False),
    ("bert-base-multilingual-cased", True),
    ("bert-base-multilingual-cased", False),
]


@pytest.fixture(scope="module")
def published() -> dict[tuple[str, bool], Tokenizer]:
    return {(name, lowercase): Tokenizer.load(VOCABS / f"{name}.txt", lowercase) for name, lowercase in SETTINGS}


@pytest.fixture(scope="module", params=["drawn", pytest.param("all", marks=pytest.mark.heavy)])
def records(request: pytest.FixtureRequest) -> list[dict]:
    """Drawn: every string of the classes on which Unicode tables decide, three of each other class."""
    with gzip.open(ORACLE, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    if request.param == "all":
        return found
    whole = {record["n"] for record in found if record["kind"] in ("any_unicode", "fixed", "case")}
    for kind in sorted({record["kind"] for record in found}):
        whole |= {*[record["n"] for record in found if record["kind"] == kind][:12:4]}
    return [record for record in found if record["n"] in whole]


@needs_vocabs
@needs_oracle
def test_equals_the_original(published: dict[tuple[str, bool], Tokenizer], records: list[dict]) -> None:
    """Every record: natural text, final sigma, private-use characters, marks and punctuation of Unicode 14."""
    for record in records:
        tokenizer, text = published[record["vocab"], record["do_lower_case"]], record["text"]
        assert tokenizer.tokenize(text) == record["tokens"], record
        assert tokenizer.ids_of([text]) == [record["ids"]]
        assert tokenizer.encode(text).ids == [tokenizer.cls_id, *record["ids"], tokenizer.sep_id]


@needs_vocabs
@needs_oracle
@pytest.mark.parametrize(("name", "lowercase"), SETTINGS)
def test_transformers_reads_the_original_from_our_folder(
    published: dict[tuple[str, bool], Tokenizer], records: list[dict], tmp_path: Path, name: str, lowercase: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    published[name, lowercase].save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    own = [record for record in records if (record["vocab"], record["do_lower_case"]) == (name, lowercase)]
    own = [record for record in own if not any(token in record["text"] for token in SPECIAL_TOKENS)]
    assert len(own) > 150
    found = theirs([record["text"] for record in own], add_special_tokens=False).input_ids
    assert found == [record["ids"] for record in own]


@needs_vocabs
@needs_oracle
def test_reference_is_the_original(published: dict[tuple[str, bool], Tokenizer], records: list[dict]) -> None:
    vocabs = {key: {piece: i for i, piece in enumerate(value.vocab)} for key, value in published.items()}
    for record in records:
        vocab = vocabs[record["vocab"], record["do_lower_case"]]
        tokens = reference.tokenize(record["text"], vocab, record["do_lower_case"])
        assert tokens == record["tokens"]
        assert [vocab[token] for token in tokens] == record["ids"]


unicode_14 = pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="this Python has another Unicode")
ASSIGNED = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.split(tokenizer.normalize(text))


@unicode_14
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_alone(lowercase: bool, step: int) -> None:
    """Of all assigned characters; in the first tier of all marks, punctuation and format characters, of others 5 %."""
    inside = (("\uac01", "\ud7a3"), ("\U00020001", "\U0002a000"), ("\U000f0001", "\U0010fffc"))  # the ends will do
    rest = [char for char in ASSIGNED if not any(first < char < last for first, last in inside)]
    chars = [char for char in rest if unicodedata.category(char)[0] in "PMZ" or unicodedata.category(char) == "Cf"]
    for char in dict.fromkeys([*chars, *rest[::step]]):
        text = f"a{char}b A{char}\u03a3 \u0391\u03a3{char}a"
        assert words_of(PROBES[lowercase], text) == reference.basic_words(text, lowercase), ascii(text)


@unicode_14
def test_the_classes_of_characters_are_those_of_unicode_14() -> None:
    def members(ranges: str) -> set[str]:
        ends = [[int(end, 16) for end in part.split("-")] for part in ranges.split()]
        return {chr(code) for end in ends for code in range(end[0], end[-1] + 1)} - surrogates

    surrogates = {chr(code) for code in range(0xD800, 0xE000)}
    category = {char: unicodedata.category(char) for char in ASSIGNED}
    cased = {char for char in ASSIGNED if f" {char}\u03a3".lower().endswith("\u03c2")}
    ignorable = {char for char in ASSIGNED if f"a{char}\u03a3".lower().endswith("\u03c2")} - cased
    assert members(CLASSES["control"]) == {c for c in ASSIGNED if reference.is_control(c)} | {"\ufffd"}
    assert members(CLASSES["nonspacing_mark"]) == {char for char in ASSIGNED if category[char] == "Mn"}
    assert members(CLASSES["punctuation"]) == {char for char in ASSIGNED if reference.is_punctuation(char)}
    assert (members(CLASSES["cased"]), members(CLASSES["case_ignorable"])) == (cased, ignorable)


# ---- properties

LETTERS = "abcdeABCDE019 .,-'[]_$~\t\néÉüñçØßİıǅΑΣσςЖйЁعבआक्षि한국어ㅋㅎ中文がガ゙ﾊ№½ﬁ"
LETTERS += "\u0301\u0327\u00a0\u3000\u2028\u200d\ufeff\x00\x85\u1112\u1161\u11ab😀"
PIECES = [*SPECIAL_TOKENS, *sorted({*LETTERS.lower(), *LETTERS} - set(" \t\n\u00a0\u3000\u2028\x85\x00"))]
PIECES += ["##" + char for char in "abcdeABCDE019éuocßiσςαийक한국어ㅋㅎがか\u1112\u1161"]
PIECES += ["abc", "##bcd", "##de", "한국", "##국어", "Abc", "mask", "##10"]
texts = st.one_of(st.text(), st.text(alphabet=LETTERS), st.text(alphabet="abcdeABCDE019 .,-'[]", max_size=300))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Tokenizer]:
    path = write_vocab(tmp_path_factory.mktemp("mixed") / "vocab.txt", list(dict.fromkeys(PIECES)))
    return {lowercase: Tokenizer.load(path, lowercase) for lowercase in (True, False)}


@unicode_14
@settings(max_examples=500)
@given(texts, st.booleans())
@example("[MASK] abcde ABC-abc", True)
@example("\u0391\u03a3 \u0391\u03a3.\u0391 \u0391\u03a3\u0301\u200d\x00 \u03a3", True)
@example("a\ue000b \u1acf \u061d \U0002b820\U0002b820 \U000111c9", False)
@example("a" * 200 + " " + "a" * 201, True)
def test_same_as_the_rules_in_plain_python(mixed: dict[bool, Tokenizer], text: str, lowercase: bool) -> None:
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cn", "Cs"))
    spacing = [c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) == "Mc"]
    assume(sum(unicodedata.combining(char) > 0 for char in spacing) < 2)  # their order: see docs/tokenizer.md
    tokenizer = mixed[lowercase]
    vocab = {piece: i for i, piece in enumerate(tokenizer.vocab)}
    encoding = tokenizer.encode(text)
    assert encoding.tokens[1:-1] == reference.tokenize(text, vocab, lowercase)
    starts, ends = ([span[side] for span in encoding.offsets[1:-1]] for side in (0, 1))
    assert (starts, ends) == (sorted(starts), sorted(ends)) and max(ends, default=0) <= len(text)
    assert all(start < end for start, end in zip(starts, ends, strict=True))


@settings(max_examples=500)
@given(st.lists(texts, max_size=4), st.booleans(), st.sampled_from(["", "abc de " * 30]))
def test_ids_of_is_the_library_quickly(
    mixed: dict[bool, Tokenizer], batch: list[str], lowercase: bool, english: str
) -> None:
    """The short cut for English gives what the library gives, also where a few other characters are mixed in."""
    tokenizer = mixed[lowercase]
    batch = [english + text for text in batch]
    found = [[tokenizer.vocab[i] for i in ids] for ids in tokenizer.ids_of(batch)]
    assert found == [*map(tokenizer.tokenize, batch)]


@given(st.integers(0, 60), st.integers(0, 60), st.integers(3, 80))
def test_cutting_is_truncate_seq_pair(a: int, b: int, max_length: int) -> None:
    encoding = PROBES[True].encode("a " * a, "b " * b, max_length)
    first, second = [0] * a, [0] * b
    while len(first) + len(second) > max_length - 3:
        (first if len(first) > len(second) else second).pop()
    assert encoding.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert encoding.n_cut == a + b - len(first) - len(second)


# ---- training, saving, loading


def test_uncased_strips_accents_and_leaves_hangul_whole(trained: Tokenizer) -> None:
    assert trained.vocab[:5] == list(SPECIAL_TOKENS)
    assert not any("\u1100" <= char <= "\u11ff" for piece in trained.vocab for char in piece)  # letters of syllables
    assert trained.normalize("한국어") == "한국어"
    assert "[UNK]" not in trained.tokenize(KOREAN)
    if trained.lowercase:
        assert trained.normalize("Café ÅNGSTRÖM") == "cafe angstrom"
        assert trained.tokenize(NFD_KOREAN) == trained.tokenize(KOREAN)
    else:
        assert trained.normalize("Café") == "Café"


def test_save_and_load(trained: Tokenizer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    for other in (loaded, pickle.loads(pickle.dumps(trained))):
        assert other.fingerprint == trained.fingerprint
        assert (other.vocab, other.lowercase, other.mask_id) == (trained.vocab, trained.lowercase, 4)
        assert other.ids_of(TEXTS) == trained.ids_of(TEXTS)
    bare = Tokenizer.load(tmp_path / "vocab.txt", trained.lowercase)
    assert bare.tokenize(KOREAN) == trained.tokenize(KOREAN)  # evidently made of syllables
    with pytest.raises(InputError, match="lowercase is"):
        Tokenizer.load(tmp_path, not trained.lowercase)
    (tmp_path / "tokenizer.json").unlink()
    assert Tokenizer.load(tmp_path).tokenize(KOREAN) == trained.tokenize(KOREAN)


@pytest.mark.parametrize("model_type", [None, "bert", "bertworks"])
def test_transformers_gives_our_ids(trained: Tokenizer, tmp_path: Path, model_type: str | None) -> None:
    assert (trained.mask_id, trained.pad_id) == (4, 0)
    same_in_transformers(trained, tmp_path, model_type, [*TEXTS, NFD_KOREAN])


def test_published_model_folder(minilm: Path) -> None:
    """A tokenizer.json made by others, with padding and truncation in it, is used as it is, without those two."""
    transformers = pytest.importorskip("transformers")
    ours, theirs = Tokenizer.load(minilm), transformers.AutoTokenizer.from_pretrained(minilm)
    for text in [*TEXTS, "word " * 600]:
        assert ours.encode(text, specials=True).ids == theirs(text, truncation=False).input_ids


@needs_vocabs
def test_bare_vocabulary_follows_the_original_for_hangul() -> None:
    uncased = Tokenizer.load(VOCABS / "bert-base-uncased.txt", lowercase=True)
    assert uncased.tokenize("한국") == ["ᄒ", "##ᅡ", "##ᆫ", "##ᄀ", "##ᅮ", "##ᆨ"]
    assert (uncased.pad_id, uncased.unk_id, uncased.cls_id, uncased.sep_id, uncased.mask_id) == (0, 100, 101, 102, 103)


@pytest.mark.parametrize("algorithm", ["wordpiece", "unigram"])
@pytest.mark.parametrize(
    ("text", "size", "limit", "all_of_them"),
    [
        (KOREAN, 7_400, 0, True),
        (KOREAN, 6_000, 2_500, True),
        (KOREAN, 6_000, 0, False),
        (KOREAN + 9 * ENGLISH, 12_000, 0, False),
    ],
)
def test_korean_text_gets_the_syllables_of_ks_x_1001(
    algorithm: VocabModel, text: str, size: int, limit: int, all_of_them: bool
) -> None:
    """If there is room for all of them; other text gets those that it has."""
    config = TokenizerConfig(algorithm, vocab_size=size, limit_alphabet=limit)
    vocab = Tokenizer.train([text + "똠"] * 20, config).vocab
    found = {char for char in vocab if "가" <= char <= "힣" and len(char) == 1}
    assert {char for char in text + "똠" if "가" <= char <= "힣"} <= found
    standard = {char for char in found if len(char.encode("euc_kr")) == 2}  # the codec spells out the others
    assert found - standard == {"똠"} and (len(standard) == 2350) == all_of_them


# Lines of a vocab.txt: with white space, blank, repeated, with a line break of another kind, without one at the end.
ODD_LINES = {
    "a line separator alone": "a\n\u2028\n你\n好\nb",
    "blank lines": "a\n\n你\n\u00a0\n\u0085\n\u3000\n\t\n好\nb\n",
    "a repeated line": "a\n好\n你\nb\n好\na\n",
    "line breaks of Windows": "a\r\n\r\n你\r\n好\r\nb",
    "white space at the end": "a \n你\u2028\n好\t\nb\u00a0\n",
    "separators inside": "a\u2028b\n你\nc\u0085d\n好\n\x0cb\na\n",
    "blank lines at the end": "a\n你\n好\nb\n\n \u2028",
}


@pytest.mark.parametrize("lines", ODD_LINES.values(), ids=[*ODD_LINES])
def test_each_line_of_a_vocabulary_is_an_id(lines: str, tmp_path: Path) -> None:
    """By the original's load_vocab; transformers strips the ends of lines alone. Both ways of saving keep the ids."""
    text, file = "a 你 好 b", tmp_path / "vocab.txt"
    file.write_bytes(("\n".join(SPECIAL_TOKENS) + "\n" + lines).encode())
    original: dict[str, int] = {}
    for number, line in enumerate(io.BytesIO(file.read_bytes())):
        original[line.decode().strip()] = number
    right = [original.get(word, original["[UNK]"]) for word in text.split()]
    tokenizer = Tokenizer.load(file, lowercase=True)
    assert tokenizer.ids_of([text]) == [right]
    assert tokenizer.vocab_size == number + 1
    assert {token: tokenizer.vocab.index(token) for token in original} == original
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").vocab == tokenizer.vocab
    assert Tokenizer.load(tmp_path / "saved" / "vocab.txt", lowercase=True).vocab == tokenizer.vocab
    transformers = pytest.importorskip("transformers")
    for folder in (tmp_path, tmp_path / "saved"):
        theirs = transformers.BertTokenizer.from_pretrained(folder)
        if "\x0c" not in lines or folder == tmp_path / "saved":
            assert theirs(text, add_special_tokens=False).input_ids == right


def test_sample_is_bounded_even_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    lines = [f"{i:09d}" for i in range(100_000)]
    sample = sample_lines(iter(["\n".join(lines[:70_000]), *lines[70_000:]]), 100_000)
    assert 40_000 < sum(map(len, sample)) <= 100_000
    assert 0.4 < sum(int(line) < 50_000 for line in sample) / len(sample) < 0.6
    assert "of 900000 characters" in caplog.text
    assert sample_lines(["one", "two\nthree"], 100_000) == ["one", "two", "three"]


# ---- using


@pytest.mark.parametrize(
    "text",
    [
        "Cafe\u0301 Zu\u0308rich",
        "\u039f\u0394\u039f\u03a3 \u03a3\u0391\u03a3",
        unicodedata.normalize("NFD", "한국 서울은"),
        "a \U0001f468\u200d\U0001f469 \u2764\ufe0f",
        "\u00ada\u00adb \u0130s \ue000",
    ],
)
def test_offsets_pass_through_every_rule(trained: Tokenizer, text: str) -> None:
    """A word's pieces together are the word in the caller's string, stripped accents and composed jamo included."""
    encoding = trained.encode(text)
    words: list[list[int]] = []
    for piece, (start, end) in list(zip(encoding.ids, encoding.offsets, strict=True))[1:-1]:
        if trained.continuation[piece]:
            assert words[-1][1] <= start
            words[-1][1] = end
        else:
            words.append([start, end])
    assert [text[start:end] for start, end in words] == text.lstrip("\u00ad").split()
    assert len(trained.encode("\u0301").offsets) == (2 if trained.lowercase else 3)


def test_rules_have_one_fingerprint_however_they_are_written(tmp_path: Path) -> None:
    """The hashes are those that bertworks gave when it wrote the rules in the library's own steps."""
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL_TOKENS, "a", "\ud55c"])
    for lowercase, known in ((True, "f97fddaefda63fd12ac45b553b747c24"), (False, "ed3b2c188c1604f482ff279864d7e485")):
        now = Tokenizer.load(path, lowercase)
        before = Tokenizer(json.dumps(json.loads(now.pipeline) | BertRules(lowercase, lowercase).library_steps))
        assert now.fingerprint == before.fingerprint == known
        assert now.pipeline != before.pipeline
        parts = json.loads(now.pipeline)
        parts["normalizer"]["normalizers"] = [
            bert_rules._OLD_FINAL_SIGMA if step == bert_rules._FINAL_SIGMA else step
            for step in parts["normalizer"]["normalizers"]
        ]
        assert (parts != json.loads(now.pipeline)) == lowercase
        assert Tokenizer(json.dumps(parts)).fingerprint == known
        assert Tokenizer(json.dumps(parts)).ids_of(TEXTS) == now.ids_of(TEXTS)
        encodings = before.encode_batch(TEXTS)
        assert before.ids_of(TEXTS) == now.ids_of(TEXTS) == [encoding.ids[1:-1] for encoding in encodings]
    fingerprints = {Tokenizer.load(path, lowercase).fingerprint for lowercase in (True, False)}
    write_vocab(path, [*SPECIAL_TOKENS, "b", "\ud55c"])
    assert len(fingerprints | {Tokenizer.load(path, lowercase).fingerprint for lowercase in (True, False)}) == 4


@pytest.mark.parametrize("text", ["1\u03a3", "1'\u03a3", "a\u03a3", "\u03a3", "'", "\u03a3'"])
def test_final_sigma_takes_time_linear_in_the_text(text: str) -> None:
    """A search back to the text's beginning at every sigma would take half a minute here."""
    long = text * 40_000 + "\u03a3"
    assert PROBES[True].normalize(long) == long.lower()


def test_batch_cut_decode(trained: Tokenizer) -> None:
    batch = trained.encode_batch(TEXTS, TEXTS[::-1], max_length=12)
    assert batch == [trained.encode(a, b, max_length=12) for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert max(len(encoding.ids) for encoding in batch) == 12
    assert trained.encode(ENGLISH, max_length=5).n_cut == len(trained.tokenize(ENGLISH)) - 3
    assert trained.decode(trained.encode(KOREAN).ids) == KOREAN
    assert trained.decode([trained.mask_id], skip_specials=False) == "[MASK]"
    assert [piece[:2] == "##" for piece in trained.vocab] == trained.continuation.tolist()
    with pytest.raises(ValueError, match="max_length = 2"):
        trained.encode("a", "b", max_length=2)


# ---- check


def test_check_counts(trained: Tokenizer) -> None:
    report = check(trained, ["the café, 12", "한국어 the 中"])
    assert (report.chars, report.words) == (21, 6) and report.missing[0] == "中" and report.unknown == 1
    assert report.subwords == len(trained.ids_of(["the café, 12 한국어 the 中"])[0])
    assert report.reason == f"{1 / report.subwords:.1%} of the subwords are [UNK]; missing characters: 中"
    assert not check(trained, [f"{ENGLISH} {KOREAN}"]).reason and not check(trained, []).words


@pytest.mark.parametrize(
    ("pieces", "lowercase", "message"),
    [
        ("한 국 a b", True, "2 of 4 subwords match no text, .* as cased"),
        ("A B C d", True, r"3 of 4 subwords .*\(A, B, C\): load the vocabulary as cased"),
        ("A B C d", False, ""),
        ("한 국 a", False, ""),
        ("\u1112 ##\u1161", True, ""),
    ],
)
def test_a_vocabulary_that_its_normalizer_contradicts(
    pieces: str, lowercase: bool, message: str, tmp_path: Path
) -> None:
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL_TOKENS, *pieces.split()])
    parts = json.loads(Tokenizer.load(path, lowercase).pipeline) | BertRules(lowercase).steps  # Hangul is decomposed
    found = normalizer_mismatch(Tokenizer(json.dumps(parts)))
    assert re.search(message, found) if message else not found


@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_trained_alphabet_has_all_of_printable_ascii(model: str, lowercase: bool) -> None:
    config = TokenizerConfig(algorithm=model, vocab_size=800, lowercase=lowercase)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(["only a few letters of the alphabet and no digit here"] * 50, config)
    text = "6 7 % @ & $ / + x9z Q q7 " + " ".join(map(chr, range(33, 127)))
    assert tokenizer.unk_id not in tokenizer.ids_of([text])[0]
    assert not check(tokenizer, [text]).missing
    small = Tokenizer.train(["abc"], TokenizerConfig(vocab_size=100, limit_alphabet=20))
    assert small.tokenize("abc 7") == ["a", "##b", "##c", "[UNK]"]  # no room for ASCII
    assert check(small, ["abc 7"]).missing[:2] == ["7", "!"]


# ---- bad input


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"\xef\xbb\xbf[PAD]\n[UNK]\n", "begins with a byte order mark"),
        ("vocab.txt", b"[PAD]\n\xff\n", "byte 6 is not UTF-8"),
        ("vocab.txt", "[PAD]\n영화\n".encode("cp949"), r"byte 6 is not UTF-8; .*; it looks like CP949 .*: save it as"),
        ("vocab.txt", b"[PAD]\n[UNK]\na\n", r"lacks \[CLS\] or <s>, \[SEP\] or </s>, \[MASK\] or <mask>"),
        ("tokenizer.json", b'{"model": {"type": "WordLevel"}}', "expected one of WordPiece, BPE, Unigram"),
        ("readme.txt", b"", "no vocabulary in this folder; expected a run, model or tokenizer folder"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        Tokenizer.load(tmp_path, lowercase=True if name == "vocab.txt" else None)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("inside", ["", "model", "tokenizer", "model/0_Transformer", "0_Transformer"])
def test_folders_of_runs_models_and_stores_have_a_tokenizer(trained: Tokenizer, inside: str, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "1"
    trained.save(run / inside)
    assert Tokenizer.load(run).fingerprint == Tokenizer.load(run / inside).fingerprint == trained.fingerprint


def damaged(trained: Tokenizer, *path: str | int, value: object = None) -> str:
    """The tokenizer.json of `trained` with another value at one place."""
    parts = json.loads(trained.pipeline)
    inner = parts
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(parts)


REPLACE = ("normalizer", "normalizers", 0, "pattern")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model", "vocab"), {"[PAD]": 2**70}, "do not have the ids 0 to"),
        (("model", "vocab", "e"), 2**31, "do not have the ids 0 to"),
        (REPLACE, {"Regex": "("}, "cannot read"),
        (("post_processor", "pair"), [], "post_processor"),
    ],
)
def test_a_hand_damaged_pipeline_is_one_message(
    trained: Tokenizer, tmp_path: Path, path: tuple[str | int, ...], value: object, message: str
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(damaged(trained, *path, value=value), encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        Tokenizer.load(tmp_path)
    assert str(error.value).startswith(str(file))


@pytest.mark.parametrize(
    ("pattern", "content", "times", "fits"),
    [({"String": "a"}, "aa", 34, False), ({"String": "a"}, "b" * 100, 1, True), ({"String": "…"}, "...", 34, True)],
)
def test_a_normalizer_that_makes_texts_explode_is_refused(
    trained: Tokenizer, pattern: dict[str, str], content: str, times: int, fits: bool
) -> None:
    step = {"type": "Replace", "pattern": pattern, "content": content}
    pipeline = damaged(trained, "normalizer", value={"type": "Sequence", "normalizers": [step] * times})
    if fits:
        Tokenizer(pipeline)
    else:
        with pytest.raises(InputError, match=r"its/tokenizer\.json: its normalizer makes a text more than 20 times"):
            Tokenizer(pipeline, "its/tokenizer.json")


def test_an_endless_expression_ends_in_a_message(trained: Tokenizer, capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = Tokenizer(damaged(trained, *REPLACE, value={"Regex": "(x+x+)+y"}), "its/tokenizer.json")
    with pytest.raises(InputError, match=r"its/tokenizer\.json: the tokenizers library stopped at a text"):
        tokenizer.tokenize("x" * 40)
    capfd.readouterr()  # the library's own words about it


# ---- hostile text

ALTERNATING = "\u0301\u0327" * 200_000  # classes 230 and 202: sorting them by insertion takes minutes


def test_long_runs_of_marks_are_normalized_at_once() -> None:
    for form in ("NFC", "NFD"):
        text = normalize(form, "e" + ALTERNATING)
        assert collections.Counter(unicodedata.normalize("NFD", text[:200])) <= collections.Counter("e" + ALTERNATING)
        assert len(text) in (400_000, 400_001)
    for text in ("", "abc", "é", "e\u0301" * 300, KOREAN, NFD_KOREAN, "─" * 500 + "e\u0301", "e" + ALTERNATING[:250]):
        assert normalize("NFC", text) == unicodedata.normalize("NFC", text)
        assert normalize("NFD", text) == unicodedata.normalize("NFD", text)


def test_composed_text_has_the_way_back() -> None:
    """For any text: NFC, every character made of a stretch of the given text, in order, nothing left out."""
    blocks = ((0x20, 0x250), (0x300, 0x370), (0x900, 0xA00), (0xD80, 0xE00), (0xF40, 0xF90), (0x1100, 0x1200))
    blocks += ((0xAC00, 0xAC40), (0xFB1D, 0xFB50))
    pool = [*(chr(i) for a, b in blocks for i in range(a, b)), "\u212b", "\u2126", "\u0344"]
    rng = random.Random(1)
    for _ in range(3000):
        text = "".join(rng.choices(pool, k=rng.randint(0, 7)))
        found = compose(text)
        assert found.text == unicodedata.normalize("NFC", text)
        if found.begin is not None and found.end is not None:
            begin, end = found.begin.tolist(), found.end.tolist()
            assert begin == sorted(begin) and begin[0] == 0 and begin[-1] == end[-1] == end[-2] == len(text)
            assert all(a < b for a, b in zip(begin[:-1], end[:-1], strict=True))
    text = "한국 cafe\u0301, q\u0323\u0307"
    apart = compose(unicodedata.normalize("NFD", text))
    assert apart.text == unicodedata.normalize("NFC", text)
    assert [apart.span(*span) for span in ((0, 1), (1, 2), (0, 7), (8, 9), (5, 5))] == [
        (0, 3),
        (3, 6),
        (0, 12),
        (13, 14),
        (9, 9),
    ]
    assert compose("e" + ALTERNATING).text == normalize("NFC", "e" + ALTERNATING)

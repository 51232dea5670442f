"""Every key of the settings files of other software is read as transformers reads it, without effect, or refused.

FOLDERS are tokenizers as transformers writes them and as well-known public folders have them, in small.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers, processors

from bertworks.apps.doctor.folders import differing_vocab
from bertworks.checkpoint.folder import check_size
from bertworks.checkpoint.metadata import input_length
from bertworks.files import InputError
from bertworks.model.config import ModelConfig
from bertworks.tasks.contexts import tokenize_contexts
from bertworks.tokenizer import Tokenizer, settings

T = pytest.importorskip("transformers")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyzKNY0123456789.,()[]/!"]
WORDS = ["kim", "Kim", "lives", "in", "new", "naive", "na\u00efve", "\u795e\u5948\u5ddd", "\u795e", "\u5948"]
WORDPIECE = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS, "\u5ddd", "##\u5948"]
TEXTS = [
    "Kim lives in New York, 12 (new) cats.",
    "na\u00efve KIM [E1] kim [/E1] in  \u795e\u5948\u5ddd, covid19 covid",
    " covidx [e1]kim a[E1]b Covid",
    "",
]
Write = Callable[[Path], Any]


def write(folder: Path, **files: Any) -> None:
    """Files of JSON by name without the ending, and vocab.txt from `vocab`."""
    folder.mkdir(exist_ok=True, parents=True)
    vocab = files.pop("vocab", None)
    if vocab is not None:
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def by_hand(config: Any = None, tokenizer_config: Any = None, vocab: Any = WORDPIECE, **files: Any) -> Write:
    """A folder with vocab.txt, as public ones have it."""
    config = {"model_type": "bert", "vocab_size": len(vocab), "hidden_size": 8, **(config or {})}
    found = {"config": config, "tokenizer_config": tokenizer_config, "vocab": vocab, **files}
    return lambda folder: write(folder, **{name: value for name, value in found.items() if value is not None})


def fast(library: tokenizers.Tokenizer, kind: str, config: Any = None, **more: Any) -> Write:
    """Save PreTrainedTokenizerFast around a pipeline, with the config.json of a model type."""

    def save(folder: Path) -> None:
        write(folder, config={"model_type": kind, **(config or {})})
        T.PreTrainedTokenizerFast(tokenizer_object=library, **more).save_pretrained(folder)

    return save


def saved(tokenizer: Any, kind: str, **config: Any) -> Write:
    """Save a tokenizer of transformers; `tokenizer` makes it from a folder."""

    def save(folder: Path) -> None:
        write(folder / "from", vocab=WORDPIECE)
        tokenizer(folder / "from").save_pretrained(folder)
        write(folder, config={"model_type": kind, **config})

    return save


def bert(folder: Path, name: str = "BertTokenizer", **settings: Any) -> Any:
    return getattr(T, name)(vocab=str(folder / "vocab.txt"), **settings)


def with_tokens(tokenizer: Any, *tokens: Any, special: tuple[str, ...] = ()) -> Any:
    tokenizer.add_tokens([*tokens])
    tokenizer.add_special_tokens({"extra_special_tokens": [*special]})
    return tokenizer


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
ROLES = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
BPE = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *BYTES, "in", "\u0120in", "<mask>"])}
MERGES = [("i", "n"), ("\u0120", "in")]
PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
PIECES += [(letter, -5.0 - i / 10) for i, letter in enumerate([*LETTERS, *"CILMOZ[]"]) if letter not in "[]" or i > 46]
PIECES += [("\u2581in", -3.0), ("\u2581Kim", -3.0), ("<mask>", 0.0)]
CAMEMBERT = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
CAMEMBERT += [("\u00ef", -3.0), *PIECES[4:]]
ALBERT = [(name, 0.0) for name in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] + PIECES[4:-1]


def roberta(**settings: Any) -> Any:
    return T.RobertaTokenizer(vocab=dict(BPE), merges=list(MERGES), **settings)


def byte_level(prefix: bool = False, before: Any = (), template: bool = False) -> tokenizers.Tokenizer:
    """Byte-level BPE with pre-tokenizers before ByteLevel."""
    library = tokenizers.Tokenizer(models.BPE(dict(BPE), MERGES, fuse_unk=False))
    steps = [*before, pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
    library.pre_tokenizer = pre_tokenizers.Sequence(steps) if before else steps[0]
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=prefix)
    if template:
        names = {"special_tokens": [("<s>", 0), ("</s>", 2)]}
        library.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", **names)
    library.add_special_tokens([*ROLES.values()])
    return library


def unigram(name: str, **settings: Any) -> Any:
    return getattr(T, name)(vocab=list(PIECES), **settings)


OLD = {"do_lower_case": False, "model_max_length": 512}
TOKENS = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))
E1 = ("[E1]", "[/E1]")
DECODER = {str(i): {"content": text, "special": True, "normalized": False} for i, text in enumerate(SPECIALS)}
FOLDERS: dict[str, Write] = {
    "bert uncased": saved(bert, "bert"),
    "bert cased": saved(lambda f: bert(f, do_lower_case=False, model_max_length=64), "bert"),
    "bert, accents": saved(lambda f: bert(f, strip_accents=False), "bert", problem_type="single_label_classification"),
    "bert, chinese words": saved(lambda f: bert(f, tokenize_chinese_chars=False), "bert"),
    "bert, added": saved(lambda f: with_tokens(bert(f), "covid19", special=E1), "bert", id2label={"0": "a"}),
    "distilbert": saved(lambda f: bert(f, "DistilBertTokenizer"), "distilbert"),
    "roberta": saved(lambda f: roberta(), "roberta"),
    "roberta, prefix": saved(lambda f: roberta(add_prefix_space=True, trim_offsets=False), "roberta"),
    "xlm-roberta": saved(lambda f: unigram("XLMRobertaTokenizer"), "xlm-roberta"),
    "camembert": saved(lambda f: T.CamembertTokenizer(vocab=list(CAMEMBERT)), "camembert"),
    "albert": saved(lambda f: T.AlbertTokenizer(vocab=list(ALBERT)), "albert"),
    "modernbert": fast(byte_level(template=True), "modernbert", **ROLES),
    "gpt2 class": lambda f: (
        fast(byte_level(), "roberta", **ROLES)(f),
        write(f, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", "errors": "replace", **ROLES}),
    ),
    "google": by_hand(
        tokenizer_config={"do_lower_case": True}, config={"directionality": "bidi", "pooler_type": "first"}
    ),
    "legal-bert": by_hand(
        {"output_past": True, "attention_probs_dropout_prob": 0.1},
        {"do_lower_case": True, "special_tokens_map_file": None, "full_tokenizer_file": None, **TOKENS},
    ),
    "klue": by_hand(
        {"position_embedding_type": "absolute", "use_cache": True, "gradient_checkpointing": False},
        {**OLD, **TOKENS, "do_basic_tokenize": True, "never_split": None, "tokenizer_class": "BertTokenizer"},
        special_tokens_map={**TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"},
    ),
    "e5 and bge": by_hand(
        {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "classifier_dropout": None},
        {"added_tokens_decoder": DECODER, "do_lower_case": True, "clean_up_tokenization_spaces": True, **TOKENS},
    ),
}
FOREIGN: dict[str, tuple[Write, str]] = {
    "kobert": (by_hand(tokenizer_config={**OLD, "tokenizer_class": "KoBertTokenizer"}), "tokenizer_class = 'KoBert"),
    "kobert, no class": (by_hand(vocab=[*SPECIALS, "\u2581na", "\u2581nun", "a"], tokenizer_config=OLD), r"U\+2581"),
    "kobert, program": (
        by_hand(tokenizer_config={**OLD, "auto_map": {"AutoTokenizer": ["tokenization_kobert.KoBertTokenizer", None]}}),
        "auto_map names the program",
    ),
    "japanese": (
        by_hand({"tokenizer_class": "BertJapaneseTokenizer"}, OLD),
        r"config.json: tokenizer_class = 'BertJapaneseTokenizer'",
    ),
    "another kind": (
        by_hand(tokenizer_config={**OLD, "tokenizer_class": "RobertaTokenizer"}),
        "vocabulary is wordpiece",
    ),
    "added tokens beside a vocab.txt": (
        by_hand(tokenizer_config=OLD, added_tokens={"covid": len(WORDPIECE)}),
        "the added token 'covid' is not in the vocabulary.*as a fast tokenizer",
    ),
    "a special token by name": (
        by_hand(tokenizer_config={**OLD, "bos_token": {"content": "[E1]"}}),
        "token '\\[E1\\]' is not",
    ),
}


def compared(folder: Path, ours: Tokenizer | None = None) -> None:
    """Ids, type ids and offsets of our tokenizer and of transformers' are equal; literal special tokens aside."""
    theirs, ours = T.AutoTokenizer.from_pretrained(folder), ours or Tokenizer.load(folder)
    for text in TEXTS:
        one, two = theirs(text, return_offsets_mapping=True), ours.encode(text)
        assert two.ids == one.input_ids, (text, two.tokens, theirs.convert_ids_to_tokens(one.input_ids))
        assert ours.ids_of([text])[0] == one.input_ids[1:-1]
        for mine, (start, end) in zip(two.offsets, one.offset_mapping, strict=True):
            assert text[slice(*mine)] == text[start:end].strip(" "), (text, mine, (start, end))
        pair = theirs(text, TEXTS[0])
        assert ours.encode(text, TEXTS[0]).ids == pair.input_ids
        types = pair.get("token_type_ids", [0] * len(pair.input_ids))
        assert ours.encode(text, TEXTS[0]).type_ids == types or "token_type_ids" not in pair


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    FOLDERS[name](tmp_path)
    ours = Tokenizer.load(tmp_path)
    compared(tmp_path, ours)
    again = pickle.loads(pickle.dumps(ours))
    assert [again.encode(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]
    ours.save(tmp_path / "saved")
    write(tmp_path / "saved", config=json.loads((tmp_path / "config.json").read_text()))
    back = Tokenizer.load(tmp_path / "saved")
    assert [back.encode(text, "a") for text in TEXTS] == [ours.encode(text, "a") for text in TEXTS]
    compared(tmp_path / "saved", back)


@pytest.mark.parametrize("name", FOREIGN)
def test_rules_of_other_software_are_refused_by_name(name: str, tmp_path: Path) -> None:
    make, message = FOREIGN[name]
    make(tmp_path)
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


VALUES = (True, False, 3, "x", ["x"], {"x": 1})  # transformers refuses some of them for some keys


@pytest.mark.parametrize("key", sorted(settings.ONLY))
def test_a_setting_that_is_not_computed_is_refused_by_name(key: str, tmp_path: Path) -> None:
    allowed = (settings.ONLY)[key]
    by_hand(tokenizer_config={**OLD, key: allowed[0]})(tmp_path)
    compared(tmp_path)
    for value in VALUES:
        by_hand(tokenizer_config={**OLD, key: value})(tmp_path)
        if value not in allowed:
            with pytest.raises(InputError, match=rf"tokenizer_config.json: {key} = .*; expected"):
                Tokenizer.load(tmp_path)


CONTRADICTIONS = [
    ("bert uncased", {"do_lower_case": False}),
    ("bert cased", {"do_lower_case": True}),
    ("bert uncased", {"strip_accents": False}),
    ("bert, accents", {"strip_accents": True}),
    ("bert uncased", {"tokenize_chinese_chars": False}),
    ("bert, chinese words", {"tokenize_chinese_chars": True}),
]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("name", "rules"), CONTRADICTIONS)
def test_settings_that_contradict_tokenizer_json_are_refused(
    name: str, rules: Any, named: bool, tmp_path: Path
) -> None:
    """Where a class is named that rebuilds the rules, or none, but a model type; not with PreTrainedTokenizerFast."""
    FOLDERS[name](tmp_path)
    before = json.loads((tmp_path / "tokenizer_config.json").read_text())
    class_ = {"tokenizer_class": before.pop("tokenizer_class")} if named else {}
    write(tmp_path, tokenizer_config=before | class_ | rules)
    with pytest.raises(InputError, match=f"{next(iter(rules))} = .*, but tokenizer.json says"):
        Tokenizer.load(tmp_path)
    write(tmp_path, tokenizer_config=before | rules | {"tokenizer_class": "PreTrainedTokenizerFast"})
    compared(tmp_path)


FLAGS = [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": False}, {"special": True}]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "xlm-roberta"])
def test_added_tokens_are_found_as_in_transformers(kind: str, flags: dict[str, bool], tmp_path: Path) -> None:
    token = AddedToken("covid", **flags)
    library = byte_level(template=True)
    library.add_tokens([token])
    makers = {
        "bert": saved(lambda f: with_tokens(bert(f), token), "bert"),
        "roberta": saved(lambda f: with_tokens(roberta(), token), "roberta"),
        "xlm-roberta": saved(lambda f: with_tokens(unigram("XLMRobertaTokenizer"), token), "xlm-roberta"),
        "modernbert": fast(library, "modernbert", **ROLES),
    }
    makers[kind](tmp_path)
    ours = Tokenizer.load(tmp_path)
    number = ours.vocab.index("covid")
    assert number in ours.ids_of(["in covid in"])[0] and not ours.continuation[number]
    assert ours.readable(number) == "covid"
    compared(tmp_path, ours)


@pytest.mark.parametrize(
    "token", [{"single_word": True}, {"lstrip": True}, {"normalized": True}, {"special": False}, {"content": "[E3]"}]
)
def test_added_tokens_that_contradict_tokenizer_json_are_refused(token: dict[str, Any], tmp_path: Path) -> None:
    FOLDERS["bert, added"](tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    number = len(WORDPIECE)
    added = {
        **DECODER,
        str(number): {"content": "covid19", "special": False, "normalized": True},
        **{str(number + i): {"content": text, "special": True, "normalized": False} for i, text in enumerate(E1, 1)},
    }
    write(tmp_path, tokenizer_config=settings | {"added_tokens_decoder": added})
    compared(tmp_path)
    added[str(number + 1)] |= token
    write(tmp_path, tokenizer_config=settings | {"added_tokens_decoder": added})
    with pytest.raises(InputError, match=r"the added token .* is not in the vocabulary, or is another one there"):
        Tokenizer.load(tmp_path)
    write(tmp_path, tokenizer_config=OLD | {"do_lower_case": True}, added_tokens={"[E1]": number})
    with pytest.raises(InputError, match="added token"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        {"cls_token": "<s>", "sep_token": "<end>", "mask_token": "<blank>", "unk_token": "<unk>"},
        {"cls_token": "<s>"},
        {"cls_token": "[SEP]"},
        {"sep_token": "<end>", "pad_token": "<s>"},
    ],
)
def test_special_tokens_under_other_names(names: dict[str, str], tmp_path: Path) -> None:
    """Both usual names may be in a vocabulary; the settings say which has the role. A vocab.txt has BERT's names."""
    vocab = [*WORDPIECE, "<s>", "<end>", "<blank>", "<unk>"]
    saved(lambda f: (write(f, vocab=vocab), bert(f, **names))[1], "bert")(tmp_path)
    theirs, ours = T.AutoTokenizer.from_pretrained(tmp_path), Tokenizer.load(tmp_path)
    for role in ("cls", "sep", "mask", "pad", "unk"):
        assert getattr(ours, f"{role}_id") == getattr(theirs, f"{role}_token_id"), role
    compared(tmp_path, ours)
    ours.save(tmp_path / "saved")
    for again in (Tokenizer.load(tmp_path / "saved"), pickle.loads(pickle.dumps(ours))):
        assert again.roles == ours.roles and again.encode("Kim", "Kim") == ours.encode("Kim", "Kim")
    (tmp_path / "tokenizer.json").unlink()
    write(tmp_path, vocab=vocab, tokenizer_config={**OLD, **names})
    with pytest.raises(InputError, match=r"its (model.unk_token|post_processor)"):
        Tokenizer.load(tmp_path)


ORDERS = {
    "first letters": byte_level(True, [pre_tokenizers.WhitespaceSplit()]),
    "punctuation": byte_level(True, [pre_tokenizers.Punctuation()]),
    "digits": byte_level(False, [pre_tokenizers.Digits(individual_digits=True)]),
    "template": byte_level(template=True),
    "prefix": byte_level(True),
}


@pytest.mark.parametrize("name", ORDERS)
def test_offsets_are_those_of_the_letters(name: str) -> None:
    """The library's post-processor cuts the first letter off where white space is split off before byte-level BPE."""
    ours = Tokenizer(ORDERS[name].to_str())
    for text in (*TEXTS, "\uc11c\uc6b8 \ub098\ub294", "in a line\nin  b"):
        encoding = ours.encode(text)
        for token, (start, end) in zip(encoding.tokens[1:-1], encoding.offsets[1:-1], strict=True):
            letters = bytes(_BYTE[char] for char in token.removeprefix("\u0120"))
            assert letters in text[start:end].encode(), (text, token, text[start:end])
            assert text[start:end] == text[start:end].strip(" ")


_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that byte-level BPE writes as themselves
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
_BYTE = {chr(byte): byte for byte in _SHOWN} | {chr(256 + i): byte for i, byte in enumerate(_HIDDEN)}


@pytest.mark.parametrize(
    ("length", "expected"),
    [({}, 512), ({"model_max_length": 128}, 128), ({"max_len": 64}, 64), ({"model_max_length": 1e30}, 512),
     ({"model_max_length": 10**30}, 512), ({"model_max_length": None}, 512), ({"model_max_length": 100.0}, 100)],
)  # fmt: skip
def test_the_longest_input(length: dict[str, Any], expected: int, tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config=length)
    assert input_length(tmp_path, 512) == expected
    write(tmp_path, tokenizer_config={"model_max_length": "128"})
    with pytest.raises(InputError, match="model_max_length = '128'; expected a number"):
        input_length(tmp_path, 512)


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_a_tokenizer_json_that_adds_no_special_tokens_is_refused(name: str, tmp_path: Path) -> None:
    FOLDERS["bert uncased"](tmp_path)
    pipeline = json.loads((tmp_path / "tokenizer.json").read_text())
    write(tmp_path, tokenizer=pipeline | {"post_processor": None}, tokenizer_config={**TOKENS, "tokenizer_class": name})
    assert T.AutoTokenizer.from_pretrained(tmp_path)("kim").input_ids == [WORDPIECE.index("kim")]
    with pytest.raises(InputError, match="has no post_processor"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("frame", ["template", "BertProcessing"])
def test_no_type_ids_where_the_inputs_have_none(frame: str, tmp_path: Path) -> None:
    FOLDERS["bert uncased"](tmp_path)
    if frame == "BertProcessing":
        pipeline = json.loads((tmp_path / "tokenizer.json").read_text())
        step = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
        write(tmp_path, tokenizer=pipeline | {"post_processor": step})
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    write(tmp_path, tokenizer_config={**TOKENS, "tokenizer_class": "PreTrainedTokenizerFast", **names})
    assert "token_type_ids" not in T.AutoTokenizer.from_pretrained(tmp_path)("a", "b")
    ours = Tokenizer.load(tmp_path)
    assert not any(ours.encode("a", "b").type_ids)
    ours.save(tmp_path / "saved")
    assert not any(Tokenizer.load(tmp_path / "saved").encode("a", "b").type_ids)


def test_added_tokens_elsewhere(tmp_path: Path) -> None:
    """vocab.txt may lack them; contexts of questions are read by words."""
    FOLDERS["bert, added"](tmp_path)
    write(tmp_path, vocab=WORDPIECE)
    ours = Tokenizer.load(tmp_path)
    assert not differing_vocab(tmp_path, ours)
    write(tmp_path, vocab=WORDPIECE[:-1])
    assert differing_vocab(tmp_path, ours)
    contexts = tokenize_contexts(ours, ["kim [E1] kim", "covid19"])
    assert [ours.vocab[i] for i in contexts.ids] == ["kim", "[E1]", "kim", "covid19"]
    with_tokens(T.AutoTokenizer.from_pretrained(tmp_path), "new york").save_pretrained(tmp_path)
    spaced = Tokenizer.load(tmp_path)  # a token of two words is none of the tokens of a word
    assert spaced.tokenize("new york") == ["new york"]
    assert "new york" not in [spaced.vocab[i] for i in tokenize_contexts(spaced, ["new york"]).ids]


def test_added_tokens_without_rows_are_named(tmp_path: Path) -> None:
    FOLDERS["bert, added"](tmp_path)
    rows = len(WORDPIECE) + 1
    with pytest.raises(InputError, match=rf"has {rows} rows, and none for the added tokens \[E1\], \[/E1\]"):
        check_size(Tokenizer.load(tmp_path), ModelConfig(rows), "")

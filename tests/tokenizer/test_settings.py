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

from bertworks.checkpoint import hf, pooling
from bertworks.checkpoint.folder import load_tokenizer, save_folder
from bertworks.checkpoint.metadata import input_length
from bertworks.files import InputError
from bertworks.inference import Predictor
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.tokenizer import Tokenizer, settings
from support.spiece_files import field, model_bytes

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


def fast(library: tokenizers.Tokenizer, kind: str, config: Any = None, **more: Any) -> None:
    """Save PreTrainedTokenizerFast around a pipeline, with the config.json of a model type."""

    def save(folder: Path) -> None:
        write(folder, config={"model_type": kind, **(config or {})})
        T.PreTrainedTokenizerFast(tokenizer_object=library, **more).save_pretrained(folder)

    return save  # type: ignore[return-value]


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
GENERATION = {"do_sample": False, "num_beams": 1, "top_k": 50, "length_penalty": 1.0, "output_past": True}
FOLDERS: dict[str, Write] = {
    "bert uncased": saved(bert, "bert"),
    "bert cased": saved(lambda f: bert(f, do_lower_case=False, model_max_length=64), "bert"),
    "bert, accents": saved(lambda f: bert(f, strip_accents=False), "bert", problem_type="single_label_classification"),
    "bert, chinese words": saved(lambda f: bert(f, tokenize_chinese_chars=False), "bert"),
    "bert, added": saved(lambda f: with_tokens(bert(f), "covid19", special=E1), "bert", id2label={"0": "a"}),
    "bert cased, added": saved(lambda f: with_tokens(bert(f, do_lower_case=False), "Covid", special=E1), "bert"),
    "bert, single words": saved(
        lambda f: with_tokens(bert(f), AddedToken("covid", single_word=True, lstrip=True, rstrip=True)), "bert"
    ),
    "bert, named tokens": saved(lambda f: bert(f, bos_token="[E1]", eos_token="[/E1]"), "bert"),
    "bert, no segments": saved(lambda f: bert(f, model_input_names=["input_ids", "attention_mask"]), "bert"),
    "bert, left padding": saved(lambda f: bert(f, padding_side="left"), "bert"),
    "distilbert": saved(lambda f: bert(f, "DistilBertTokenizer"), "distilbert"),
    "electra class": saved(lambda f: bert(f, "ElectraTokenizer"), "bert"),
    "roberta": saved(lambda f: roberta(), "roberta"),
    "roberta, prefix": saved(lambda f: roberta(add_prefix_space=True, trim_offsets=False), "roberta"),
    "roberta, added": saved(lambda f: with_tokens(roberta(), "covid19", special=E1), "roberta"),
    "xlm-roberta": saved(lambda f: unigram("XLMRobertaTokenizer"), "xlm-roberta"),
    "xlm-roberta, added": saved(lambda f: with_tokens(unigram("XLMRobertaTokenizer"), special=E1), "xlm-roberta"),
    "camembert": saved(lambda f: unigram("CamembertTokenizer"), "camembert"),
    "modernbert": fast(byte_level(template=True), "modernbert", **ROLES),
    "modernbert, added": fast(byte_level(template=True), "modernbert", **ROLES, extra_special_tokens=[*E1]),
    "gpt2 class": lambda f: (
        fast(byte_level(), "roberta", **ROLES)(f),
        write(f, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", "errors": "replace", **ROLES}),
    ),
    "google": by_hand(tokenizer_config={"do_lower_case": True}, config={"directionality": "bidi", "pooler_type": "first"}),
    "multilingual": by_hand(tokenizer_config=OLD, config={"pooler_fc_size": 768, "type_vocab_size": 2}),
    "biobert": by_hand(tokenizer_config={**OLD, "tokenizer_class": "BertTokenizer"}, special_tokens_map=TOKENS),
    "legal-bert": by_hand(
        {"output_past": True, "attention_probs_dropout_prob": 0.1},
        {"do_lower_case": True, "special_tokens_map_file": None, "full_tokenizer_file": None, **TOKENS},
    ),
    "klue": by_hand(
        {"position_embedding_type": "absolute", "use_cache": True, "gradient_checkpointing": False},
        {**OLD, **TOKENS, "do_basic_tokenize": True, "never_split": None, "tokenizer_class": "BertTokenizer"},
        special_tokens_map={**TOKENS, "bos_token": "[CLS]", "eos_token": "[SEP]"},
    ),
    "kr-bert": by_hand(tokenizer_config={**OLD, "max_len": 512, "init_inputs": []}),
    "minilm": by_hand(
        {"_name_or_path": "old", "torch_dtype": "float32", "finetuning_task": "sts", "num_labels": 2},
        {"do_lower_case": True, **TOKENS, "clean_up_tokenization_spaces": True, "name_or_path": "nreimers", **OLD},
    ),
    "e5 and bge": by_hand(
        {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "classifier_dropout": None},
        {"added_tokens_decoder": DECODER, "do_lower_case": True, "clean_up_tokenization_spaces": True, **TOKENS},
    ),
    "slow, added": by_hand(
        tokenizer_config={"do_lower_case": True, "name_or_path": "x", "wordpieces_prefix": "##"},
        added_tokens={"covid19": len(WORDPIECE), "[/E1]": len(WORDPIECE) + 2, "[E1]": len(WORDPIECE) + 1},
        special_tokens_map={**TOKENS, "additional_special_tokens": [*E1]},
    ),
    "4.x, added": by_hand(
        GENERATION,
        {
            "added_tokens_decoder": {
                **DECODER,
                str(len(WORDPIECE)): {"content": "covid", "normalized": True, "lstrip": True, "special": False},
            },
            "additional_special_tokens": [],
            "do_lower_case": False,
            **TOKENS,
        },
    ),
    "old flags": by_hand(
        tokenizer_config=OLD,
        special_tokens_map={"mask_token": {"content": "[MASK]", "lstrip": False, "normalized": True}},
    ),
    "own metadata": by_hand({"my_note": {"a": 1}}, {**OLD, "my_note": "b"}),
}
UNKNOWN = {"own metadata": {"my_note"}}  # all other keys of FOLDERS are in a table
FOREIGN: dict[str, tuple[Write, str]] = {
    "kobert": (by_hand(tokenizer_config={**OLD, "tokenizer_class": "KoBertTokenizer"}), "tokenizer_class = 'KoBert"),
    "kobert, no class": (by_hand(vocab=[*SPECIALS, "\u2581na", "\u2581nun", "a"], tokenizer_config=OLD), r"U\+2581"),
    "kobert, program": (
        by_hand(tokenizer_config={**OLD, "auto_map": {"AutoTokenizer": ["tokenization_kobert.KoBertTokenizer", None]}}),
        "auto_map names the program",
    ),
    "legacy program": (by_hand(tokenizer_config={**OLD, "auto_map": ["own.Own", None]}), "auto_map names"),
    "japanese": (
        by_hand({"tokenizer_class": "BertJapaneseTokenizer"}, OLD),
        r"config.json: tokenizer_class = 'BertJapaneseTokenizer'",
    ),
    "japanese, mecab": (by_hand(tokenizer_config={**OLD, "word_tokenizer_type": "mecab"}), "word_tokenizer_type = 'mecab'"),
    "japanese, characters": (
        by_hand(tokenizer_config={**OLD, "subword_tokenizer_type": "character"}),
        "subword_tokenizer_type = 'character'",
    ),
    "character": (by_hand(tokenizer_config={**OLD, "tokenizer_class": "CanineTokenizer"}), "'CanineTokenizer'"),
    "another kind": (by_hand(tokenizer_config={**OLD, "tokenizer_class": "RobertaTokenizer"}), "vocabulary is wordpiece"),
    "ids with a gap": (
        by_hand(tokenizer_config=OLD, added_tokens={"covid": len(WORDPIECE) + 1}),
        f"'covid' has the id {len(WORDPIECE) + 1}; expected {len(WORDPIECE)}",
    ),
    "xlm-r without tokenizer.json": (
        lambda f: (write(f, config={"model_type": "xlm-roberta"}), (f / "a.model").write_bytes(model_bytes(_PROTO, field(3, 1)))),
        "XLMRobertaTokenizer without a tokenizer.json",
    ),
    "no frame": (
        fast(byte_level(), "modernbert", **ROLES),  # its post_processor is taken out below
        "post_processor",
    ),
}
_PROTO = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("\u2581a", -1.0, 1)]


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
    assert bool(ours.note) == (name in UNKNOWN) and all(key in ours.note for key in UNKNOWN.get(name, ()))


def keys_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The settings of a folder by file; of modules.json those of all modules in one."""
    found = {}
    for file in folder.rglob("*.json"):
        content = json.loads(file.read_text())
        if file.name in ("config.json", "tokenizer_config.json", "special_tokens_map.json") or isinstance(content, list):
            found[str(file.relative_to(folder))] = {k: v for one in content for k, v in one.items()} if isinstance(content, list) else content
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_every_key_is_in_a_table(name: str, tmp_path: Path) -> None:
    FOLDERS[name](tmp_path)
    tables = {"config.json": hf, "tokenizer_config.json": settings, "special_tokens_map.json": settings}
    for file, table in tables.items():
        known = {*table.READ, *table.WITHOUT_EFFECT, *table.ONLY, *getattr(table, "ONLY_WITHOUT_PIPELINE", ())}
        path = tmp_path / file
        found = json.loads(path.read_text()) if path.exists() else {}
        assert found.keys() - known == (UNKNOWN.get(name, set()) if file != "special_tokens_map.json" else set()), file


@pytest.mark.parametrize("table", [hf, settings])
def test_a_key_is_in_one_table(table: Any) -> None:
    tables = [table.READ, table.WITHOUT_EFFECT, table.ONLY, getattr(table, "ONLY_WITHOUT_PIPELINE", {})]
    assert sum(map(len, tables)) == len({*tables[0], *tables[1], *tables[2], *tables[3]})


@pytest.mark.parametrize("name", FOREIGN)
def test_rules_of_other_software_are_refused_by_name(name: str, tmp_path: Path) -> None:
    make, message = FOREIGN[name]
    make(tmp_path)
    if name == "no frame":
        pipeline = json.loads((tmp_path / "tokenizer.json").read_text())
        write(tmp_path, tokenizer=pipeline | {"post_processor": {"type": "ByteLevel", "add_prefix_space": False,
              "trim_offsets": True, "use_regex": True}})  # fmt: skip
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


VALUES = (True, False, 3, "x", ["x"], {"x": 1})  # transformers refuses some of them for some keys
SPECIAL_VALUES = {"padding_side": ("left", "right"), "cache_dir": ("/nowhere",)}


@pytest.mark.parametrize("key", sorted(settings.WITHOUT_EFFECT))
def test_a_key_without_effect_has_none_in_transformers(key: str, tmp_path: Path) -> None:
    """With a value that transformers accepts, its ids stay the same; ours do with any value."""
    tried = 0
    for value in SPECIAL_VALUES.get(key, VALUES):
        by_hand(tokenizer_config={"do_lower_case": True, key: value})(tmp_path)
        ours = Tokenizer.load(tmp_path)
        assert not ours.note
        try:
            T.AutoTokenizer.from_pretrained(tmp_path)
        except Exception:  # of any kind, for a value of another type
            continue
        compared(tmp_path, ours)
        tried += 1
    assert tried

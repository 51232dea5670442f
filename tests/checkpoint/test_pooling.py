"""What a sentence-transformers folder says may be damaged or hostile; parity has tests of its own."""

import json
import re

import pytest

from bertworks.checkpoint.pooling import MODULES, ONLY, Pooling, read_pooling, similarity_note, write_pooling
from bertworks.files import InputError

LONG = "x" * 100_000
TYPES = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling")]


def modules(*paths):
    return [{**kind, "path": path} for kind, path in zip(TYPES, paths, strict=True)]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (MODULES, [{"type": LONG, "path": ""}], "its modules are xxx"),
        (MODULES, [*modules("", "1"), {"type": "sentence_transformers.models.Dense", "path": "2"}], "models.Dense"),
        (MODULES, [{"type": "my_code.Transformer", "path": ""}, modules("", "1")[1]], "my_code.Transformer"),
        (MODULES, [{"type": "Transformer", "path": "../other"}, {"type": "Pooling", "path": "1"}], "path '../other'"),
        (MODULES, [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": ".."}], "path '..'"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean"] * 10_000}, "pooling = ['mean', "),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling = ['cls', 'mean']; expected one of cls"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "pooling = ['mean",
        ),
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "pooling = ['pooling_mode_lasttoken']"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "no field prompts"),
        ("1_Pooling/config.json", {f"pooling_mode_{LONG}": True}, "pooling = ['pooling_mode_xxx"),
        ("sentence_bert_config.json", {"max_seq_length": LONG}, "max_seq_length = 'xxx"),
        ("config_sentence_transformers.json", {"default_prompt_name": "a", "prompts": "abc"}, "prompts = 'abc'"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "a", "prompts": {"b": "x"}},
            "expected the name of",
        ),
    ],
)
def test_hostile_settings_end_in_a_short_message_with_the_file(file, content, message, tmp_path):
    write_pooling(tmp_path, Pooling("cls"), 16)
    assert read_pooling(tmp_path) == (tmp_path, Pooling("cls"))
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_pooling(tmp_path)
    assert str(tmp_path / file) in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(("file", "key"), [(file, key) for file, only in ONLY.items() for key in only])
def test_settings_that_would_change_a_vector_are_refused(file, key, tmp_path):
    write_pooling(tmp_path, Pooling(), 16)
    (tmp_path / file).write_text(json.dumps({key: "x"}))
    with pytest.raises(InputError, match=f"{key} = 'x'; expected"):
        read_pooling(tmp_path)


def test_another_similarity_is_noted(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    assert "similarity_fn_name = 'dot'; rankings are by cosine" in similarity_note(tmp_path)

"""Texts that tokenizers are trained and tried on, and a saved tokenizer beside the one of transformers."""

import json

import pytest

KOREAN = "한국어 위키백과는 누구나 고칠 수 있는 백과사전이다. 서울은 대한민국의 수도이다."
ENGLISH = "The naïve café owner's résumé lists 12 unbelievable, re-opened cafés; Zürich has more than 40."


def same_in_transformers(trained, folder, model_type: str | None, texts) -> None:
    """Save a tokenizer, as that of a model of this type; transformers opens it and gives our ids, of pairs too."""
    transformers = pytest.importorskip("transformers")
    trained.save(folder, model_max_length=128)
    if model_type:
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert (theirs.mask_token_id, theirs.pad_token_id, theirs.model_max_length) == (
        trained.mask_id, trained.pad_id, 128,
    )  # fmt: skip
    for text in texts:
        assert theirs(text).input_ids == trained.encode(text, specials=True).ids
        ours, pair = trained.encode(text, KOREAN, specials=True), theirs(text, KOREAN, return_token_type_ids=True)
        assert (pair.input_ids, pair.token_type_ids) == (ours.ids, ours.type_ids)
        assert ("token_type_ids" in theirs(text, KOREAN)) == trained.layout.segments

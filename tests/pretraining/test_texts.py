"""A vocabulary made on the way to a store is used again only for the settings that it was made with."""

import pytest

from bertworks.files import InputError
from bertworks.pretraining import texts as module
from bertworks.pretraining.texts import build_from_texts
from bertworks.tokenizer import Tokenizer, TokenizerConfig

WORDS = "우리는 오늘 아침에 학교에 갔다. 날씨가 아주 좋았다. 친구들과 함께 책을 읽었다."


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(4):
        (tmp_path / "texts" / f"{i}.txt").write_text(f"{WORDS}\nBERT {i} 번째 글이다.\n" * 5, encoding="utf-8")
    return [str(tmp_path / "texts")]


def test_the_same_command_again_continues_and_other_settings_are_refused(texts, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # between the record and the tokenizer
        patch.setattr(module.Tokenizer, "train", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        build_from_texts(texts, tmp_path / "store", 150, "en")
    made = build_from_texts(texts, tmp_path / "store", 200, "ko")
    assert not made.lowercase and Tokenizer.load(tmp_path / "store-tokenizer").fingerprint == made.fingerprint
    assert (tmp_path / "store/manifest.json").exists()
    before = (tmp_path / "store-tokenizer/tokenizer.json").read_bytes()
    message = (
        r"store-tokenizer: trained with language 'ko', vocab_size 200; this command has language 'en', vocab_size 150"
    )
    with pytest.raises(InputError, match=rf"{message}.* or remove .*store and .*store-tokenizer$"):
        build_from_texts(texts, tmp_path / "store", 150, "en")
    assert (tmp_path / "store-tokenizer/tokenizer.json").read_bytes() == before
    assert build_from_texts(texts, tmp_path / "store", 200, "ko").fingerprint == made.fingerprint


def test_a_tokenizer_of_somebody_else_is_kept(texts, tmp_path):
    folder = tmp_path / "store-tokenizer"
    Tokenizer.train([WORDS], TokenizerConfig(vocab_size=120)).save(folder)
    before = (folder / "tokenizer.json").read_bytes()
    with pytest.raises(
        InputError, match=r"store-tokenizer: trained with texts .*; give the earlier settings or another"
    ):
        build_from_texts(texts, tmp_path / "store", 200, "ko")
    assert (folder / "tokenizer.json").read_bytes() == before

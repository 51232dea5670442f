"""What cuts text into sentences: Korean rules, lines; languages and the rules that they borrow."""

import random
import textwrap

import pytest
import sentencex

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import Document, InputOptions, read_documents
from bertworks.data.sentences import check_documents, split_sentences
from bertworks.files import InputError
from bertworks.tokenizer import Tokenizer, TokenizerConfig


@pytest.mark.parametrize(
    "sentences",
    [
        ["2014. 4. 11. 사망했다.", "값은 3.5이다.", "J. K. 롤링이 왔다."],
        ["1. 개요를 본다.", "2. 다음을 본다."],
        ['그는 "안녕하세요. 잘 지냈어요?"라고 물었다.', "나는 웃었다."],
        ["“그래.”", "그가 말했다."],
        ['"갔어?" 하고 물었다.', "‘왔다.’는 말이었다."],
        ["탑(889-910 A.D.) 은 높다.", "(사진은 없다.)", "끝이다."],
        ["좋았어요", "다시 볼래요", "최고입니다ㅠㅠ", "또 올게요"],
        ["재미없음", "다신 안 본다ㅋㅋ", "정말 그랬죠", "끝"],
        ["있었다 한다.", "가다 보니 늦었다", "그래서 뛰었다 하더라도 늦었다"],
        ["그렇게 본 사람도 많습니다만 아닙니다", "그러나"],
        ["합니까", "그러니까 된다.", "별 5개!!!", "추천"],
        ["상환 금액은 1. 원금 2. 이자 3. 비용 순으로 충당한다.", "끝이다."],
        ["다음을 더한다.", "1. 원금 2. 이자 3. 비용"],
        ["1. 원금은 갚는다.", "2. 이자는 낸다."],
        ["가. 원금 나. 이자 다. 비용을 더한다.", "끝이다."],
        ["평점은 1.", "다시는 안 본다."],
        ["정말 ㅡㅡ 별로네요 ㅡㅡ", "다시는 안 봐요."],
        ["짜증나요ㅡㅡ;", "돈 아까워요."],
        ["진짜 재밌어요 :)", "또 왔네요 ^_^", "좋았다. :D", "끝."],
        ["비율은 3:1 이다.", "목록은 (가) 와 (나) 이다."],
    ],
)
def test_korean_rules(sentences):
    assert split_sentences(" ".join(sentences), "ko") == sentences


def test_korean_sentences_without_space_between_them():
    assert split_sentences("느껴집니다.그리고 좋습니다미션은 끝났다...왜?아니", "ko") == [
        *("느껴집니다.", "그리고 좋습니다", "미션은 끝났다...", "왜?", "아니")
    ]


@pytest.mark.parametrize("text", ["그. " * 30_000, 'A. "' * 20_000, "(" * 60_000, "그" + "ㅋ" * 60_000, "1. " * 30_000])
def test_korean_rules_lose_nothing_of_long_paragraphs(text):
    """In time that grows with the length alone: a quadratic one would take minutes."""
    assert "".join("".join(split_sentences(text, "ko")).split()) == "".join(text.split())


def test_lines():
    assert split_sentences("하나. 둘.\n\n 셋  넷", "ko", "line") == ["하나. 둘.", "셋 넷"]


@pytest.mark.parametrize("language", ["", "english", "de_AT", "KO", "xx", "jp", "xx-invalid", "en-invalid"])
def test_unknown_language_codes_are_refused(language):
    with pytest.raises(InputError, match="not a language code; expected an ISO code"):
        BuildConfig(language=language)
    for code in ("ko", "de-AT", "zh-Hant-TW", "es-419", "ceb"):
        BuildConfig(language=code)


def test_hangul_with_the_rules_of_another_language_is_reported():
    korean = [Document("바다는 넓다. 산은 높다.", "a")] * 3
    assert "most letters are Hangul, and the language is 'en': give --language ko" in check_documents(korean)
    assert not [one for one in check_documents(korean, "ko") if "Hangul" in one]
    assert not [one for one in check_documents([Document("The sea 바다.", "a")] * 3) if "Hangul" in one]


def test_rules_of_its_own_differ_from_the_english_ones():
    text = "Он жил на ул. Ленина. Да."
    assert split_sentences(text, "ru") == [one.strip() for one in sentencex.segment("ru", text)]
    assert split_sentences(text, "ru-RU") == split_sentences(text, "tt") != split_sentences(text, "en")


# ---- the splitter of a store

LINES = InputOptions(documents="blank-line")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["하나 둘 셋 넷 좋았어요 또 볼게요."], TokenizerConfig(vocab_size=100))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"하나 {i} 좋았어요 둘 셋 넷. 또 볼게요 하나 {i}." for i in range(9)), encoding="utf-8")
    return path


def run(text, tokenizer, out, **settings):
    return build([text], tokenizer, out, BuildConfig(LINES, workers=1, allow_unknown=True, **settings), progress=False)


def test_the_manifest_names_the_splitter(text, tokenizer, tmp_path):
    found = {
        splitter: run(text, tokenizer, tmp_path / splitter, language="ko", splitter=splitter)
        for splitter in ("auto", "line")
    }
    assert [one["splitter"] for one in found.values()] == ["Korean rules 2", "line"]
    sentences = [sum(one["counts"][split]["sentences"] for split in ("train", "validation")) for one in found.values()]
    assert sentences == [27, 9]
    assert "splitter" not in found["auto"]["settings"] and found["line"]["settings"]["splitter"] == "line"


# ---- wrapped lines, lists and faces

KOREAN_TEXT = (
    "이 계약의 당사자는 상환 일정과 이자율을 서면으로 합의하며 어느 한쪽이 이를 어길 때에는 다른 쪽이 계약을 해지할 수 "
    "있다. 해지의 효력은 상대방에게 통지가 도달한 날부터 생기고 이미 지급한 금액은 돌려받지 못한다. 분쟁이 생기면 "
    "서울중앙지방법원을 관할 법원으로 한다."
)


CUTS = {
    "inside words": lambda text: [text[i : i + 30] for i in range(0, len(text), 30)],
    "inside words, without the blanks at the ends": lambda text: [
        text[i : i + 30].rstrip() for i in range(0, len(text), 30)
    ],
    "between words": lambda text: textwrap.wrap(text, 30),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=[*CUTS])
def test_wrapped_korean_lines_are_recognised_and_joined(cut, tmp_path):
    texts = [f"{word} {KOREAN_TEXT}" for word in ("첫째", "두 번째", "그다음", "넷째로", "마지막") * 2]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(cut(text)) for text in texts), encoding="utf-8")
    found = check_documents(read_documents([path]), "ko")
    assert any("the text looks wrapped; join them" in one for one in found)
    document, *_ = read_documents([path], InputOptions(paragraphs="blank-line"))
    assert document.text.split("\n") == texts
    assert not any("wrapped" in one for one in check_documents([document] * 2, "ko"))


URL = "https://example.org/" + "a" * 80


@pytest.mark.parametrize("strip", [str, str.rstrip, str.strip])
@pytest.mark.parametrize("width", [30, 40])
def test_words_stay_whole_if_one_line_is_longer_and_the_ends_of_lines_are_stripped(strip, width, tmp_path):
    words, choose = KOREAN_TEXT.split(), random.Random(0)
    texts = [" ".join(choose.choices(words, k=40)) for _ in range(20)]
    cut = ["\n".join(strip(text[i : i + width]) for i in range(0, len(text), width)) for text in texts]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join([f"{cut[0]}\n{URL}\n{cut[1]}", *cut[2:]]), encoding="utf-8")
    document, *_ = read_documents([path], InputOptions(paragraphs="blank-line"))
    assert document.text.split("\n") == [f"{texts[0]} {URL} {texts[1]}", *texts[2:]]

"""Near-duplicates in memory equal those that a comparison of all pairs finds."""

import random

import pytest

from bertworks.data.near_duplicates import FEWEST, duplicate_key, find_near_duplicates, word_shingles

WORDS = [a + b for a in "abcdefghij" for b in "klmnopqrst"]


def variants(count: int, words: int) -> list[str]:
    """Texts, and a version of each with some of its words replaced."""
    draw, out = random.Random(0), []
    for i in range(count):
        text = draw.choices(WORDS, k=words)
        out.append(" ".join(text))
        for place in draw.sample(range(words), 1 + i % 6):
            text[place] = draw.choice(WORDS)
        out.append(" ".join(text))
    draw.shuffle(out)
    return out


@pytest.mark.parametrize(("words", "threshold"), [(60, 0.8), (25, 0.8), (40, 0.6)])
def test_all_pairs_above_the_threshold_are_found(words, threshold):
    texts = variants(150, words)
    pairs = [{*zip(text.split(), text.split()[1:], strict=False)} for text in texts]
    similar = lambda i, j: len(pairs[i] & pairs[j]) / len(pairs[i] | pairs[j]) >= threshold  # noqa: E731
    first = {i: next((j for j in range(i) if similar(i, j)), None) for i in range(300)}
    expected = {i: j for i, j in first.items() if j is not None}
    rows = [word_shingles(text) for text in texts]
    assert 20 < len(expected) < 150 and find_near_duplicates(rows, rows, threshold) == expected
    crossed = {
        i: j for i in range(150) if (j := next((j for j in range(150) if similar(i, 150 + j)), None)) is not None
    }
    assert find_near_duplicates(rows[:150], rows[150:], threshold) == crossed


def test_short_texts_are_not_compared_and_keys_have_no_case():
    short, long = word_shingles("a b c d e f"), word_shingles("a b c d e f g")
    assert len(short) == FEWEST - 1 and not find_near_duplicates([short, short], [short], 0.8)
    assert find_near_duplicates([long], [long, long]) == {0: 0} and not find_near_duplicates([], [long])
    assert duplicate_key("The CAT, sat!") == duplicate_key("the cat sat") and duplicate_key(" ?! ") == "?!"
    assert duplicate_key("हिन्दी") == "हिन्दी"  # the vowel signs are parts of its word

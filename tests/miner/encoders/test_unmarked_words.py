"""Syllables of texts without diacritics get marked pieces; the same letters in other texts do not."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from miner.encoders.unmarked_words import MARK, UnmarkedWords

SYLLABLES = pa.array(["chung", "toi", "khong", "biet", "anh", "ay", "la", "ai", "the", "cat"], pa.large_string())


def mark(texts: list[str]) -> list[str]:
    words = [text.split(" ") for text in texts]
    unique = sorted({word for row in words for word in row})
    rows = np.array([unique.index(word) for row in words for word in row], np.int32)
    bounds = np.cumsum([0, *map(len, words)]).astype(np.int32)
    marked, rows = UnmarkedWords(SYLLABLES).mark(pa.array(unique, pa.large_string()), rows, bounds)
    names = [marked[row].as_py() for row in rows]
    return [" ".join(names[start:end]) for start, end in itertools.pairwise(bounds)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Chung toi khong biet anh ay la ai.", "*Chung *toi *khong *biet *anh *ay *la *ai."),
        ("Chung toi khong biet anh Tom.", "*Chung *toi *khong *biet *anh Tom."),  # 5 of 6 long words
        ("Chung toi khong biet Mary Poppins 1964", "Chung toi khong biet Mary Poppins 1964"),  # 4 of 6
        ("Khong biet anh", "Khong biet anh"),  # too short
        ("Chúng tôi không biết anh ấy là ai.", "Chúng tôi không biết anh ấy là ai."),
        ("The cat sees la la la ai ai ai", "The cat sees la la la ai ai ai"),  # short words do not count
        ("", ""),
    ],
)
def test_words_of_texts_without_diacritics_are_marked(text: str, expected: str) -> None:
    assert mark([text]) == [expected.replace("*", MARK)]


def test_texts_do_not_affect_each_other() -> None:
    texts = ["anh ay", "Chung toi khong biet anh ay", "the cat la", "", "khong"]
    assert mark(texts) == [text if row != 1 else " ".join(MARK + word for word in text.split(" ")) for row, text in enumerate(texts)]

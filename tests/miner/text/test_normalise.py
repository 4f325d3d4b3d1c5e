"""Cleaning and ids, against answers written by hand and a slow reference that works character by character."""

import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miner.text.normalise import MAX_UNCHECKED_CHARS, clean, clean_all, sentence_id, sentence_ids

# Unicode's White_Space property, written out.
WHITE_SPACE = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(code) for code in range(0x2000, 0x200B)}
REMOVED = set("\u00ad\u200b\u2060\ufeff")

# Text with many more special characters than real text has.
special_text = st.text(
    st.one_of(st.sampled_from("ae\u0301\u0308 \t\r\n\x00\x1c\x7f\x85\xa0\u00ad\u200b\u200d\u2028\ufeff한"), st.characters(codec="utf-8"))
)


def reference(line: str) -> str:
    visible = "".join(character for character in line if character not in REMOVED)
    spaced = "".join(" " if character in WHITE_SPACE or unicodedata.category(character) == "Cc" else character for character in visible)
    # NFC turns a few spaces into other spaces, and nothing else into a space.
    composed = "".join(" " if character in WHITE_SPACE else character for character in unicodedata.normalize("NFC", spaced))
    return " ".join(word for word in composed.split(" ") if word)


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("plain text", "plain text"),
        ("  two\t tabs \r", "two tabs"),
        ("NUL\x00 and\x07bell", "NUL and bell"),
        ("no\xa0break\u2009thin\u3000wide", "no break thin wide"),
        ("next\x85line\u2028sep\x1cfs", "next line sep fs"),
        ("\ufeffmark and so\u00adft hy\u200bphen\u2060s", "mark and soft hyphens"),
        ("cafe\u0301", "caf\u00e9"),
        ("e\u200b\u0301", "\u00e9"),  # characters separated by an invisible mark are composed
        ("e\x00\u0301", "e \u0301"),  # those separated by a control character are not
        ("می\u200cخواهم", "می\u200cخواهم"),  # Persian spelling needs the zero-width non-joiner
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\x00\t \u200b\ufeff", ""),
        ("", ""),
    ],
)
def test_special_characters_are_cleaned(line: str, cleaned: str) -> None:
    assert clean(line) == cleaned


@given(st.lists(special_text, max_size=8))
def test_block_is_cleaned_as_its_lines_one_by_one(lines: list[str]) -> None:
    assert clean_all(lines) == [reference(line) for line in lines]


@given(special_text)
def test_cleaning_is_idempotent(line: str) -> None:
    cleaned = clean(line)
    assert clean(cleaned) == cleaned
    assert unicodedata.is_normalized("NFC", cleaned)


def test_ids_are_the_published_xxh3_values_read_as_signed() -> None:
    # XXH3_64bits of no bytes and of "a", from the algorithm's own test values.
    expected = [0x2D06800538D394C2, 0xE6C632B61E964E1F - 2**64]
    ids = sentence_ids(["", "a"])
    assert ids.dtype == np.int64
    assert ids.tolist() == expected
    assert sentence_id("a") == expected[1]
    assert len(sentence_ids([])) == 0


def test_ids_depend_on_the_utf8_bytes() -> None:
    assert sentence_id("caf\u00e9") != sentence_id("cafe")
    assert sentence_id("é") == sentence_id(b"\xc3\xa9".decode())


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0316\u0301", "\u0344\u0315"])
def test_a_flood_of_combining_marks_takes_no_quadratic_time(marks: str) -> None:
    flood = "a" + marks * 200_000
    start = time.process_time()
    assert clean_all(["b", flood, "e\u0301"]) == ["b", flood, "\u00e9"]
    assert time.process_time() - start < 5, "normalisation of the whole line takes hours"


def test_long_lines_without_a_flood_are_composed() -> None:
    words = ["e\u0301" + "\u0316\u0301" * 14, "a" * 99] * 20  # 29 marks in a row
    line = " ".join(words)
    assert len(line) > MAX_UNCHECKED_CHARS
    assert clean(line) == unicodedata.normalize("NFC", line) != line
    short = "a" + "\u0316\u0301" * 100
    assert clean(short) == unicodedata.normalize("NFC", short)

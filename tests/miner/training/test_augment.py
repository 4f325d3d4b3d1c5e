"""Code switching and partial translation: exact results where they are determined, frequencies where they are random."""

import bz2
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miner.errors import DataError
from miner.training.data.augment import CodeSwitch, partial_translation, read_lexicon

GERMAN = {"dog": ("Hund",), "house": ("Haus",), "don't": ("nicht",), "the": ("der",)}
FRENCH = {"dog": ("chien",), "old": ("vieux", "vieille"), "the": ("le",)}
HINDI = {"हिन्दी": ("Hindi",)}


def always(*lexicons: dict[str, tuple[str, ...]]) -> CodeSwitch:
    return CodeSwitch(lexicons, 1.0)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the dog, the house!", "der Hund, der Haus!"),
        ("The DOG and A HOUSE", "Der HUND and A HAUS"),
        ("I don't; he won't. dogs do", "I nicht; he won't. dogs do"),
        ("dog-house dog's dog2 my_dog (dog)", "dog-house dog's dog2 my_dog (Hund)"),
        ("  dog\u00a0dog ", "  Hund\u00a0Hund "),
        ("", ""),
    ],
)
def test_only_whole_words_of_the_lexicon_are_replaced(text: str, expected: str) -> None:
    assert always(GERMAN)([[text]], random()) == [[expected]]


def test_combining_marks_are_part_of_words() -> None:
    assert always(HINDI)([["हिन्दी, हिन्दीवाला"]], random()) == [["Hindi, हिन्दीवाला"]]


def test_ratio_is_the_share_of_replaced_lexicon_words() -> None:
    ((text,),) = CodeSwitch([GERMAN], 0.3)([["dog cat " * 10_000]], random())
    counts = Counter(text.split())
    assert counts["cat"] == 10_000
    assert abs(counts["Hund"] - 3000) < 4 * np.sqrt(10_000 * 0.3 * 0.7)
    assert counts["Hund"] + counts["dog"] == 10_000
    assert CodeSwitch([GERMAN], 0.0)([["the dog"]], random()) == [["the dog"]]


def test_lexicons_are_equally_likely_whatever_their_number_of_translations() -> None:
    lexicons = [{"old": ("alt",)}, {"old": ("vieux", "vieille", "ancien")}, {"new": ("neu",)}]
    counts = Counter(always(*lexicons)([["old"] * 12_000], random())[0])
    for word, share in {"alt": 1 / 2, "vieux": 1 / 6, "vieille": 1 / 6, "ancien": 1 / 6}.items():
        assert abs(counts[word] - 12_000 * share) < 4 * np.sqrt(12_000 * share * (1 - share))


def test_code_switching_depends_on_the_seed_alone() -> None:
    texts = ["the old dog", "a dog in the house"] * 20
    switch = CodeSwitch([GERMAN, FRENCH], 0.5)
    assert switch([texts], random()) == switch([texts], random())
    assert switch([texts], random()) != switch([texts], random(1))
    generator = random()
    assert [*switch([texts[:7]], generator)[0], *switch([texts[7:]], generator)[0]] == switch([texts], random())[0]


def test_a_sample_is_switched_to_one_language() -> None:
    """Both texts of a pair use the language that is drawn for the pair; languages without a word of the pair are not drawn."""
    first, second = always(GERMAN, FRENCH, HINDI)([["the dog the dog"] * 200, ["the dog"] * 200], random())
    assert Counter(zip(first, second, strict=True)).keys() == {("der Hund der Hund", "der Hund"), ("le chien le chien", "le chien")}
    assert 60 < first.count("der Hund der Hund") < 140
    assert always(GERMAN, FRENCH)([["cat"], ["cow"]], random()) == [["cat"], ["cow"]]


def test_lexicons_in_the_format_of_muse_are_read(tmp_path: Path) -> None:
    text = "\ufeffdog Hund\ndog\tRüde\r\n\ndog Hund\nDog Köter\na little\tein wenig\n"
    for path, data in ((tmp_path / "en-de.txt", text.encode()), (tmp_path / "en-de.txt.gz", gzip.compress(text.encode()))):
        path.write_bytes(data)
        assert read_lexicon(str(path)) == {"dog": ("Hund", "Rüde", "Köter"), "a little": ("ein wenig",)}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"dog Hund\none two three\n", "a.txt:2: 3 columns, expected a word and its translation"),
        ("a.txt", b"dog Hund\n\nhouse\n", "a.txt:3: 1 columns, expected a word and its translation"),
        ("a.tsv", b"lang\ten\txx\nde\tdog\tHund\n", "a.tsv:1: 3 columns"),
        ("a.txt", b"dog\t \n", "a.txt:1: an empty column"),
        ("a.txt", b"dog Hund\nhouse Ha\xfcs\n", "a.txt:2: not UTF-8; convert the file"),
        ("a.txt", b"\n \n", "a.txt: no words"),
        ("a.txt", b"", "a.txt: no words"),
        ("a.txt", b"x" * 3_000_000, "a.txt:1: longer than"),
        ("a.txt.bz2", bz2.compress(b"dog Hund\n")[:-5], "a.txt.bz2: truncated or not .bz2"),
    ],
    ids=["three words", "one word", "three columns", "empty", "latin-1", "blank", "nothing", "one long line", "truncated"],
)
def test_errors_in_a_lexicon_name_file_and_line(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as error:
        read_lexicon(str(tmp_path / name))
    assert message in str(error.value)


def test_a_missing_lexicon_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt: no such file"):
        read_lexicon(str(tmp_path / "nothing.txt"))


def count_partial_translations(text: str, translation: str, count: int = 300) -> Counter[str]:
    return Counter(partial_translation([text] * count, [translation] * count, random()))


def test_spans_are_drawn_uniformly_and_replaced_by_position() -> None:
    counts = count_partial_translations("one two three", "eins zwei drei", 6000)
    spans = {"eins two three", "one zwei three", "one two drei", "eins zwei three", "one zwei drei"}
    assert set(counts) == spans
    assert all(abs(count - 1200) < 4 * np.sqrt(6000 * 0.2 * 0.8) for count in counts.values())


def test_span_positions_scale_with_the_number_of_words() -> None:
    assert set(count_partial_translations("one two", "eins zwei drei vier")) == {"eins zwei two", "one drei vier"}
    assert set(count_partial_translations("one two three four", "eins zwei")) >= {
        "eins two three four",
        "one two three zwei",
        "one two zwei",
    }


def test_scripts_without_spaces_are_split_into_characters() -> None:
    assert set(count_partial_translations("你好", "ab cd")) == {"ab 好", "你 cd"}
    assert set(count_partial_translations("one two", "ที่นี่")) == {"ที่ two", "one นี่"}


@pytest.mark.parametrize(("text", "translation"), [("hello", "hallo du"), ("hello you", "hallo"), ("", "a b"), ("a b", "")])
def test_a_text_or_translation_of_one_word_is_unchanged(text: str, translation: str) -> None:
    assert set(count_partial_translations(text, translation)) == {text}


WORDS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=12)


@given(first=WORDS, second=WORDS, seed=st.integers(0, 1000))
def test_partial_translation_inserts_one_span_of_the_translation(first: list[str], second: list[str], seed: int) -> None:
    (mixed,) = partial_translation([" ".join(first)], [" ".join(second).upper()], random(seed))
    words = mixed.split()
    translated = [index for index, word in enumerate(words) if word.isupper()]
    start, end = translated[0], translated[-1] + 1
    assert translated == list(range(start, end))
    assert first[:start] == words[:start]
    assert words[end:] == first[len(first) - len(words[end:]) :]
    assert 0 < start + len(words[end:]) < len(first)
    assert " ".join(words[start:end]) in " ".join(second).upper()
    assert mixed == partial_translation([" ".join(first)], [" ".join(second).upper()], random(seed))[0]

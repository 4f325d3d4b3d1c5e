"""The demo corpora match their description in examples/README.md."""

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from command import output_of

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = {"en": 3017, "de": 2341, "ru": 2489, "hi": 1251}
PAIRS = {"de": 850, "ru": 947, "hi": 699}
MIN_F1 = {"de": 0.90, "ru": 0.80, "hi": 0.80}  # of the built-in encoder at the default threshold
SCRIPTS = {"en": "LATIN", "de": "LATIN", "ru": "CYRILLIC", "hi": "DEVANAGARI"}


def read_corpus(language: str) -> list[str]:
    text = (EXAMPLES / f"{language}.txt").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def read_table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("language", LINES)
def test_corpus_has_distinct_clean_sentences_in_its_script(language: str) -> None:
    lines = read_corpus(language)
    cleaned = {" ".join(unicodedata.normalize("NFC", line).split()).casefold() for line in lines}
    assert len(lines) == len(cleaned) == LINES[language]
    assert "" not in cleaned
    assert not any(char in line for line in lines for char in "\ufeff\r\t\0")
    letters = Counter(unicodedata.name(char, "").split(" ")[0] for line in lines for char in line if char.isalpha())
    assert letters[SCRIPTS[language]] > 0.98 * letters.total()


@pytest.mark.parametrize("target", PAIRS)
def test_gold_has_valid_lines_without_repeats(target: str) -> None:
    pairs = [(int(source), int(other)) for source, other in read_table(f"gold.en-{target}.tsv")]
    assert len(pairs) == PAIRS[target]
    for side, lines in zip(zip(*pairs, strict=True), (LINES["en"], LINES[target]), strict=True):
        assert len(set(side)) == len(pairs)
        assert min(side) >= 1
        assert max(side) <= lines


@pytest.mark.parametrize("target", PAIRS)
def test_gold_pairs_share_their_numbers(target: str) -> None:
    """Most numbers of the English sentence are in its translation; gold that is off by one line fails."""
    english, other = read_corpus("en"), read_corpus(target)
    gold = [(english[int(source) - 1], other[int(line) - 1]) for source, line in read_table(f"gold.en-{target}.tsv")]
    numbers = [(number, translation) for sentence, translation in gold for number in extract_numbers(sentence)]
    assert len(numbers) > 50
    assert sum(number in extract_numbers(text) for number, text in numbers) > 0.8 * len(numbers)


def extract_numbers(text: str) -> set[str]:
    """Return the numbers with at least two digits."""
    parts = "".join(char if char.isdecimal() else " " for char in text).split()
    return {str(int(part)) for part in parts if len(part) > 1}


def test_every_line_has_an_origin() -> None:
    origins = read_table("origins.tsv")
    assert len({(name, line) for name, line, _ in origins}) == len(origins)
    assert Counter(name for name, _, _ in origins) == {f"{language}.txt": count for language, count in LINES.items()}
    assert {source for _, _, source in origins} == {"ud-pud", "tatoeba", "tico-19", "bible"}


@pytest.mark.parametrize("target", MIN_F1)
def test_demo_finds_the_gold_pairs(target: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ("--gold", EXAMPLES / f"gold.en-{target}.tsv", "--output", tmp_path / "out", "--json", figures)
    output_of("mine", EXAMPLES / "en.txt", EXAMPLES / f"{target}.txt", *options)
    assert json.loads(figures.read_text(encoding="utf-8"))["f1"] >= MIN_F1[target]

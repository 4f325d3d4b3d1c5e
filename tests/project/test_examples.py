"""The demo corpora are what examples/README.md says they are."""

import json
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from command import miner

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = {"en": 3017, "de": 2341, "ru": 2489, "hi": 1251}
PAIRS = {"de": 850, "ru": 947, "hi": 699}
LEAST_F1 = {"de": 0.90, "ru": 0.80, "hi": 0.80}  # what the project promises of the built-in encoder at the default threshold
SCRIPTS = {"en": "LATIN", "de": "LATIN", "ru": "CYRILLIC", "hi": "DEVANAGARI"}


def corpus(language: str) -> list[str]:
    text = (EXAMPLES / f"{language}.txt").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("language", LINES)
def test_a_corpus_has_distinct_clean_sentences_in_its_script(language: str) -> None:
    lines = corpus(language)
    cleaned = {" ".join(unicodedata.normalize("NFC", line).split()).casefold() for line in lines}
    assert len(lines) == len(cleaned) == LINES[language]
    assert "" not in cleaned
    assert not any(char in line for line in lines for char in "\ufeff\r\t\0")
    letters = Counter(unicodedata.name(char, "").split(" ")[0] for line in lines for char in line if char.isalpha())
    assert letters[SCRIPTS[language]] > 0.98 * letters.total()


@pytest.mark.parametrize("target", PAIRS)
def test_gold_names_each_line_once_and_within_the_corpora(target: str) -> None:
    pairs = [(int(source), int(other)) for source, other in table(f"gold.en-{target}.tsv")]
    assert len(pairs) == PAIRS[target]
    for side, lines in zip(zip(*pairs, strict=True), (LINES["en"], LINES[target]), strict=True):
        assert len(set(side)) == len(pairs)
        assert min(side) >= 1
        assert max(side) <= lines


@pytest.mark.parametrize("target", PAIRS)
def test_gold_pairs_share_their_numbers_more_than_chance(target: str) -> None:
    """A number written in digits in English is mostly in the other sentence too; a shift by one line would show here."""
    english, other = corpus("en"), corpus(target)
    numbers = [(number, other[int(b) - 1]) for a, b in table(f"gold.en-{target}.tsv") for number in digits(english[int(a) - 1])]
    assert len(numbers) > 50
    assert sum(number in digits(text) for number, text in numbers) > 0.8 * len(numbers)


def digits(text: str) -> set[str]:
    """The numbers of two digits or more in a sentence."""
    parts = "".join(char if char.isdecimal() else " " for char in text).split()
    return {str(int(part)) for part in parts if len(part) > 1}


def test_every_line_has_an_origin() -> None:
    origins = table("origins.tsv")
    assert len({(name, line) for name, line, _ in origins}) == len(origins)
    assert Counter(name for name, _, _ in origins) == {f"{language}.txt": count for language, count in LINES.items()}
    assert {source for _, _, source in origins} == {"ud-pud", "tatoeba", "tico-19", "bible"}


@pytest.mark.parametrize("target", LEAST_F1)
def test_the_demo_finds_the_hidden_pairs(target: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ("--gold", EXAMPLES / f"gold.en-{target}.tsv", "--output", tmp_path / "out", "--json", figures)
    done = miner("mine", EXAMPLES / "en.txt", EXAMPLES / f"{target}.txt", *options)
    assert done.exit_code == 0, done.output
    assert json.loads(figures.read_text(encoding="utf-8"))["f1"] >= LEAST_F1[target]

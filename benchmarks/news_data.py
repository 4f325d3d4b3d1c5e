"""WMT news test sets, for the benchmarks of the built-in encoder, which was not trained on them."""

import argparse
import gzip
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from miner.encoders import load_encoder
from miner.encoders.base import TokenEncoder

MULTI = ("cs", "de", "es", "fr", "hu", "it", "ru")
PAIRS = ("fi", "hi", "ja", "pl", "ro", "tr", "uk", "zh")
SMALL = ("et", "ha", "hr", "is", "km", "lv", "ps", "ta")  # languages with less training text
NEWS_LINES = 2000  # of a language
TRUE_PAIRS, OTHER_ENGLISH, MAX_OTHER = 1000, 14000, 5000  # of planted news

Lines = tuple[list[str], list[str]]  # English, other


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def all_news(data: Path) -> dict[str, Lines]:
    """Language -> aligned lines: of 2013 for MULTI, of the newest test set for the others."""
    texts = {lang: dict(rows(data / f"train/newstest_multi/{lang}.tsv.gz")) for lang in ("en", *MULTI)}
    aligned: dict[str, list[tuple[str, str]]] = {
        lang: [(texts["en"][name], texts[lang][name]) for name in texts["en"] if name in texts[lang]] for lang in MULTI
    }
    pairs = defaultdict(list)
    for first, second, _, english, other in rows(data / "train/newstest_pairs.tsv.gz"):
        if first == "en" and second in PAIRS + SMALL:
            pairs[second].append((english, other))
    return {lang: unzip(lines) for lang, lines in {**aligned, **pairs}.items()}


def news(data: Path) -> dict[str, Lines]:
    """Language -> the last NEWS_LINES aligned lines."""
    return {lang: (english[-NEWS_LINES:], other[-NEWS_LINES:]) for lang, (english, other) in all_news(data).items()}


@dataclass(frozen=True)
class PlantedNews:
    """English sentences and those of another language, few of which are translations."""

    sources: list[str]
    targets: list[str]
    pairs: set[tuple[int, int]]  # rows of translations


def planted_news(data: Path, lang: str) -> PlantedNews:
    """Return 1,000 translations among 14,000 other English sentences and up to 5,000 of the other language, in random order."""
    translations = {code: dict(zip(*lines, strict=True)) for code, lines in all_news(data).items()}
    chance = random.Random(lang)
    own = {other: english for english, other in translations[lang].items()}
    pairs = chance.sample(sorted(own.items()), min(len(own), TRUE_PAIRS + MAX_OTHER))
    num_true = min(TRUE_PAIRS, len(pairs) // 2)
    others = sorted({english for lines in translations.values() for english in lines} - translations[lang].keys())
    sources = [english for _, english in pairs[:num_true]] + chance.sample(others, min(len(others), OTHER_ENGLISH))
    targets = [other for other, _ in pairs]
    source_rows, target_rows = shuffled_rows(sources, chance), shuffled_rows(targets, chance)
    true = {(source_rows[english], target_rows[other]) for other, english in pairs[:num_true]}
    return PlantedNews(list(source_rows), list(target_rows), true)


def shuffled_rows(texts: list[str], chance: random.Random) -> dict[str, int]:
    """Text -> its row, in random order."""
    return {text: row for row, text in enumerate(chance.sample(texts, len(texts)))}


def unzip(lines: list[tuple[str, str]]) -> Lines:
    return [english for english, _ in lines], [other for _, other in lines]


def parse_arguments(description: str | None) -> tuple[Path, TokenEncoder]:
    """Return the folder of --data, and the --encoder, which has token vectors."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="builtin")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    if not isinstance(encoder, TokenEncoder):
        parser.error(f"{arguments.encoder} has no token vectors; give a static encoder")
    return arguments.data, encoder

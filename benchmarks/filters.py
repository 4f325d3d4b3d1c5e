"""What each filter costs, and what it loses of true translations at its usual bound.

python benchmarks/filters.py                 cost, on the demo corpora
python benchmarks/filters.py --data DATA     and loss, on sentences that people translated: DATA/train/ud_pud and DATA/eval/tatoeba

Loss is the share of true pairs (of sentences, for the filters of one side) that a filter would drop. Neither bounds nor weights of
the filters were fitted to these numbers by more than looking at them.
"""

import argparse
import gzip
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from miner.config.commands import PairFilters, SentenceFilters
from miner.filters import FilterDecisions
from miner.filters.pairs import PairTexts, apply_pair_filters
from miner.filters.sentences import apply_sentence_filters
from miner.languages import canonical

EXAMPLES = Path(__file__).parent.parent / "examples"
TATOEBA = (
    "ara",
    "ben",
    "bul",
    "ces",
    "cmn",
    "deu",
    "ell",
    "fin",
    "fra",
    "heb",
    "hin",
    "hun",
    "ita",
    "jpn",
    "kor",
    "rus",
    "spa",
    "tha",
    "tur",
)
SENTENCE_BOUNDS = {"min_chars": 1, "min_words": 1, "max_words": 10_000, **SentenceFilters.USUAL}
ROUNDS = 3

Side = tuple[str, list[str]]  # language and sentences


def timed(count: int, judge: Callable[[], FilterDecisions]) -> float:
    """Microseconds a row, the least of some rounds after one that does not count."""
    judge()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        judge()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / count * 1e6


def costs() -> None:
    texts = {code: (EXAMPLES / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in ("en", "de", "ru", "hi")}
    print("\n| filter | µs a sentence, en | de | ru | hi |\n|---|---|---|---|---|")
    for name, bound in SENTENCE_BOUNDS.items():
        print(f"| {name} | " + " | ".join(f"{_sentence_cost(lines, code, name, bound):.1f}" for code, lines in texts.items()) + " |")
    print("\n| filter | µs a pair, en-de | en-ru | en-hi |\n|---|---|---|---|")
    for name, bound in PairFilters.USUAL.items():
        print(f"| {name} | " + " | ".join(f"{_pair_cost(texts, code, name, bound):.1f}" for code in ("de", "ru", "hi")) + " |")


def _sentence_cost(lines: Sequence[str], code: str, name: str, bound: float) -> float:
    return timed(len(lines), lambda: apply_sentence_filters(lines, canonical(code), {name: bound}))


def _pair_cost(texts: Mapping[str, Sequence[str]], code: str, name: str, bound: float) -> float:
    lines = (EXAMPLES / f"gold.en-{code}.tsv").read_text(encoding="utf-8").splitlines()
    gold = [tuple(map(int, line.split("\t"))) for line in lines]
    sides = [texts["en"][one - 1] for one, _ in gold], [texts[code][other - 1] for _, other in gold]
    pairs = PairTexts(*sides, (canonical("en"), canonical(code)), np.ones(len(gold)))
    return timed(len(gold), lambda: apply_pair_filters(pairs, {name: bound}))


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def translated(data: Path) -> dict[str, list[tuple[Side, Side]]]:
    """Name of a collection -> English and the other language, row by row."""
    pud = data / "train/ud_pud"
    english = dict(rows(pud / "en.tsv.gz"))
    news = []
    for path in sorted(pud.glob("*.tsv.gz")):
        code, other = path.name.removesuffix(".tsv.gz"), dict(rows(path))
        shared = sorted(english.keys() & other.keys())
        if code != "en":
            news.append((("en", [english[key] for key in shared]), (code, [other[key] for key in shared])))
    short = []
    for code in TATOEBA:
        found = list(rows(data / f"eval/tatoeba/tatoeba.{code}-eng.tsv.gz"))
        short.append((("en", [row[1] for row in found]), (code, [row[0] for row in found])))
    return {"PUD": news, "Tatoeba": short}


def losses(data: Path) -> None:
    collections = translated(data)
    for kind, bounds in (("sentences", SentenceFilters.USUAL), ("pairs", PairFilters.USUAL)):
        print(
            f"\n| filter, % of true {kind} lost | {' | '.join(f'{name}, mean | worst' for name in collections)} |\n|---" + "|---" * 4 + "|"
        )
        for name, bound in bounds.items():
            cells = [cell for pairs in collections.values() for cell in _loss([_lost(kind, *pair, {name: bound}) for pair in pairs], pairs)]
            print(f"| {name} | " + " | ".join(cells) + " |")


def _lost(kind: str, english: Side, other: Side, bounds: Mapping[str, float]) -> float:
    if kind == "sentences":
        return 1 - float(apply_sentence_filters(other[1], canonical(other[0]), bounds).kept.mean())
    pairs = PairTexts(english[1], other[1], (canonical(english[0]), canonical(other[0])), np.ones(len(english[1])))
    return 1 - float(apply_pair_filters(pairs, bounds).kept.mean())


def _loss(shares: list[float], pairs: list[tuple[Side, Side]]) -> tuple[str, str]:
    worst = int(np.argmax(shares))
    return f"{100 * np.mean(shares):.2f}", f"{100 * shares[worst]:.2f} {pairs[worst][1][0]}" if shares[worst] else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with train/ and eval/")
    given = parser.parse_args()
    costs()
    if given.data is not None:
        losses(given.data)


if __name__ == "__main__":
    main()

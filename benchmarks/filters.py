"""The cost of every filter, and the share of true translations that it drops at its usual bound.

python benchmarks/filters.py                 cost, on the demo corpora
python benchmarks/filters.py --data DATA     also loss, on human translations: DATA/train/ud_pud and DATA/eval/tatoeba

Loss is the share of true pairs (of sentences, for sentence filters) that a filter drops. Bounds and weights were chosen by hand, not
optimised on these figures.
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
SENTENCE_BOUNDS = {"min_chars": 1, "min_words": 1, "max_words": 10_000, **SentenceFilters.usual()}
ROUNDS = 3

Side = tuple[str, list[str]]  # language code, sentences


def time_filter(num_rows: int, apply: Callable[[], FilterDecisions]) -> float:
    """Return microseconds per row, the minimum of ROUNDS after a warm-up."""
    apply()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        apply()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / num_rows * 1e6


def print_costs() -> None:
    """Print the cost of every filter on the demo corpora."""
    texts = {code: (EXAMPLES / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in ("en", "de", "ru", "hi")}
    print("\n| filter | µs per sentence, en | de | ru | hi |\n|---|---|---|---|---|")
    for name, bound in SENTENCE_BOUNDS.items():
        print(f"| {name} | " + " | ".join(f"{time_sentence_filter(lines, code, name, bound):.1f}" for code, lines in texts.items()) + " |")
    print("\n| filter | µs per pair, en-de | en-ru | en-hi |\n|---|---|---|---|")
    for name, bound in PairFilters.usual().items():
        print(f"| {name} | " + " | ".join(f"{time_pair_filter(texts, code, name, bound):.1f}" for code in ("de", "ru", "hi")) + " |")


def time_sentence_filter(lines: Sequence[str], code: str, name: str, bound: float) -> float:
    return time_filter(len(lines), lambda: apply_sentence_filters(lines, canonical(code), {name: bound}))


def time_pair_filter(texts: Mapping[str, Sequence[str]], code: str, name: str, bound: float) -> float:
    lines = (EXAMPLES / f"gold.en-{code}.tsv").read_text(encoding="utf-8").splitlines()
    gold = [tuple(map(int, line.split("\t"))) for line in lines]
    sides = [texts["en"][source - 1] for source, _ in gold], [texts[code][target - 1] for _, target in gold]
    pairs = PairTexts(*sides, (canonical("en"), canonical(code)), np.ones(len(gold)))
    return time_filter(len(gold), lambda: apply_pair_filters(pairs, {name: bound}))


def read_rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def read_translations(data: Path) -> dict[str, list[tuple[Side, Side]]]:
    """Return {collection: [(English, another language)]}, aligned row by row."""
    pud = data / "train/ud_pud"
    english = dict(read_rows(pud / "en.tsv.gz"))
    news = []
    for path in sorted(pud.glob("*.tsv.gz")):
        code, texts = path.name.removesuffix(".tsv.gz"), dict(read_rows(path))
        shared = sorted(english.keys() & texts.keys())
        if code != "en":
            news.append((("en", [english[key] for key in shared]), (code, [texts[key] for key in shared])))
    short = []
    for code in TATOEBA:
        rows = list(read_rows(data / f"eval/tatoeba/tatoeba.{code}-eng.tsv.gz"))
        short.append((("en", [row[1] for row in rows]), (code, [row[0] for row in rows])))
    return {"PUD": news, "Tatoeba": short}


def print_losses(data: Path) -> None:
    """Print the share of true translations that every filter drops, as mean and maximum over languages."""
    collections = read_translations(data)
    for kind, bounds in (("sentences", SentenceFilters.usual()), ("pairs", PairFilters.usual())):
        columns = " | ".join(f"{name}, mean | worst" for name in collections)
        print(f"\n| filter, % of true {kind} lost | {columns} |\n|---" + "|---" * 4 + "|")
        for name, bound in bounds.items():
            losses = ([measure_loss(kind, *pair, {name: bound}) for pair in pairs] for pairs in collections.values())
            cells = [cell for shares, pairs in zip(losses, collections.values(), strict=True) for cell in format_loss(shares, pairs)]
            print(f"| {name} | " + " | ".join(cells) + " |")


def measure_loss(kind: str, english: Side, other: Side, bounds: Mapping[str, float]) -> float:
    """Return the share of dropped sentences of the other language, or of dropped pairs."""
    if kind == "sentences":
        return 1 - float(apply_sentence_filters(other[1], canonical(other[0]), bounds).kept.mean())
    pairs = PairTexts(english[1], other[1], (canonical(english[0]), canonical(other[0])), np.ones(len(english[1])))
    return 1 - float(apply_pair_filters(pairs, bounds).kept.mean())


def format_loss(shares: list[float], pairs: list[tuple[Side, Side]]) -> tuple[str, str]:
    worst = int(np.argmax(shares))
    return f"{100 * np.mean(shares):.2f}", f"{100 * shares[worst]:.2f} {pairs[worst][1][0]}" if shares[worst] else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory with train/ and eval/")
    arguments = parser.parse_args()
    print_costs()
    if arguments.data is not None:
        print_losses(arguments.data)


if __name__ == "__main__":
    main()

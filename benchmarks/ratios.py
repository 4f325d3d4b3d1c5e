"""F1 with the default filters and without, where one corpus is up to a thousand times as large as the other.

python benchmarks/ratios.py [--languages de ru hi] [--rounds N]

Each corpus of the demo is cut to random sentences in their order; a ratio is mined in rounds of new random sentences until the smaller
sides have SMALL_SENTENCES together, at most MAX_ROUNDS times. The counts of all rounds give one F1; the last column is the difference
by the filters.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import miner

EXAMPLES = Path(__file__).parent.parent / "examples"
LANGUAGES = ("de", "ru", "hi")
RATIOS = (1000, 300, 100, 30, 10, 3, 1)
SMALL_SENTENCES, MAX_ROUNDS = 300, 20

Counts = np.ndarray  # (3,): right pairs, mined pairs, gold pairs


def read_lines(name: str) -> list[str]:
    return (EXAMPLES / name).read_text(encoding="utf-8").splitlines()


def count_pairs(sides: tuple[list[str], list[str]], langs: tuple[str, str], gold: set[tuple[int, int]], filters: Sequence[str]) -> Counts:
    """Mine two lists of sentences, and return the counts of right, mined and gold pairs of rows."""
    bitext = miner.mine(*sides, source_lang=langs[0], target_lang=langs[1], filters=filters)
    mined = set(zip(bitext.table["source_row"].to_pylist(), bitext.table["target_row"].to_pylist(), strict=True))
    return np.array([len(mined & gold), len(mined), len(gold)])


def f1(counts: Counts) -> float:
    return 2 * counts[0] / max(1, counts[1] + counts[2])


def measure(code: str, ratio: int, is_small_source: bool, max_rounds: int) -> tuple[tuple[int, int], int, float, float]:
    """Return the sizes of both sides, the number of gold pairs, and F1 with the default filters and without."""
    corpora = read_lines("en.txt"), read_lines(f"{code}.txt")
    pairs = [tuple(int(number) - 1 for number in line.split("\t")) for line in read_lines(f"gold.en-{code}.tsv")]
    small, large = (0, 1) if is_small_source else (1, 0)
    sizes = [len(corpus) for corpus in corpora]
    sizes[small] = max(1, min(sizes[small], round(len(corpora[large]) / ratio)))
    rng = np.random.default_rng(0)
    totals = np.zeros((2, 3), int)
    for _ in range(min(max_rounds, max(1, SMALL_SENTENCES // sizes[small]))):
        rows = [np.sort(rng.permutation(len(corpus))[:size]).tolist() for corpus, size in zip(corpora, sizes, strict=True)]
        positions = [{row: position for position, row in enumerate(side)} for side in rows]
        gold = {(positions[0][s], positions[1][t]) for s, t in pairs if s in positions[0] and t in positions[1]}
        sides = [corpora[0][row] for row in rows[0]], [corpora[1][row] for row in rows[1]]
        totals += [count_pairs(sides, ("en", code), gold, filters) for filters in ((), ("none",))]
    return (sizes[0], sizes[1]), int(totals[0, 2]), f1(totals[0]), f1(totals[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, choices=LANGUAGES)
    parser.add_argument("--rounds", type=int, default=MAX_ROUNDS, help="maximum number of rounds of a ratio")
    arguments = parser.parse_args()
    print("| Languages | Sentences | Gold pairs | F1, default filters | F1, no filter | Difference |\n|---|---|---|---|---|---|")
    for code in arguments.languages:
        for ratio, is_small_source in [*((ratio, True) for ratio in RATIOS), *((ratio, False) for ratio in reversed(RATIOS[:-1]))]:
            sizes, gold, filtered, unfiltered = measure(code, ratio, is_small_source, arguments.rounds)
            print(
                f"| en-{code} | {sizes[0]:,} x {sizes[1]:,} | {gold} | {filtered:.3f} | {unfiltered:.3f} | {filtered - unfiltered:+.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""The default threshold of each margin: F1 of mining at many thresholds, on text that the encoder was not trained on.

python benchmarks/threshold.py --data DATA [--encoder builtin]

For each language, real sentences are mined as those of the demo: a quarter of each side has a translation on the other side. They are
from the Tatoeba test set and, where available, from WMT news test sets. The languages of `examples/` are excluded, so that the scores
of the demo are those of a threshold chosen on other data.
"""

import argparse
import gzip
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from miner.choices import MARGINS
from miner.encoders import load_encoder
from miner.mining import candidates as scoring
from miner.mining.matching import match, rank
from miner.search.exact import search_block
from miner.search.neighbours import VectorBlock
from miner.text.normalise import clean_all

TATOEBA = ("ara", "bul", "ces", "cmn", "ell", "fin", "fra", "heb", "hun", "ita", "jpn", "kor", "pol", "spa", "swe", "tur", "ukr", "vie")
NEWS = {"ces": "cs", "fra": "fr", "hun": "hu", "ita": "it", "spa": "es"}
NEWS_PAIRS = 3000
MIN_ENGLISH_CHARS = 20
K = 4
PARTS = 7
GRIDS = {"ratio": np.arange(1.0, 1.4, 0.01), "distance": np.arange(0.0, 0.3, 0.01), "absolute": np.arange(0.3, 0.9, 0.02)}

Pair = tuple[str, str]  # English, other
Vectors = tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]  # of English, of the other


@dataclass(frozen=True)
class MinedPairs:
    """The margins (n,) of mined pairs, whether they are true pairs (n,), and the number of true pairs in the corpora."""

    margins: npt.NDArray[np.float64]
    is_correct: npt.NDArray[np.bool_]
    num_true: int


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def pairs_of(data: Path, language: str) -> list[Pair]:
    """Return the true pairs of a language, each sentence once, without short ones."""
    pairs = [(english, other) for other, english in rows(data / f"eval/tatoeba/tatoeba.{language}-eng.tsv.gz")]
    if language in NEWS:
        english_news = dict(rows(data / "train/newstest_multi/en.tsv.gz"))
        others = dict(rows(data / f"train/newstest_multi/{NEWS[language]}.tsv.gz"))
        shared = sorted(english_news.keys() & others.keys())
        pairs += [(english_news[name], others[name]) for name in random.Random(language).sample(shared, NEWS_PAIRS)]
    cleaned = zip(*(clean_all(side) for side in zip(*pairs, strict=True)), strict=True)
    unique = {other: (english, other) for english, other in {pair[0]: pair for pair in cleaned}.values()}
    return [pair for pair in unique.values() if len(pair[0]) >= MIN_ENGLISH_CHARS]


def mine(vectors: Vectors, turn: int, margin: str) -> MinedPairs:
    """Keep one pair in PARTS, hide it among single sentences of the other pairs, and mine.

    `vectors` (n, dim) of both sides, row i of one translating row i of the other; `turn` selects the pairs that are kept.
    """
    kinds = (
        np.arange(len(vectors[0])) + turn
    ) % PARTS  # 0 has both sides; of the others the odd ones have English, the even ones the other
    ids = np.flatnonzero((kinds == 0) | (kinds % 2 == 1)), np.flatnonzero(kinds % 2 == 0)
    blocks = [VectorBlock(rows, side[rows]) for rows, side in zip(ids, vectors, strict=True)]
    forward, backward = search_block(blocks[0], blocks[1], K)
    sources, targets = scoring.means_of(ids[0], forward), scoring.means_of(ids[1], backward)
    edges = scoring.forward_edges(ids[0], forward), scoring.backward_edges(ids[1], backward)
    pairs = match(rank(scoring.score(scoring.join(*edges, sources, targets), margin)), "max")
    return MinedPairs(pairs.margins, pairs.source_ids == pairs.target_ids, int((kinds == 0).sum()))


def curve(vectors: Vectors, margin: str) -> npt.NDArray[np.float64]:
    """Return F1 at each threshold of the grid, over all turns."""
    turns = [mine(vectors, turn, margin) for turn in range(PARTS)]
    num_true = sum(pairs.num_true for pairs in turns)
    margins, is_correct = (np.concatenate(column) for column in zip(*((pairs.margins, pairs.is_correct) for pairs in turns), strict=True))
    return np.array([2 * is_correct[margins > threshold].sum() / ((margins > threshold).sum() + num_true) for threshold in GRIDS[margin]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--encoder", default="builtin")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    vectors = {}
    for language in TATOEBA:
        pairs = pairs_of(arguments.data, language)
        random.Random(0).shuffle(pairs)
        english, other = (encoder.encode(side).astype(np.float16) for side in zip(*pairs, strict=True))
        vectors[language] = english, other
    for margin in MARGINS:
        table = np.array([curve(sides, margin) for sides in vectors.values()])
        means = table.mean(axis=0)
        best = int(means.argmax())
        print(f"\n{margin}: F1 {means[best]:.3f} above {GRIDS[margin][best]:.2f}, on average over {len(vectors)} languages")
        print("  threshold " + " ".join(f"{threshold:5.2f}" for threshold in GRIDS[margin][max(0, best - 5) : best + 6]))
        print("  F1        " + " ".join(f"{value:5.3f}" for value in means[max(0, best - 5) : best + 6]))
        best_by_language = [f"{language} {GRIDS[margin][row.argmax()]:.2f}" for language, row in zip(vectors, table, strict=True)]
        print(f"  best for each: {', '.join(best_by_language)}")


if __name__ == "__main__":
    main()

"""Which threshold a margin should have unless told otherwise: F1 of mining at many, on text the encoder never saw.

python benchmarks/threshold.py --data DATA [--encoder builtin]

For each language, real sentences are mined as the demo mines its own: a quarter of each side has a translation on the other, the rest
stands alone. They come from the Tatoeba test set and, where there are any, from WMT news test sets. The languages of `examples/` are
not among them, so that the demo's scores are those of a threshold chosen elsewhere.
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
from miner.search.exact import VectorBlock, search_block
from miner.text.normalise import clean_all

TATOEBA = ("ara", "bul", "ces", "cmn", "ell", "fin", "fra", "heb", "hun", "ita", "jpn", "kor", "pol", "spa", "swe", "tur", "ukr", "vie")
NEWS = {"ces": "cs", "fra": "fr", "hun": "hu", "ita": "it", "spa": "es"}
NEWS_PAIRS = 3000
SHORTEST = 20  # characters of English
K = 4
PARTS = 7
GRIDS = {"ratio": np.arange(1.0, 1.4, 0.01), "distance": np.arange(0.0, 0.3, 0.01), "absolute": np.arange(0.3, 0.9, 0.02)}

Pair = tuple[str, str]  # English, other
Vectors = tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]  # of English, of the other


@dataclass(frozen=True)
class Found:
    """What mining found: margins (n,), whether each pair is right (n,), and how many true pairs there were to find."""

    margins: npt.NDArray[np.float64]
    right: npt.NDArray[np.bool_]
    true: int


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def pairs_of(data: Path, language: str) -> list[Pair]:
    """True pairs of a language; each sentence once, the short ones left out."""
    found = [(english, other) for other, english in rows(data / f"eval/tatoeba/tatoeba.{language}-eng.tsv.gz")]
    if language in NEWS:
        english_news = dict(rows(data / "train/newstest_multi/en.tsv.gz"))
        others = dict(rows(data / f"train/newstest_multi/{NEWS[language]}.tsv.gz"))
        shared = sorted(english_news.keys() & others.keys())
        found += [(english_news[name], others[name]) for name in random.Random(language).sample(shared, NEWS_PAIRS)]
    cleaned = zip(*(clean_all(side) for side in zip(*found, strict=True)), strict=True)
    once = {other: (english, other) for english, other in {pair[0]: pair for pair in cleaned}.values()}
    return [pair for pair in once.values() if len(pair[0]) >= SHORTEST]


def mine(vectors: Vectors, turn: int, margin: str) -> Found:
    """Hide one pair in PARTS among single sides of the others, and mine.

    `vectors` (n, dim) of both sides, row i of one translating row i of the other; `turn` says which pairs are whole.
    """
    kinds = (
        np.arange(len(vectors[0])) + turn
    ) % PARTS  # 0 has both sides; of the others the odd ones have English, the even ones the other
    ids = np.flatnonzero((kinds == 0) | (kinds % 2 == 1)), np.flatnonzero(kinds % 2 == 0)
    blocks = [VectorBlock(rows, side[rows]) for rows, side in zip(ids, vectors, strict=True)]
    forward, backward = search_block(blocks[0], blocks[1], K)
    sources, targets = scoring.means_of(ids[0], forward), scoring.means_of(ids[1], backward)
    edges = scoring.forward_edges(ids[0], forward), scoring.backward_edges(ids[1], backward)
    found = match(rank(scoring.score(scoring.join(*edges, sources, targets), margin)), "max")
    return Found(found.margins, found.source_ids == found.target_ids, int((kinds == 0).sum()))


def curve(vectors: Vectors, margin: str) -> npt.NDArray[np.float64]:
    """F1 at each threshold of the grid, all pairs having been hidden in turn."""
    turns = [mine(vectors, turn, margin) for turn in range(PARTS)]
    true = sum(found.true for found in turns)
    margins, right = (np.concatenate(column) for column in zip(*((found.margins, found.right) for found in turns), strict=True))
    return np.array([2 * right[margins > threshold].sum() / ((margins > threshold).sum() + true) for threshold in GRIDS[margin]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--encoder", default="builtin")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder)
    vectors = {}
    for language in TATOEBA:
        pairs = pairs_of(given.data, language)
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
        own = [f"{language} {GRIDS[margin][row.argmax()]:.2f}" for language, row in zip(vectors, table, strict=True)]
        print(f"  best for each: {', '.join(own)}")


if __name__ == "__main__":
    main()

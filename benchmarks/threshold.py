"""The thresholds that an encoder recommends: F1 of mining at many thresholds, on text that is in no training and in no evaluation set.

python benchmarks/threshold.py --data DATA [--encoder builtin]

For each language, real sentences are mined as those of the demo: a quarter of each side has a translation on the other side. They are
reviews (NusaX), news (MAFAND) and captions, news and forum posts (the training part of STS-B, translated by machine). The built-in encoder
was trained on none of them. The languages of `examples/` are excluded, so that the scores of the demo are those of a threshold chosen
on other data.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from miner.config.choices import MARGINS, default_candidates
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import TokenEncoder
from miner.mining.candidates import Candidates, score
from miner.mining.in_memory import find_candidates
from miner.mining.late_scores import TokenSides
from miner.mining.matching import match, rank
from miner.text.normalise import clean_all

STSB = ("es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "zh")
LANGUAGES = ("sw", "id", *STSB)
MAX_PAIRS = 2500  # of a language
MIN_ENGLISH_CHARS = 20
K = 4
PARTS = 7
GRIDS = {"ratio": np.arange(1.0, 1.4, 0.01), "distance": np.arange(0.0, 0.3, 0.005), "absolute": np.arange(0.3, 0.9, 0.01)}

Pair = tuple[str, str]  # English, other


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
    """Return true pairs of a language, each sentence once, without short ones."""
    if language == "sw":
        columns = (row for row in rows(data / "train/mafand.en_fr-african.tsv.gz") if row[:2] == ["en", "swa"])
        pairs = [(row[3], row[4]) for row in columns]
    else:
        folder = data / "train" / ("nusax" if language == "id" else "stsb_mt_train_MACHINE")
        english, other = (dict(rows(folder / f"{name}.tsv.gz")) for name in ("en", language))
        pairs = [(english[name], other[name]) for name in sorted(english.keys() & other.keys())]
    random.Random(language).shuffle(pairs)
    cleaned = zip(*(clean_all(side) for side in zip(*pairs[:MAX_PAIRS], strict=True)), strict=True)
    unique = {other: (english, other) for english, other in {pair[0]: pair for pair in cleaned}.values()}
    return [pair for pair in unique.values() if len(pair[0]) >= MIN_ENGLISH_CHARS]


def mine(encoder: Encoder, pairs: Sequence[Pair], turn: int) -> dict[tuple[str, str], MinedPairs]:
    """Keep one pair in PARTS, hide it among single sentences of the other pairs, and mine by each scoring and margin.

    `turn` selects the pairs that are kept.
    """
    kinds = (np.arange(len(pairs)) + turn) % PARTS  # 0 has both sides; of the others the odd ones have English, the even ones the other
    numbers = np.flatnonzero((kinds == 0) | (kinds % 2 == 1)), np.flatnonzero(kinds % 2 == 0)
    texts = [[pairs[number][side] for number in side_numbers] for side, side_numbers in enumerate(numbers)]
    vectors = [encoder.encode(side).astype(np.float16) for side in texts]
    scored: dict[str, Candidates] = {"embedding": find_candidates(vectors[0], vectors[1], K)}
    if isinstance(encoder, TokenEncoder):
        tokens = TokenSides(*map(encoder.token_vectors, texts), default_candidates(map(len, texts)))
        scored["late"] = find_candidates(vectors[0], vectors[1], K, tokens)
    mined = {}
    for name, candidates in scored.items():
        for margin in MARGINS:
            matches = match(rank(score(candidates, margin)), "max")
            is_correct = numbers[0][matches.source_ids] == numbers[1][matches.target_ids]
            mined[name, margin] = MinedPairs(matches.margins, is_correct, int((kinds == 0).sum()))
    return mined


def curves(encoder: Encoder, pairs: Sequence[Pair]) -> dict[tuple[str, str], npt.NDArray[np.float64]]:
    """Return F1 at each threshold of the grid over all turns, by scoring and margin."""
    turns = [mine(encoder, pairs, turn) for turn in range(PARTS)]
    by_scoring = {}
    for key in turns[0]:
        num_true = sum(turn[key].num_true for turn in turns)
        margins = np.concatenate([turn[key].margins for turn in turns])
        is_correct = np.concatenate([turn[key].is_correct for turn in turns])
        f1 = [2 * is_correct[margins > threshold].sum() / ((margins > threshold).sum() + num_true) for threshold in GRIDS[key[1]]]
        by_scoring[key] = np.array(f1)
    return by_scoring


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--encoder", default="builtin")
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    by_language = {language: curves(encoder, pairs_of(arguments.data, language)) for language in LANGUAGES}
    thresholds: dict[str, dict[str, float]] = {margin: {} for margin in MARGINS}
    for key in next(iter(by_language.values())):
        table, grid = np.array([by_scoring[key] for by_scoring in by_language.values()]), GRIDS[key[1]]
        means = table.mean(axis=0)
        best = int(means.argmax())
        thresholds[key[1]]["rescored" if key[0] == "late" else "embedding"] = round(float(grid[best]), 4)
        print(f"\n{', '.join(key)}: F1 {means[best]:.3f} above {grid[best]:g}, on average over {len(table)} languages")
        print("  threshold " + " ".join(f"{threshold:5.3f}" for threshold in grid[max(0, best - 5) : best + 6]))
        print("  F1        " + " ".join(f"{value:5.3f}" for value in means[max(0, best - 5) : best + 6]))
        best_by_language = [f"{language} {grid[row.argmax()]:.3g}" for language, row in zip(by_language, table, strict=True)]
        print(f"  best for each: {', '.join(best_by_language)}")
    print(f"\nfor mining.json in the encoder's folder:\n{json.dumps({'thresholds': thresholds}, indent=2)}")


if __name__ == "__main__":
    main()

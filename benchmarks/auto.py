"""Whether `--threshold auto` keeps its word: the precision it expects beside the true one, on text the encoder never saw.

python benchmarks/auto.py --data DATA [--encoder builtin] [--languages fra ces ...]

As benchmarks/threshold.py does, a seventh of a language's pairs is hidden among single sides of the others; 600 pairs are planted.
Gold chooses on one half of the mined pairs, drawn 200 times, and is checked on the other. Planted pairs choose once, and all gold checks.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from threshold import PARTS, Pair, pairs_of

from miner.config.commands import FromCandidatesConfig, MineConfig
from miner.errors import DataError
from miner.mining.thresholds import from_gold
from pipelines.mining import mine

LANGUAGES = ("fra", "ces", "hun", "ita", "spa")  # those with news: the others have too few pairs
PLANTED = 600
DRAWS = 200
ASKED = (0.9, 0.95, 0.98)


def write(folder: Path, pairs: list[Pair]) -> set[Pair]:
    """Both sides and the planted pairs as files; returns the hidden pairs."""
    planted, hidden = pairs[:PLANTED], set(pairs[PLANTED::PARTS])
    rest = [pair for pair in pairs[PLANTED:] if pair not in hidden]
    alone = rest[0::2], rest[1::2]
    for side, name in enumerate(("en", "other")):
        lines = [pair[side] for pair in (*hidden, *alone[side])]
        random.Random(name).shuffle(lines)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "planted").write_text("".join(f"{one}\t{other}\n" for one, other in planted), encoding="utf-8")
    return hidden


def mined(folder: Path) -> tuple[np.ndarray, list[Pair]]:
    table = pq.read_table(folder / "bitext.parquet")
    return table["margin"].to_numpy(), list(zip(table["source_text"].to_pylist(), table["target_text"].to_pylist(), strict=True))


def by_halves(margins: np.ndarray, right: np.ndarray, asked: float) -> str:
    """The mean precision, and its deviation, on the halves that did not choose."""
    chance = np.random.default_rng(0)
    held = []
    for _ in range(DRAWS):
        half = chance.random(len(margins)) < 0.5
        try:
            choice = from_gold(margins[half], right[half], int(right[half].sum()), asked)
        except DataError:
            continue
        held.append(right[~half & (margins > choice.threshold)].mean())
    told = f"{np.mean(held):.3f} +- {np.std(held):.3f}" if held else "none"
    return told if len(held) == DRAWS else f"{told} ({DRAWS - len(held)} of {DRAWS} halves reach it nowhere, or are too few to tell)"


def by_planted(folder: Path, hidden: set[Pair], asked: float, encoder: str) -> str:
    config = {"candidates": str(folder / "out"), "output": str(folder / "again"), "planted": str(folder / "planted"), "encoder": encoder}
    try:
        found = mine.run_from_candidates(FromCandidatesConfig(**config, threshold="auto", precision=asked))
    except DataError as error:
        return str(error)
    assert found.choice is not None
    pairs = mined(folder / "again")[1]
    right = sum(pair in hidden for pair in pairs)
    shares = (f"{part.value:.3f} ({part.low:.3f}-{part.high:.3f})" for part in (found.choice.precision, found.choice.recall))
    return f"{right / len(pairs):.3f}, expected {next(shares)}; recall {right / len(hidden):.3f}, expected {next(shares)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--languages", nargs="*", default=LANGUAGES)
    given = parser.parse_args()
    for language in given.languages:
        pairs = pairs_of(given.data, language)
        random.Random(0).shuffle(pairs)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hidden = write(folder, pairs)
            sides = {"source": str(folder / "en"), "target": str(folder / "other"), "output": str(folder / "out")}
            mine.run(MineConfig(**sides, encoder=given.encoder, threshold=float("-inf")))
            margins, found = mined(folder / "out")
            right = np.array([pair in hidden for pair in found])
            print(f"{language}: {len(hidden)} pairs hidden, {len(pairs) - PLANTED - len(hidden)} single sides")
            for asked in ASKED:
                print(f"  asked {asked}: by gold, other half {by_halves(margins, right, asked)}")
                print(f"              by planted pairs {by_planted(folder, hidden, asked, given.encoder)}")


if __name__ == "__main__":
    main()

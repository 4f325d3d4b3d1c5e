"""Compare the precision that `--threshold auto` expects with the true one, on text the encoder was not trained on.

python benchmarks/thresholds.py --data DATA [--encoder builtin] [--languages fra ces ...]

As in benchmarks/threshold.py, a seventh of a language's pairs is hidden among single sides of the others; 600 pairs are planted. Gold pairs
choose the threshold on one half of the mined pairs, drawn 200 times, and check it on the other. Planted pairs choose it once, and all gold
pairs check it.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from threshold import PARTS, Pair, pairs_of

from miner.config.commands import FromCandidatesConfig, MineConfig, PairFilters, SentenceFilters
from miner.errors import DataError
from miner.mining.thresholds import from_gold
from pipelines.mining import mine

LANGUAGES = ("fra", "ces", "hun", "ita", "spa")  # those with news: the others have too few pairs
PLANTED = 600
DRAWS = 200
TARGET_PRECISIONS = (0.9, 0.95, 0.98)


def write(folder: Path, pairs: list[Pair]) -> set[Pair]:
    """Both sides and the planted pairs as files; returns the hidden pairs."""
    planted, hidden = pairs[:PLANTED], set(pairs[PLANTED::PARTS])
    unpaired = [pair for pair in pairs[PLANTED:] if pair not in hidden]
    alone = unpaired[0::2], unpaired[1::2]
    for side, name in enumerate(("en", "other")):
        lines = [pair[side] for pair in (*hidden, *alone[side])]
        random.Random(name).shuffle(lines)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "planted").write_text("".join(f"{source}\t{target}\n" for source, target in planted), encoding="utf-8")
    return hidden


def read_bitext(folder: Path) -> tuple[np.ndarray, list[Pair]]:
    table = pq.read_table(folder / "bitext.parquet")
    return table["margin"].to_numpy(), list(zip(table["source_text"].to_pylist(), table["target_text"].to_pylist(), strict=True))


def choose_by_gold(margins: np.ndarray, is_correct: np.ndarray, precision: float) -> str:
    """Return the mean and the standard deviation of the precision on the halves that did not choose the threshold."""
    random_generator = np.random.default_rng(0)
    precisions = []
    for _ in range(DRAWS):
        half = random_generator.random(len(margins)) < 0.5
        try:
            choice = from_gold(margins[half], is_correct[half], int(is_correct[half].sum()), precision)
        except DataError:
            continue
        precisions.append(is_correct[~half & (margins > choice.threshold)].mean())
    summary = f"{np.mean(precisions):.3f} +- {np.std(precisions):.3f}" if precisions else "none"
    return (
        summary
        if len(precisions) == DRAWS
        else f"{summary} ({DRAWS - len(precisions)} of {DRAWS} halves reach it nowhere, or are too few for an estimate)"
    )


def choose_by_planted(folder: Path, hidden: set[Pair], precision: float, encoder: str) -> str:
    config = {"candidates": str(folder / "out"), "output": str(folder / "again"), "planted": str(folder / "planted"), "encoder": encoder}
    try:
        choice = mine.run_from_candidates(
            FromCandidatesConfig(**config, threshold="auto", precision=precision, pair_filters=PairFilters.none())
        ).bitext.choice
    except DataError as error:
        return str(error)
    assert choice is not None
    pairs = read_bitext(folder / "again")[1]
    num_correct = sum(pair in hidden for pair in pairs)
    shares = (f"{part.value:.3f} ({part.low:.3f}-{part.high:.3f})" for part in (choice.precision, choice.recall))
    return f"{num_correct / len(pairs):.3f}, expected {next(shares)}; recall {num_correct / len(hidden):.3f}, expected {next(shares)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--languages", nargs="*", default=LANGUAGES)
    arguments = parser.parse_args()
    for language in arguments.languages:
        pairs = pairs_of(arguments.data, language)
        random.Random(0).shuffle(pairs)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hidden = write(folder, pairs)
            sides = {"source": str(folder / "en"), "target": str(folder / "other"), "output": str(folder / "out")}
            mine.run(MineConfig(**sides, encoder=arguments.encoder, threshold=float("-inf"), sentence_filters=SentenceFilters.none()))
            margins, pairs_mined = read_bitext(folder / "out")
            is_correct = np.array([pair in hidden for pair in pairs_mined])
            print(f"{language}: {len(hidden)} pairs hidden, {len(pairs) - PLANTED - len(hidden)} single sides")
            for precision in TARGET_PRECISIONS:
                print(f"  asked {precision}: by gold, other half {choose_by_gold(margins, is_correct, precision)}")
                print(f"              by planted pairs {choose_by_planted(folder, hidden, precision, arguments.encoder)}")


if __name__ == "__main__":
    main()

"""What a loop over `configs/loop-news.yaml` came to, as tables: accuracy by round and language, and precision by threshold.

python benchmarks/loop.py build/loop-news --gold build/loop-news-data/gold
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from miner import storage
from miner.corpus import open_corpus
from pipelines.loop.select import ids_of
from pipelines.mining import gold_pairs as golds

THRESHOLDS = (1.06, 1.08, 1.10, 1.12, 1.15, 1.20)


def rounds(loop: Path) -> Iterator[Sequence[Any]]:
    """A row for the start and for each round."""
    told = storage.read_json(str(loop / "loop.json"))
    langs = list(told["start"]["test"])
    yield ["", *langs, "mean", "Tatoeba", "pairs", "precision"]
    for name, figures in [("seed", told["start"]), *((f"round {number:02d}", of) for number, of in enumerate(told["rounds"]))]:
        scores = [figures["test"][lang] for lang in langs]
        percents = [f"{100 * score:.1f}" for score in (*scores, fmean(scores), figures["tatoeba"])]
        pairs = list(figures["selection"]["pairs"].values()) if "selection" in figures else []
        right = sum(pair["precision"] * pair["selected"] for pair in pairs) / max(1, sum(pair["selected"] for pair in pairs))
        yield [name, *percents, *([f"{figures['selection']['learnt']:,}", f"{right:.3f}"] if pairs else ["", ""])]


def precision(folder: Path, gold: Path) -> Iterator[Sequence[Any]]:
    """A row for each threshold: of what a round mined, precision over all pairs and as a mean over languages, and recall."""
    yield ["margin above", "precision", "mean over languages", "lowest", "recall"]
    found = []
    for place in sorted((folder / "mined").iterdir()):
        sides = (open_corpus(str(folder / "corpora" / lang)) for lang in place.name.split("-"))
        true = golds.resolve(golds.read(str(gold / f"{place.name}.tsv")), *sides)[0]
        bitext = storage.read_table(str(place / "bitext.parquet"))
        found.append((bitext["margin"].to_numpy(), np.array([pair in true for pair in ids_of(bitext)]), len(true)))
    for threshold in THRESHOLDS:
        counts = np.array([((margins > threshold).sum(), right[margins > threshold].sum(), true) for margins, right, true in found])
        mined, right, true = counts.T
        shares = right / np.maximum(mined, 1)
        figures = (right.sum() / mined.sum(), shares.mean(), shares.min(), right.sum() / true.sum())
        yield [f"{threshold:.2f}", *(f"{figure:.3f}" for figure in figures)]


def show(title: str, rows: Iterator[Sequence[Any]]) -> None:
    print(f"\n{title}\n")
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |" + ("\n|" + "---|" * len(row) if not number else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("loop", type=Path, help="the output of miner loop")
    parser.add_argument("--gold", type=Path, required=True)
    arguments = parser.parse_args()
    show("Retrieval accuracy, test news, by ratio margin", rounds(arguments.loop))
    for folder in sorted(arguments.loop.glob("round-*")):
        if (folder / "round.json").exists():
            show(f"What {folder.name} mined", precision(folder, arguments.gold))


if __name__ == "__main__":
    main()

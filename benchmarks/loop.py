"""Print the results of `miner loop configs/loop-news.yaml` as tables: accuracy by round and language, precision by threshold.

python benchmarks/loop.py build/loop-news --gold build/loop-news-data/gold
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from miner.io import storage, table_files
from miner.io.corpus import open_corpus
from pipelines.mining import gold_pairs as golds

THRESHOLDS = (1.06, 1.08, 1.10, 1.12, 1.15, 1.20)


def accuracy_rows(loop: Path) -> Iterator[Sequence[Any]]:
    """Yield a header, and a row for the start encoder and for each round."""
    results = storage.read_json(str(loop / "loop.json"))
    langs = list(results["start"]["test"])
    yield ["", *langs, "mean", "Tatoeba", "pairs", "precision"]
    rounds = [("seed", results["start"]), *((f"round {number:02d}", figures) for number, figures in enumerate(results["rounds"]))]
    for name, figures in rounds:
        scores = [figures["test"][lang] for lang in langs]
        percents = [f"{100 * score:.1f}" for score in (*scores, fmean(scores), figures["tatoeba"])]
        pairs = list(figures["selection"]["pairs"].values()) if "selection" in figures else []
        precision = sum(pair["precision"] * pair["training"] for pair in pairs) / max(1, sum(pair["training"] for pair in pairs))
        yield [name, *percents, *([f"{figures['selection']['training']:,}", f"{precision:.3f}"] if pairs else ["", ""])]


def threshold_rows(round_folder: Path, gold_folder: Path) -> Iterator[Sequence[Any]]:
    """Yield a header, and for each threshold the precision of the mined pairs, overall and over languages, and their recall."""
    yield ["margin above", "precision", "mean over languages", "lowest", "recall"]
    mined = []
    for folder in sorted((round_folder / "mined").iterdir()):
        sides = (open_corpus(str(round_folder / "corpora" / lang)) for lang in folder.name.split("-"))
        gold = golds.resolve_lines(golds.read_gold_file(str(gold_folder / f"{folder.name}.tsv")), *sides)
        bitext = table_files.read_table(str(folder / "bitext.parquet"))
        is_correct = gold.is_gold(bitext["source_id"].to_numpy(), bitext["target_id"].to_numpy())
        mined.append((bitext["margin"].to_numpy(), is_correct, len(gold)))
    for threshold in THRESHOLDS:
        counts = [((margins > threshold).sum(), is_correct[margins > threshold].sum(), num_gold) for margins, is_correct, num_gold in mined]
        num_mined, num_correct, num_gold = np.array(counts).T
        precisions = num_correct / np.maximum(num_mined, 1)
        recall = num_correct.sum() / num_gold.sum()
        figures = (num_correct.sum() / num_mined.sum(), precisions.mean(), precisions.min(), recall)
        yield [f"{threshold:.2f}", *(f"{figure:.3f}" for figure in figures)]


def print_table(title: str, rows: Iterator[Sequence[Any]]) -> None:
    print(f"\n{title}\n")
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |" + ("\n|" + "---|" * len(row) if not number else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("loop", type=Path, help="output directory of miner loop")
    parser.add_argument("--gold", type=Path, required=True)
    arguments = parser.parse_args()
    print_table("Retrieval accuracy on test news by ratio margin", accuracy_rows(arguments.loop))
    for folder in sorted(arguments.loop.glob("round-*")):
        if (folder / "round.json").exists():
            print_table(f"Pairs mined in {folder.name}", threshold_rows(folder, arguments.gold))


if __name__ == "__main__":
    main()

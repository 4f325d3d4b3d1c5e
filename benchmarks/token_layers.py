"""Measure by which layer of a transformer, and with which weight, late interaction retrieves best.

    OMP_NUM_THREADS=1 python benchmarks/token_layers.py --data DATA --encoder DIR [--lines 400] [hu ja]

Printed is the accuracy of retrieval (%, both directions) of the last lines of news and English: by the margin of the embeddings blended
with that of the tokens of each layer, among the 16 nearest neighbours of each side.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from news_data import all_news

from miner.arrays import Floats
from miner.config.commands import EncoderSettings
from miner.encoders.layer_tokens import LayerTokens
from miner.encoders.transformer import load

K, CANDIDATES = 4, 16
WEIGHTS = (0, 1, 3, 10)


def ratio_margins(similarities: Floats) -> Floats:
    """(n, n) -> (n, n), by the K largest similarities of each row and column."""
    means = (np.sort(similarities, axis=axis).take(range(-K, 0), axis=axis).mean(axis=axis, keepdims=True) for axis in (1, 0))
    margins: Floats = similarities / (sum(means) / 2)
    return margins


def late_similarities(tokens: list[Any], is_candidate: Any) -> Floats:
    """Return L (n, n) of the candidates of two sides, 0 for others."""
    similarities = np.zeros(is_candidate.shape)
    vectors = [np.split(side.table.astype(np.float32) / 127, side.bounds[1:-1]) for side in tokens]
    for row, column in np.argwhere(is_candidate).tolist():
        products = vectors[0][row] @ vectors[1][column].T
        similarities[row, column] = (products.max(axis=1).mean() + products.max(axis=0).mean()) / 2
    return similarities


def accuracy(scores: Floats) -> float:
    """Return the share (%) of rows and columns (n, n) whose largest score is on the diagonal."""
    diagonal = np.arange(len(scores))
    return float(50 * ((scores.argmax(axis=1) == diagonal).mean() + (scores.argmax(axis=0) == diagonal).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", default=["hu", "ja"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--lines", type=int, default=400)
    arguments = parser.parse_args()
    encoder = load(arguments.encoder, EncoderSettings(dtype="float32"))
    news = all_news(arguments.data)
    for lang in arguments.languages:
        sides = [side[-arguments.lines :] for side in news[lang]]
        source, target = map(encoder.encode, sides)
        similarities = (source @ target.T).astype(np.float64)
        ranks = [(-similarities).argsort(axis=axis).argsort(axis=axis) for axis in (0, 1)]
        is_candidate = np.minimum(*ranks) < CANDIDATES
        margins = ratio_margins(similarities)
        for layer in range(encoder.num_layers + 1):
            tokens = [LayerTokens(encoder, layer).token_vectors(side) for side in sides]
            late_margins = ratio_margins(late_similarities(tokens, is_candidate))
            blended = (np.where(is_candidate, (margins + weight * late_margins) / (1 + weight), -np.inf) for weight in WEIGHTS)
            figures = " ".join(f"{weight}: {accuracy(scores):.2f}" for weight, scores in zip(WEIGHTS, blended, strict=True))
            print(f"{lang}, layer {layer:2}, by weight {figures}", flush=True)


if __name__ == "__main__":
    main()

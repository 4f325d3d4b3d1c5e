"""Classifiers of a few samples per label, as in MTEB (Muennighoff et al. 2023): mean scores of several of them measure an encoder."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats32
from miner.errors import require

SEED, ITERATIONS = 42, 100  # MTEB's seed of the samples, and iterations of its optimiser
SAMPLES_PER_LABEL, EXPERIMENTS = 8, 10  # as in MTEB

Labels = npt.NDArray[np.str_]


def predict_from_samples(
    encode: Callable[[list[str]], Floats32],
    train: Sequence[str],
    labels: Labels,
    test: Sequence[str],
    samples_per_label: int = SAMPLES_PER_LABEL,
    num_experiments: int = EXPERIMENTS,
) -> Labels:
    """n texts, their labels (n,) and m texts -> (m, experiments) predicted labels; each experiment trains on samples of its own."""
    LogisticRegression = require("sklearn.linear_model").LogisticRegression
    from threadpoolctl import threadpool_limits

    samples = _draw_samples(labels, samples_per_label, num_experiments)
    drawn = np.unique(np.concatenate(samples))
    vectors = encode([*(train[row] for row in drawn.tolist()), *test])
    predicted = []
    with threadpool_limits(1):  # floating-point sums depend on the number of threads
        for rows in samples:
            probe = LogisticRegression(max_iter=ITERATIONS).fit(vectors[np.searchsorted(drawn, rows)], labels[rows])
            predicted.append(probe.predict(vectors[len(drawn) :]))
    return np.stack(predicted, axis=1)


def _draw_samples(labels: Labels, samples_per_label: int, num_experiments: int) -> list[npt.NDArray[np.int64]]:
    """Return for each experiment the first rows of each label (n,) in a new order, drawn as in MTEB: each shuffles the order before."""
    order, samples = np.arange(len(labels)), []
    for _ in range(num_experiments):
        np.random.RandomState(SEED).shuffle(order)
        shuffled = labels[order]
        firsts = np.concatenate([np.flatnonzero(shuffled == label)[:samples_per_label] for label in np.unique(labels)])
        samples.append(order[np.sort(firsts)])
    return samples

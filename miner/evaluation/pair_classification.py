"""Classification of pairs of texts by a linear probe, as of paraphrases and entailment. See docs/evaluation.md for the protocol."""

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.evaluation import probe
from miner.evaluation.lines import encode
from miner.evaluation.probe import Features, Result
from miner.evaluation.settings import PairClassificationTask

Vectors = npt.NDArray[np.float32]

BLOCK = 8192  # pairs whose features are held at a time


def evaluate(encoder: Encoder, task: PairClassificationTask) -> Result:
    """Tables of pairs and labels -> how a probe of their vectors labels the pairs to test on. DataError as in `probe.read`."""
    train, test = probe.read(task, task.first_column, task.second_column)
    vectors = (encode(encoder, [*rows.texts[0], *rows.texts[1]], np.float32) for rows in (train, test))
    (u, v), (u_test, v_test) = (np.split(both, 2) for both in vectors)
    blocks = (features(u_test[at : at + BLOCK], v_test[at : at + BLOCK]) for at in range(0, len(u_test), BLOCK))
    return probe.run(features(u, v), blocks, train, test)


def features(u: Vectors, v: Vectors) -> Features:
    """Vectors (n, dim) of the first and the second texts -> (n, 4 dim): u, v, |u - v| and u * v (Conneau et al. 2017, section 3.1)."""
    found: Features = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    return found

"""Classification of pairs of texts by a linear probe, as of paraphrases and entailment. See docs/evaluation.md for the protocol."""

from collections.abc import Sequence

import numpy as np

from miner.encoders import Encoder
from miner.evaluation import probe
from miner.evaluation.lines import encode
from miner.evaluation.probe import Features, Result
from miner.evaluation.settings import PairClassificationTask


def evaluate(encoder: Encoder, task: PairClassificationTask) -> Result:
    """Tables of pairs and labels -> how a probe of their vectors labels the pairs to test on. DataError as in `probe.read`."""
    train, test = probe.read(task, task.first_column, task.second_column)
    return probe.run(features(encoder, train.texts), features(encoder, test.texts), train, test)


def features(encoder: Encoder, texts: Sequence[Sequence[str]]) -> Features:
    """Two columns of n texts -> (n, 4 dim): u, v, |u - v| and u * v (Conneau et al. 2017, section 3.1)."""
    vectors = encode(encoder, [*texts[0], *texts[1]], np.float32)
    u, v = vectors[: len(texts[0])], vectors[len(texts[0]) :]
    found: Features = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    return found

"""Classification of texts by a linear probe. See docs/evaluation.md for the protocol."""

import numpy as np

from miner.encoders import Encoder
from miner.evaluation import probe
from miner.evaluation.inputs import encode
from miner.evaluation.probe import ProbeResult
from miner.evaluation.settings import ClassificationTask


def evaluate(encoder: Encoder, task: ClassificationTask) -> ProbeResult:
    """Tables of texts and labels -> how a probe of their vectors labels the texts to test on. DataError as in `probe.read`."""
    train, test = probe.read(task, task.text_column)
    vectors = encode(encoder, [*train.texts[0], *test.texts[0]], np.float32)
    return probe.run(vectors[: len(train.labels)], [vectors[len(train.labels) :]], train, test)

"""Fine-tuning of a transformer to label pairs of texts, by the trainer of `miner train`. See docs/evaluation.md for the protocol."""

import tempfile
from pathlib import Path

from miner.config.commands import EncoderSettings
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import FineTunable
from miner.errors import ConfigError
from miner.evaluation import classifiers
from miner.evaluation.classifiers import LONGEST, Labels
from miner.evaluation.probe import LabelledRows
from miner.evaluation.settings import PairClassificationTask
from miner.training.config import TrainConfig
from miner.training.run import train

COLUMNS = {"first": "first", "second": "second", "label": "label"}
WARMUP, CLIP = 0.1, 1.0  # share of the steps; norm of the gradient: without them large transformers may not get off the ground
NEVER = 1 << 40  # steps: a run that nobody goes on with needs no checkpoints


def predict(encoder: Encoder, task: PairClassificationTask, rows: LabelledRows, test: LabelledRows) -> Labels:
    """Train a copy of the encoder, and a linear layer on it, to label rows -> (n,) the labels it gives the rows to test on.

    ConfigError where the encoder is no transformer. The copy is gone afterwards; it takes the room of the model on disk.
    """
    if not isinstance(encoder, FineTunable):
        raise ConfigError("--fine-tune: only transformers can be fine-tuned; leave it out for a probe, or choose another --encoder")
    with tempfile.TemporaryDirectory(prefix="miner-") as name:
        folder = Path(name)
        _write(folder / "train.tsv", rows)
        done = train(_config(encoder, task, rows, folder / "train.tsv"), str(folder / "run"))
        settings = EncoderSettings(device=str(encoder.device), dtype=encoder.precision, max_tokens=encoder.max_tokens)
        return classifiers.beside(load_encoder(done.encoder, settings)).predict(*test.texts)


def _config(encoder: FineTunable, task: PairClassificationTask, rows: LabelledRows, path: Path) -> TrainConfig:
    labels = sorted(set(rows.labels))
    return TrainConfig.check(
        encoder={
            "kind": "transformer",
            "model": str(encoder.folder),
            "pooling": ", ".join(encoder.recipe.pooling),
            "max_tokens": encoder.max_tokens or LONGEST,
        },
        data=[{"strategy": "labelled_pairs", "files": [str(path)], "columns": COLUMNS, "labels": labels}],
        objective=[{"loss": "classification"}],
        training={
            **{name: getattr(task, name) for name in ("epochs", "lr", "batch_size", "seed")},
            "warmup": WARMUP,
            "clip": CLIP,
            "dtype": encoder.precision,
            "device": str(encoder.device),
            "checkpoint_every": NEVER,
        },
    )


def _write(path: Path, rows: LabelledRows) -> None:
    """Cleaned texts hold no tabs and no line ends."""
    lines = zip(*rows.texts, rows.labels, strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(line) + "\n" for line in (COLUMNS, *lines))

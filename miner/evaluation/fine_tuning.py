"""Fine-tune a transformer to label text pairs, with the trainer of `miner train`. See docs/evaluation.md for the protocol."""

import tempfile
from pathlib import Path

from miner.config.choices import INT8
from miner.config.commands import EncoderSettings
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import FineTunable
from miner.errors import ConfigError
from miner.evaluation import classifiers
from miner.evaluation.classifiers import MAX_PAIR_TOKENS
from miner.evaluation.label_tasks import PairClassificationTask
from miner.evaluation.probe import LabelledRows, Labels
from miner.training.config import TrainConfig
from miner.training.run import train

COLUMNS = {"first": "first", "second": "second", "label": "label"}
WARMUP_SHARE, MAX_GRADIENT_NORM = 0.1, 1.0  # without these, large transformers may diverge
NO_CHECKPOINT_STEPS = 1 << 40  # the run is never resumed


def predict(encoder: Encoder, task: PairClassificationTask, train_rows: LabelledRows, test_rows: LabelledRows) -> Labels:
    """Train a copy of the encoder with a linear layer on the training rows -> (n,) predicted labels of the test rows.

    The copy is deleted afterwards; it needs the disk space of the model. Raise ConfigError if the encoder is not a transformer.
    """
    if not isinstance(encoder, FineTunable):
        raise ConfigError("--fine-tune: only transformers can be fine-tuned; leave it out for a probe, or choose another --encoder")
    if encoder.precision == INT8:
        raise ConfigError(f"--fine-tune: weights cannot be trained in {INT8}; choose another --dtype")
    with tempfile.TemporaryDirectory(prefix="miner-") as name:
        folder = Path(name)
        _write(folder / "train.tsv", train_rows)
        config = _config(encoder, task, train_rows, folder / "train.tsv")
        trained = train(config, str(folder / "run"))
        settings = EncoderSettings(device=str(encoder.device), dtype=encoder.precision, max_tokens=_max_tokens(encoder, task))
        return classifiers.load_saved(load_encoder(trained.encoder, settings)).predict(*test_rows.texts)


def _config(encoder: FineTunable, task: PairClassificationTask, rows: LabelledRows, path: Path) -> TrainConfig:
    labels = sorted(set(rows.labels))
    config: TrainConfig = TrainConfig.check(
        encoder={
            "kind": "transformer",
            "model": str(encoder.folder),
            "pooling": ", ".join(encoder.recipe.pooling),
            "max_tokens": _max_tokens(encoder, task),
            "inference_max_tokens": _max_tokens(encoder, task),
        },
        data=[{"strategy": "labelled_pairs", "files": [str(path)], "columns": COLUMNS, "labels": labels}],
        objective=[{"loss": "classification"}],
        training={
            "epochs": task.epochs,
            "lr": task.lr,
            "batch_size": task.batch_size,
            "seed": task.seed,
            "warmup": WARMUP_SHARE,
            "clip": MAX_GRADIENT_NORM,
            "dtype": encoder.precision,
            "device": str(encoder.device),
            "checkpoint_every": NO_CHECKPOINT_STEPS,
        },
    )
    return config


def _max_tokens(encoder: FineTunable, task: PairClassificationTask) -> int:
    """Return the limit of a pair. It does not depend on that of the encoder, which may have been trained on short sentences."""
    return task.pair_tokens or min(MAX_PAIR_TOKENS, encoder.num_positions or MAX_PAIR_TOKENS)


def _write(path: Path, rows: LabelledRows) -> None:
    """Write TSV. Cleaned texts contain no tabs and no line ends."""
    lines = zip(*rows.texts, rows.labels, strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(line) + "\n" for line in (COLUMNS, *lines))

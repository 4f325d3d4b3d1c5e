"""The files in the output directory of a training run."""

WORK, CHECKPOINTS, ENCODER, LOG, TENSORBOARD = "work", "checkpoints", "encoder", "log.jsonl", "tensorboard"
CONFIG, RESULT = "train.json", "result.json"
OUTPUTS = (WORK, CHECKPOINTS, ENCODER, LOG, TENSORBOARD, CONFIG, RESULT)


def encoder_name(best_by: str = "") -> str:
    """Return the name of the encoder with the best score on held-out data of this name."""
    return f"{ENCODER}-{best_by}" if best_by else ENCODER

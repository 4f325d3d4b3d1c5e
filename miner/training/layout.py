"""The files in the output directory of a training run."""

WORK, CHECKPOINTS, ENCODER, LOG, TENSORBOARD = "work", "checkpoints", "encoder", "log.jsonl", "tensorboard"
CONFIG, RESULT = "train.json", "result.json"
OUTPUTS = (WORK, CHECKPOINTS, ENCODER, LOG, TENSORBOARD, CONFIG, RESULT)

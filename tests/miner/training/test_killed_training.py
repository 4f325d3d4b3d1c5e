"""Training that is killed: whatever it was doing, it goes on to the weights of a run that nobody disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import tiny
import torch
import yaml
from command import miner

from miner.training import checkpoints

STEPS = 60


def write_config(folder: Path) -> Path:
    """Two losses with states of their own, a score every 4 steps, a checkpoint every 3."""
    tiny.save_transformer(folder / "model")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.write_pairs(folder / "dev.tsv", rows=40, seed=5)
    values = tiny.config(folder, steps=STEPS, checkpoint_every=3, log_every=1)
    values["objective"] = [{"loss": "momentum", "queue": 50, "momentum": 0.9}, {"loss": "mlm"}]
    values["evaluation"] = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 4}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder / "config.yaml"


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves, but for what tells of its pace."""
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for line in log:
        line.pop("examples_per_second", None)
    files = {path.name: path.read_bytes() for path in (folder / "encoder").iterdir() if path.is_file()}
    told = json.loads((folder / "result.json").read_text())
    return {"log": log, "files": files, "score": told["score"], "folders": sorted(path.name for path in folder.iterdir())}


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    config, wait = write_config(tmp_path), random.Random(tmp_path.name).uniform(0, 0.5)
    arguments = ["train", str(config), "--output", str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "miner.cli.main", *arguments], stderr=subprocess.DEVNULL, env=environment)
    while process.poll() is None and checkpoints.latest(tmp_path / "killed" / "checkpoints") is None:
        time.sleep(0.01)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert miner(*arguments, "--resume").exit_code == 0
        assert miner(*arguments[:-1], tmp_path / "whole").exit_code == 0
    finally:
        torch.set_num_threads(threads)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_folder_survives_a_kill_between_its_two_renames(tmp_path: Path, renamed: bool) -> None:
    """Of what others left there, nothing is touched."""
    theirs = [".bashrc.old", ".notes.tmp", ".encoder.0123.old"]
    for name in theirs:
        (tmp_path / name).write_text("theirs")
    aside = f".encoder.{uuid.uuid4().hex}"
    (tmp_path / f"{aside}.old").mkdir()
    (tmp_path / f"{aside}.old" / "state").write_text("old")
    (tmp_path / f"{aside}.tmp").mkdir()
    (tmp_path / f".train.json.{uuid.uuid4().hex}.tmp").write_text("{")
    if renamed:
        (tmp_path / "encoder").mkdir()
        (tmp_path / "encoder" / "state").write_text("new")
    checkpoints.mend(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["encoder", *theirs])
    assert (tmp_path / "encoder" / "state").read_text() == ("new" if renamed else "old")

"""Killed training runs: at any moment, resuming ends with the weights of an uninterrupted run."""

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

from miner.training.steps import checkpoints

STEPS = 60


STATEFUL = [{"loss": "momentum", "queue": 50, "momentum": 0.9}, {"loss": "mlm"}]  # losses with a state of their own, and whole tables
SPARSE = [{"loss": "info_nce"}]  # which updates rows of the token table


def write_config(folder: Path, objective: list[dict[str, object]]) -> Path:
    """Write a config with a score every 4 steps and a checkpoint every 3."""
    tiny.save_transformer(folder / "model")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.write_pairs(folder / "dev.tsv", rows=40, seed=5)
    values = tiny.config(folder, steps=STEPS, checkpoint_every=3, log_every=1)
    values["objective"] = objective
    values["evaluation"] = {"files": [str(folder / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 4}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder / "config.yaml"


def read_outputs(folder: Path) -> dict[str, object]:
    """Return everything that a run writes except its speed."""
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for line in log:
        line.pop("examples_per_second", None)
    files = {path.name: path.read_bytes() for path in (folder / "encoder").iterdir() if path.is_file()}
    result = json.loads((folder / "result.json").read_text())
    return {"log": log, "files": files, "score": result["score"], "folders": sorted(path.name for path in folder.iterdir())}


@pytest.mark.slow
@pytest.mark.parametrize("objective", [STATEFUL, SPARSE], ids=["stateful", "sparse"])
def test_killed_and_resumed_run_has_the_outputs_of_an_uninterrupted_run(objective: list[dict[str, object]], tmp_path: Path) -> None:
    config, delay_seconds = write_config(tmp_path, objective), random.Random(tmp_path.name).uniform(0, 0.5)
    arguments = ["train", str(config), "--output", str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "miner.cli.main", *arguments], stderr=subprocess.DEVNULL, env=environment)
    while process.poll() is None and checkpoints.latest(tmp_path / "killed" / "checkpoints") is None:
        time.sleep(0.01)
    time.sleep(delay_seconds)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert miner(*arguments, "--resume").exit_code == 0
        assert miner(*arguments[:-1], tmp_path / "whole").exit_code == 0
    finally:
        torch.set_num_threads(threads)
    assert read_outputs(tmp_path / "killed") == read_outputs(tmp_path / "whole")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_folder_survives_a_kill_between_its_two_renames(tmp_path: Path, is_replaced: bool) -> None:
    """Files with other names are not touched."""
    unrelated = [".bashrc.old", ".notes.tmp", ".encoder.0123.old"]
    for name in unrelated:
        (tmp_path / name).write_text("unrelated")
    temporary = f".encoder.{uuid.uuid4().hex}"
    (tmp_path / f"{temporary}.old").mkdir()
    (tmp_path / f"{temporary}.old" / "state").write_text("old")
    (tmp_path / f"{temporary}.tmp").mkdir()
    (tmp_path / f".train.json.{uuid.uuid4().hex}.tmp").write_text("{")
    if is_replaced:
        (tmp_path / "encoder").mkdir()
        (tmp_path / "encoder" / "state").write_text("new")
    checkpoints.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["encoder", *unrelated])
    assert (tmp_path / "encoder" / "state").read_text() == ("new" if is_replaced else "old")

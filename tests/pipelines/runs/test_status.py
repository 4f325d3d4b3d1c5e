"""`miner status` reads the progress of a run from its files: while it runs, after it was killed, and when it is finished."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny
import yaml
from command import miner, output_of
from square_stage import PYTHONPATH

from miner.io import lock, storage
from miner.training import run
from miner.training.config import TrainConfig
from pipelines.runs.status import read_status

# Report progress, write a heartbeat often, and hang at shard 3.
HANGING_RUN = """
import logging, sys, time
from pathlib import Path
from miner.io import lock
from pipelines.beam.runner import run_pipeline, run_stage
from square_stage import SquareTask, square_stage

class HangingTask(SquareTask):
    def write_shard(self, name):
        if name.startswith("part-00003"):
            print("hanging", flush=True)
            time.sleep(60)
        return super().write_shard(name)

logging.getLogger("pipelines").setLevel(logging.INFO)
folder = Path(sys.argv[1])
with lock.hold(str(folder), heartbeat_seconds=0.1):
    run_pipeline(run_stage(*square_stage(folder / "squares"), HangingTask(folder / "squares")))
"""


def test_status_of_a_run_in_another_process_and_after_its_death(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-c", HANGING_RUN, str(folder)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        time.sleep(1)  # for a heartbeat with the progress
        num_done = sum(path.name.startswith("part-") for path in (folder / "squares/_shards").iterdir())
        stdout = output_of("status", folder, "--json", tmp_path / "status.json")
        run_line, stage_line, progress_line = stdout.splitlines()
        assert run_line.startswith("running: `-c ")
        assert f"(process {process.pid} on " in run_line
        assert stage_line == f"started  squares  {num_done} of 6 shards"
        assert progress_line.startswith(f"now      squares: {num_done} of 6 shards")
        status = json.loads((tmp_path / "status.json").read_text())
        assert (status["alive"], status["run"]["pid"], status["stages"][0]["shards"]) == (True, process.pid, num_done)
        assert (status["run"]["stages"]["squares"]["done"], status["run"]["stages"]["squares"]["total"]) == (num_done, 6)
        process.send_signal(signal.SIGKILL)
    run_line, stage_line, *_ = miner("status", folder).stdout.splitlines()
    assert run_line.startswith("died: ")
    assert run_line.endswith("; run the same command again to resume")
    assert stage_line == f"started  squares  {num_done} of 6 shards"


def test_finished_stages_are_listed(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two\nthree\n")
    assert miner("embed", tmp_path / "text.txt", "--encoder", toy_encoder, "--output", tmp_path / "out").exit_code == 0
    assert miner("status", tmp_path / "out").stdout.splitlines() == [
        "no run is active",
        "done     embeddings  1 shard, 2 rows",
        "done     sentences   1 shard, 2 rows",
    ]


def test_pairs_in_two_formats_are_counted_once_and_dropped_ones_not(toy_encoder: Path, tmp_path: Path) -> None:
    for name, text in (("en.txt", "one\nfour\n"), ("fr.txt", "un\nfour\n")):
        (tmp_path / name).write_text(text)
    sides = (tmp_path / "en.txt", tmp_path / "fr.txt")
    options = ("--threshold", 0, "--filter", "copies=0.5", "--keep-dropped", "--output", tmp_path / "out")
    assert miner("mine", *sides, "--encoder", toy_encoder, *options).exit_code == 0
    kept, dropped = (pq.read_table(tmp_path / "out" / f"{name}.parquet").num_rows for name in ("bitext", "dropped"))
    (bitext,) = [stage for stage in read_status(str(tmp_path / "out")).stages if stage.folder == "."]
    assert (bitext.shards, bitext.rows, dropped) == (1, kept, 1)
    assert bitext.skipped == 0
    assert f"done     .                    1 shard, {kept} row" in miner("status", tmp_path / "out").stdout


def test_a_run_without_stages_is_running(tmp_path: Path) -> None:
    with lock.hold(str(tmp_path / "out")):
        assert miner("status", tmp_path / "out").stdout.startswith("running: ")
    assert storage.names_in(str(tmp_path / "out")) == []


def test_folders_without_output_are_errors(tmp_path: Path) -> None:
    for folder, words in ((tmp_path, "holds no output of `miner`"), (tmp_path / "none", "no such folder")):
        result = miner("status", folder)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert words in result.stderr


@pytest.mark.parametrize(("command", "advice"), [("loop", "with --resume"), ("mine", "again to resume")])
def test_a_dead_run_is_resumed_by_its_command(command: str, advice: str, tmp_path: Path) -> None:
    script = f"import os; from miner.io import lock; held = lock.hold({str(tmp_path)!r}); held.__enter__(); os._exit(0)"
    subprocess.run([sys.executable, "-c", script, command], check=True, env={**os.environ, "PYTHONPATH": PYTHONPATH})
    assert miner("status", tmp_path).stdout.rstrip().endswith(f"; run the same command {advice}")


def test_a_loop_that_was_stopped_before_its_first_stage_has_no_stages(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert miner("status", tmp_path).stdout == "no run is active\n"


def test_training_runs_that_are_stopped_and_finished(tmp_path: Path) -> None:
    """The log of 4 steps has an entry every 2 steps and a score every 4; the run was stopped after its checkpoint at step 3."""
    tiny.save_transformer(tmp_path / "model")
    tiny.write_pairs(tmp_path / "pairs.tsv", rows=20)
    tiny.write_pairs(tmp_path / "dev.tsv", rows=10, seed=5)
    values = tiny.config(tmp_path, steps=4, batch_size=4, checkpoint_every=3, log_every=2)
    values["evaluation"] = {"files": [str(tmp_path / "dev.tsv")], "columns": {"source": "en", "target": "de"}, "every": 2}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(values))
    output = tmp_path / "out"
    trainer, validation = run.prepare(TrainConfig(**values), output)
    trainer.num_steps = 3  # a run that ends before it is finished
    trainer.run(validation)
    scores = [entry["score"] for entry in map(json.loads, (output / "log.jsonl").read_text().splitlines()) if "score" in entry]
    with (output / "log.jsonl").open("a") as file:
        file.write('{"step": 4, "sco')  # a kill while it was written
    assert miner("status", output).stdout.splitlines() == [
        "no run is active; run the same command with --resume",
        f"started  .  3 steps, last score {scores[-1]:.4f}, best {max(scores):.4f}, checkpoint at step 3, encoder so far {output}/encoder",
    ]
    assert miner("train", tmp_path / "train.yaml", "--output", output, "--resume", "--no-report").exit_code == 0
    result = json.loads((output / "result.json").read_text())
    run_line, training_line = miner("status", output).stdout.splitlines()
    assert run_line == "no run is active"
    assert training_line.startswith("done     .  4 steps, last score ")
    assert training_line.endswith(f", best {result['score']:.4f}, encoder {output}/encoder")


def test_status_of_inputs_that_were_edited_or_added(toy_encoder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"one two {name}\n")
    embed = ("embed", tmp_path / "*.txt", "--encoder", toy_encoder, "--output", tmp_path / "out")

    def line() -> str:
        return miner("status", tmp_path / "out").stdout.splitlines()[2]

    miner(*embed)
    assert line() == "done     sentences   1 shard, 2 rows"
    (tmp_path / "c.txt").write_text("three four\n")
    assert line() == "stale    sentences   1 shard, 2 rows, 1 input added since; run the same command again"
    (tmp_path / "a.txt").write_text("five six seven\n")
    assert "1 input edited since, 1 input added since; " in line()
    miner(*embed)
    assert line().startswith("done     sentences ")

"""`miner status` tells how far a run is from another process: while it runs, when it was killed, and when it is done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from command import miner

from miner import lock, storage

ROOT = Path(__file__).parents[3]
SLOW = """
import sys, time
from miner.stages import Stage
from pipelines.beam.runner import run_stage, working_in
from test_runner import Squares, stage_of

class Slow(Squares):
    def write_shard(self, name):
        if name.startswith("part-00003"):
            print("there", flush=True)
            time.sleep(60)
        return super().write_shard(name)

import logging
from pathlib import Path
from miner import lock
lock.BEAT_SECONDS = 0.1
logging.getLogger("pipelines").setLevel(logging.INFO)
folder = Path(sys.argv[1])
with working_in(str(folder)):
    stage, made_from = stage_of(folder / "squares")
    run_stage(stage, made_from, Slow(folder / "squares"))
"""


def test_a_run_is_watched_from_elsewhere_and_its_death_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/pipelines/beam"), str(ROOT)])}
    command = [sys.executable, "-c", SLOW, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        time.sleep(1)  # for a sign of life to tell of it
        made = sum(path.name.startswith("part-") for path in (folder / "squares/_shards").iterdir())
        result = miner("status", folder, "--json", tmp_path / "status.json")
        assert result.exit_code == 0, result.output
        first, stage, now = result.stdout.splitlines()
        assert first.startswith("running: `-c ")
        assert f"(process {process.pid} on " in first
        assert stage == f"begun  squares  {made} of 6 shards"
        assert now == f"now    squares: {made} of 6"
        told = json.loads((tmp_path / "status.json").read_text())
        assert (told["alive"], told["run"]["pid"], told["stages"][0]["shards"]) == (True, process.pid, made)
        process.send_signal(signal.SIGKILL)
    first, stage, *_ = miner("status", folder).stdout.splitlines()
    assert first.startswith("died: ")
    assert first.endswith("; run the same command again to go on")
    assert stage == f"begun  squares  {made} of 6 shards"


def test_what_is_done_is_told(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two\nthree\n")
    assert miner("embed", tmp_path / "text.txt", "--encoder", toy_encoder, "--output", tmp_path / "out").exit_code == 0
    assert miner("status", tmp_path / "out").stdout.splitlines() == [
        "no run is at work here",
        "done   embeddings  1 shards, 2 rows",
        "done   sentences   1 shards, 2 rows",
    ]


def test_pairs_that_stand_in_two_files_are_counted_once(toy_encoder: Path, tmp_path: Path) -> None:
    for name, text in (("en.txt", "one\nfour\n"), ("fr.txt", "un\nquatre\n")):
        (tmp_path / name).write_text(text)
    sides = (tmp_path / "en.txt", tmp_path / "fr.txt")
    assert miner("mine", *sides, "--encoder", toy_encoder, "--threshold", 0, "--output", tmp_path / "out").exit_code == 0
    assert "done   .                    1 shards, 2 rows" in miner("status", tmp_path / "out").stdout.splitlines()


def test_a_run_that_has_just_begun_is_told(tmp_path: Path) -> None:
    with lock.held(str(tmp_path / "out")):
        assert miner("status", tmp_path / "out").stdout.startswith("running: ")
    assert storage.names_in(str(tmp_path / "out")) == []


def test_where_nothing_was_made_is_an_error(tmp_path: Path) -> None:
    for place, words in ((tmp_path, "nothing was made here"), (tmp_path / "none", "no such folder")):
        result = miner("status", place)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert words in result.stderr

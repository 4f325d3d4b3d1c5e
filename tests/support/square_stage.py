"""A stage small enough to check by hand: shard i holds the square of i. Its task can fail in several ways."""

import os
import resource
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from miner.errors import DataError, StorageError
from miner.io import stages, storage
from miner.io.stages import Stage
from pipelines.beam.tasks import RetryPolicy, ShardTask

EXPECTED_SQUARES = {stages.shard_name(index, 6, ".json"): index**2 for index in range(6)}
PYTHONPATH = os.pathsep.join(
    str(path) for path in (Path(__file__).parent, Path(__file__).parents[2])
)  # for processes that import this module


class SquareTask(ShardTask):
    """Write the square of a shard's index and the id of the writing process; optionally fail on one shard.

    `failure`: "error", "no file", "full disk", "bug", "killed" or "killed once" for the shard `failing_shard`; "slow", or "logged" with
    a line of FOLDER.log when it starts and when it ends, for all shards.
    """

    def __init__(self, folder: Path, failing_shard: str = "", failure: str = "") -> None:
        self.folder = str(folder)
        self.failing_shard = failing_shard
        self.failure = failure
        self.num_setups = 0

    def setup(self) -> None:
        self.num_setups += 1
        if self.failing_shard == "setup":
            raise DataError("setup: cannot be done; do something else")

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        if name == self.failing_shard:
            self.fail(name)
        if self.failure == "slow":
            Path(self.folder, f"started-{name}").touch()
            time.sleep(60)
        if self.failure == "logged":
            self.log("start", name)
            time.sleep(1)  # so that an interrupt comes before the end of the job on a busy machine
        assert self.num_setups == 1
        storage.write_json(storage.join(self.folder, name), {"square": stages.shard_index(name) ** 2, "process": os.getpid()})
        if self.failure == "logged":
            self.log("end", name)
        return 1, {"seen": 1}

    def log(self, event: str, name: str) -> None:
        with Path(f"{self.folder}.log").open("a") as file:
            file.write(f"{event} {name}\n")

    def fail(self, name: str) -> None:
        if self.failure == "error":
            raise DataError(f"{name}: broken [sic]; fix it")
        if self.failure == "no file":
            storage.read_bytes(storage.join(self.folder, "missing.txt"))
        if self.failure == "full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # the record of the error cannot be written either
            raise StorageError(f"{name}: No space left on device; free some space")
        if self.failure == "bug":
            raise ZeroDivisionError("a bug")
        died = Path(self.folder, "died")
        if self.failure == "killed" or (self.failure == "killed once" and not died.exists()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def square_stage(folder: Path) -> tuple[Stage, dict[str, str]]:
    """A stage of six shards, and the key of each."""
    stage = Stage(str(folder), "squares", {"of": "numbers"}, {})
    return stage, {name: stage.key() for name in EXPECTED_SQUARES}


def read_squares(folder: Path) -> dict[str, int]:
    return {path.name: storage.read_json(str(path))["square"] for path in folder.glob("part-*")}


def read_processes(folder: Path) -> set[int]:
    return {storage.read_json(str(path))["process"] for path in folder.glob("part-*")}


class TwoAttemptsTask(SquareTask):
    retry_policy = RetryPolicy(attempts=2)

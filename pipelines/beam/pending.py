"""The shards that a job writes: in one file, so that elements, and the functions that Beam sends with them, stay small."""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miner.errors import StorageError
from miner.io import storage
from miner.io.stages import Stage
from pipelines.beam.runner import ShardTask

FILE = "_pending.pickle"
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class PendingShards:
    """The shards {name: key} of a stage that a job writes."""

    stage: Stage
    shard_keys: Mapping[str, str]
    task: ShardTask
    skip_failed: bool = False


@dataclass(frozen=True)
class PendingFile:
    """The file of pending shards, and its checksum: a pickle is only loaded if it is the one that the driver wrote."""

    uri: str
    sha256: str

    @classmethod
    def write(cls, missing: Sequence[PendingShards]) -> "PendingFile":
        """Write the shards of a job to the directory of its first stage."""
        data, uri = pickle.dumps(list(missing)), missing[0].stage.path(FILE)
        with storage.atomic(uri) as handle:
            handle.write(data)
        return cls(uri, hashlib.sha256(data).hexdigest())

    def read(self) -> list[PendingShards]:
        """Read the shards, one entry per stage. Raises StorageError for another file."""
        data = storage.read_bytes(self.uri, MAX_BYTES)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise StorageError(f"{self.uri}: not the file that this run wrote; run one command at a time in a directory")
        missing: list[PendingShards] = pickle.loads(data)
        return missing

"""Checkpoints of a run: weights and optimizer moments as safetensors, the remaining state as JSON. Nothing is pickled."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from miner.errors import DamagedError, StorageError
from miner.io import checksums, records, storage
from miner.io.storage import write_folder
from miner.training.steps.training_log import CheckpointState

WEIGHTS, MOMENTS, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{32}\.(tmp|old)")  # unfinished (tmp), or about to be replaced (old)

logger = logging.getLogger(__name__)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces FOLDER when the block ends, and is removed when the block raises.

    FOLDER then contains the checksums of its files.
    """
    try:
        with write_folder(folder) as temporary:
            yield temporary
            checksums.write(temporary, checksums.user_files(temporary))
    except (OSError, SafetensorError) as error:
        fault = getattr(error, "strerror", None) or error
        raise StorageError(f"{folder}: {fault}; free some space or choose another --output") from error


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process leaves in FOLDER: unfinished files and folders, and folders that were being replaced.

    A replaced folder whose replacement is missing (the process died between the two renames) is restored.
    """
    for path in sorted(folder.glob(".*.*.*")):
        match = TEMPORARY.fullmatch(path.name)
        if match is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: CheckpointState) -> None:
    """Write FOLDER/step-N and remove earlier checkpoints, except the previous one, which replaces a damaged one."""
    name = f"step-{state['progress'].step:09d}"
    with atomic_folder(folder / name) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in _unique_tensors(model).items()}, temporary / WEIGHTS)
        moments = optimizer.state_dict()["state"]
        save_file({f"{index}.{key}": value for index, values in moments.items() for key, value in values.items()}, temporary / MOMENTS)
        (temporary / STATE).write_text(json.dumps({**state, "progress": asdict(state["progress"])}))
    kept = sorted(folder.glob("step-*"))[-2:]
    for path in folder.iterdir():
        if path not in kept:
            shutil.rmtree(path)


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run, or None."""
    checkpoints = sorted(folder.glob("step-*")) if folder.is_dir() else []
    return checkpoints[-1] if checkpoints else None


def load_latest(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState | None:
    """Restore the newest checkpoint that is intact, and return its state; None if there is no checkpoint.

    Raises DamagedError if all are damaged.
    """
    checkpoints = sorted(folder.glob("step-*"), reverse=True) if folder.is_dir() else []
    for number, checkpoint in enumerate(checkpoints, start=1):
        try:
            return load(checkpoint, model, optimizer)
        except DamagedError as error:
            if number == len(checkpoints):
                raise
            logger.warning("%s; resuming from %s", str(error).partition(";")[0], checkpoints[number].name)
    return None


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
    """Restore weights and optimizer moments and return the remaining state; raise StorageError for a damaged checkpoint."""
    remedy = f"delete {checkpoint.parent} and train again"
    checksums.check(checkpoint, remedy)
    try:
        weights, moments = load_file(checkpoint / WEIGHTS), load_file(checkpoint / MOMENTS)
        state: CheckpointState = records.parse(storage.read_json(str(checkpoint / STATE)), CheckpointState, str(checkpoint / STATE), remedy)
        with torch.no_grad():
            for name, tensor in _unique_tensors(model).items():
                tensor.copy_(weights[name])
        moments_by_weight: dict[int, dict[str, Tensor]] = {}
        for name, value in moments.items():
            index, key = name.split(".")
            moments_by_weight.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments_by_weight})
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, RecursionError) as error:
        raise DamagedError(f"{checkpoint}: damaged checkpoint ({error}); delete it and train again") from error
    return state


def _unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer once, under its first name: shared tensors are stored once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}

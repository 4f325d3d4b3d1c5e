"""Checkpoints of a run: weights and optimizer moments as safetensors, the remaining state as JSON. Nothing is pickled."""

import json
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from miner.errors import StorageError

WEIGHTS, MOMENTS, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{32}\.(tmp|old)")  # unfinished (tmp), or about to be replaced (old)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces FOLDER when the block ends, and is removed when the block raises."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    replaced = temporary.with_suffix(".old")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():
            folder.rename(replaced)
        temporary.rename(folder)
    except (OSError, SafetensorError) as error:
        fault = getattr(error, "strerror", None) or error
        raise StorageError(f"{folder}: {fault}; free some space or choose another --output") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


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


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Write FOLDER/step-N and remove earlier checkpoints."""
    name = f"step-{state['step']:09d}"
    with atomic_folder(folder / name) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in _unique_tensors(model).items()}, temporary / WEIGHTS)
        moments = optimizer.state_dict()["state"]
        save_file({f"{index}.{key}": value for index, values in moments.items() for key, value in values.items()}, temporary / MOMENTS)
        (temporary / STATE).write_text(json.dumps(state))
    for path in folder.iterdir():
        if path.name != name:
            shutil.rmtree(path)


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run, or None."""
    checkpoints = sorted(folder.glob("step-*")) if folder.is_dir() else []
    return checkpoints[-1] if checkpoints else None


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restore weights and optimizer moments and return the remaining state; raise StorageError for a damaged checkpoint."""
    try:
        weights, moments = load_file(checkpoint / WEIGHTS), load_file(checkpoint / MOMENTS)
        state: dict[str, Any] = json.loads((checkpoint / STATE).read_text())
        with torch.no_grad():
            for name, tensor in _unique_tensors(model).items():
                tensor.copy_(weights[name])
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise StorageError(f"{checkpoint}: damaged checkpoint ({error}); delete it and train again") from error
    moments_by_weight: dict[int, dict[str, Tensor]] = {}
    for name, value in moments.items():
        index, key = name.split(".")
        moments_by_weight.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments_by_weight})
    return state


def _unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer once, under its first name: shared tensors are stored once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}

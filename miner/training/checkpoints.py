"""Where a run stands, on disk: weights and the optimizer's moments as safetensors, the rest as JSON; nothing is pickled."""

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
ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{32}\.(tmp|old)")  # what is not finished, and what is about to be replaced


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill; it appears whole, in place of an older one, when the block ends, and not at all when the block raises."""
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    old = aside.with_suffix(".old")
    try:
        aside.mkdir(parents=True)
        yield aside
        if folder.exists():
            folder.rename(old)
        aside.rename(folder)
    except (OSError, SafetensorError) as error:
        fault = getattr(error, "strerror", None) or error
        raise StorageError(f"{folder}: {fault}; free some space or choose another --output") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def mend(folder: Path) -> None:
    """Clear FOLDER of what a killed process leaves: unfinished files and folders, and a replaced folder once another is in its place."""
    for left in sorted(folder.glob(".*.*.*")):
        match = ASIDE.fullmatch(left.name)
        if match is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():  # killed between its two renames
            left.rename(folder / match[1])
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Write FOLDER/step-N and remove the checkpoints before it."""
    name = f"step-{state['step']:09d}"
    with atomic_folder(folder / name) as aside:
        save_file({name: tensor.contiguous() for name, tensor in _tensors(model).items()}, aside / WEIGHTS)
        moments = optimizer.state_dict()["state"]
        save_file({f"{place}.{key}": value for place, values in moments.items() for key, value in values.items()}, aside / MOMENTS)
        (aside / STATE).write_text(json.dumps(state))
    for older in folder.iterdir():
        if older.name != name:
            shutil.rmtree(older)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run, if there is one."""
    found = sorted(folder.glob("step-*")) if folder.is_dir() else []
    return found[-1] if found else None


def load(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Put weights and moments back where they were; the rest of the state. StorageError where the checkpoint is damaged."""
    try:
        weights, moments = load_file(checkpoint / WEIGHTS), load_file(checkpoint / MOMENTS)
        state: dict[str, Any] = json.loads((checkpoint / STATE).read_text())
        with torch.no_grad():
            for name, tensor in _tensors(model).items():
                tensor.copy_(weights[name])
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise StorageError(f"{checkpoint}: not a whole checkpoint ({error}); delete it and train again") from error
    packed: dict[int, dict[str, Tensor]] = {}
    for name, value in moments.items():
        place, key = name.split(".")
        packed.setdefault(int(place), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": packed})
    return state


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer once, under its first name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}

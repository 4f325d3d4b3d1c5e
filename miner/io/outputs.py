"""Claim the file that a command writes: no input of it, and nothing that another program wrote.

A directory is claimed by its lock and its records (`miner.io.lock`, `miner.io.stages`).
"""

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from miner import __version__
from miner.errors import ConfigError, StorageError
from miner.io import storage

WRITTEN_BY = "written_by"  # key of a file of --json


def claim_file(output: str, inputs: Iterable[str], is_ours: Callable[[str], bool], option: str = "", other: str = "") -> None:
    """Raise ConfigError unless OUTPUT may be written: it is missing, or `is_ours` says that this command wrote it.

    It is no directory, device or pipe, and, through links and patterns, none of the inputs. `option` starts the message, which proposes
    to do `other` than write this file.
    """
    name, other = f"{option} {output}".strip(), other or f"choose another {option or '--output'}"
    if storage.is_folder(output):
        raise ConfigError(f"{name}: a folder; name a file to write")
    if not storage.exists(output):
        return
    if not storage.is_file(output):
        raise ConfigError(f"{name}: a device or pipe; name a file to write")
    for path in inputs:
        if is_same_file(output, path):
            raise ConfigError(f"{name}: this file is both input and output; {other}")
    if storage.size(output) and not _try(is_ours, output):
        raise ConfigError(f"{name}: this file exists, and this command did not write it; {other}, or remove it")


def is_same_file(uri: str, other: str) -> bool:
    """Whether two names are of one file, through symbolic and hard links; the other may be a pattern, such as `news/*.gz`."""
    try:
        path, other_path = storage.real_path(uri), storage.real_path(other)
    except StorageError:  # no address, but another value of a command that contains `://`
        return False
    if path is None or other_path is None:
        return uri == other or fnmatch.fnmatch(uri, other)
    root = Path(other_path.anchor)
    others = [other_path] if other_path.exists() else root.glob(str(other_path.relative_to(root)))
    return path == other_path or any(path.samefile(match) for match in others)


def check_links(folder: str) -> None:
    """Raise StorageError if a link below a local directory leads out of it: what is written there is a file of somebody else."""
    root = storage.real_path(folder)
    if root is None:
        return
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                link = storage.join(folder, str(path.relative_to(root)))
                raise StorageError(f"{link}: a link out of this output; remove it, or choose another --output")


def mark_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file of --json, by which `are_figures` recognises it."""
    return {**figures, WRITTEN_BY: f"miner {__version__}"}


def are_figures(uri: str) -> bool:
    """Whether a file is one of --json."""
    value = storage.read_json(uri)
    return isinstance(value, dict) and str(value.get(WRITTEN_BY)).startswith("miner ")


def _try(is_ours: Callable[[str], bool], output: str) -> bool:
    """Whether `is_ours` says so; a file that it cannot read is not ours."""
    try:
        return is_ours(output)
    except (StorageError, UnicodeError, OSError, EOFError):
        return False

"""What the evaluations share: lines that keep their numbers, and texts to vectors."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.config.commands import TextSettings
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.settings import AlignedTask
from miner.progress import Progress, report_progress
from miner.text.formats import Fault, read_values
from miner.text.normalise import clean_all
from miner.training.columns import read_columns as columns_of

CHUNK = 8192  # texts encoded between two steps of the progress bar

logger = logging.getLogger(__name__)


def read_lines(uri: str, text_column: str | None = None) -> list[str]:
    """Every line of a text file, cleaned; empty ones stay, so that line i is still line i.

    Raises DataError for a file that is missing or broken, and for the first line that cannot be read: nothing can be dropped here.
    """
    lines: list[str] = []
    for number, values in read_values(uri, TextSettings(text_column=text_column), uri):
        for offset, value in enumerate(values):
            if isinstance(value, Fault):
                raise DataError(f"{uri}:{number + offset}: {value.reason}")
        lines += clean_all([value for value in values if isinstance(value, str)])
    return lines


def read_aligned(task: AlignedTask) -> tuple[list[str], list[str]]:
    """The lines of both sides. DataError where they differ in number, or there is none."""
    sources, targets = read_lines(task.source, task.text_column), read_lines(task.target, task.target_column or task.text_column)
    if len(sources) != len(targets):
        told = f"{task.source} has {len(sources)} lines, {task.target} has {len(targets)}"
        raise DataError(f"{told}; line i of one must translate line i of the other")
    if not sources:
        raise DataError(f"{task.source}: no lines; give a file with a sentence on each line")
    return sources, targets


def read_columns(uri: str, *columns: str | None) -> list[list[str]]:
    """Some columns of a table, cell by cell in the order of its rows; for None, cells that are all `all`.

    DataError where there is no such column or no row, and for a cell with nothing in it.
    """
    wanted = list(dict.fromkeys(column for column in columns if column is not None))
    parts = list(columns_of(uri, wanted))
    if not parts:
        raise DataError(f"{uri}: no rows; check the name")
    cells = {column: [cell for part in parts for cell in part[place]] for place, column in enumerate(wanted)}
    rows = len(cells[wanted[0]])
    return [cells[column] if column is not None else ["all"] * rows for column in columns]


def encode(encoder: Encoder, texts: Sequence[str], dtype: type[np.floating[Any]] = np.float16) -> npt.NDArray[Any]:
    """n texts -> (n, dim) vectors; equal texts are encoded once.

    In float16, as embeddings are stored and searched, where an evaluation searches; in float32 where the vectors are its subject.
    """
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    unique = list(rows)
    vectors = np.zeros((len(unique), encoder.dim), dtype=dtype)
    for start in range(0, len(unique), CHUNK):
        vectors[start : start + CHUNK] = encoder.encode(unique[start : start + CHUNK])
        done = min(start + CHUNK, len(unique))
        report_progress(logger, Progress("encode", done, len(unique), "sentence"))
    return vectors[[rows[text] for text in texts]]

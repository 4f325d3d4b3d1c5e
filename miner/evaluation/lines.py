"""What the evaluations share: lines that keep their numbers, and texts to vectors."""

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from miner.config import TextSettings
from miner.encoders import Encoder
from miner.errors import DataError
from miner.text.formats import Fault, read_values
from miner.text.normalise import clean_all

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


def encode(encoder: Encoder, texts: Sequence[str]) -> npt.NDArray[np.float16]:
    """n texts -> (n, dim) vectors in float16, as embeddings are stored and searched; equal texts are encoded once."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    unique = list(rows)
    vectors = np.zeros((len(unique), encoder.dim), dtype=np.float16)
    for start in range(0, len(unique), CHUNK):
        vectors[start : start + CHUNK] = encoder.encode(unique[start : start + CHUNK])
        done = min(start + CHUNK, len(unique))
        progress = {"stage": "encode", "done": done, "total": len(unique), "unit": "sentence"}
        logger.info("encode: %d of %d sentences", done, len(unique), extra={"progress": progress})
    return vectors[[rows[text] for text in texts]]

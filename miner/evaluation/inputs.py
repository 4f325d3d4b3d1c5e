"""Read the files of evaluations, and encode their texts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats
from miner.config.choices import default_candidates
from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder
from miner.encoders.base import in_language
from miner.encoders.layer_tokens import choose_rescoring_encoder
from miner.encoders.pair import SOURCE, TARGET, PairEncoder
from miner.encoders.token_vectors import TokenVectors
from miner.errors import DataError
from miner.evaluation.lines import read_lines
from miner.evaluation.task_base import AlignedTask, RescoredTask
from miner.mining.late_scores import TokenSides
from miner.progress import Progress, report_progress
from miner.research.datasets.columns import load_columns
from miner.research.datasets.reading import parse_number

CHUNK_TEXTS = 8192  # texts encoded between two updates of the progress bar
STS_COLUMNS = ("sentence1", "sentence2", "score")

logger = logging.getLogger(__name__)


def read_aligned(task: AlignedTask) -> tuple[list[str], list[str]]:
    """Return the lines of both sides. Raise DataError if their numbers differ, or there are none."""
    columns = task.source_column or task.text_column, task.target_column or task.text_column
    if isinstance(task.source, DatasetFiles) or isinstance(task.target, DatasetFiles):
        sources, targets = load_columns(task.source, columns[0] or "source", columns[1] or "target")
        return sources, targets
    sources, targets = read_lines(task.source, columns[0]), read_lines(task.target, columns[1])
    if len(sources) != len(targets):
        sizes = f"{task.source} has {len(sources)} lines, {task.target} has {len(targets)}"
        raise DataError(f"{sizes}; line i of one must translate line i of the other")
    if not sources:
        raise DataError(f"{task.source}: no lines; give a file with one sentence per line")
    return sources, targets


def encode_aligned(
    encoder: Encoder, sources: Sequence[str], targets: Sequence[str], dtype: type[np.floating[Any]] = np.float16
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the vectors (n, dim) and (m, dim) of sources and targets, with the source and the target side of an encoder that has both."""
    source, target = encode_parts(encoder, [TextPart(sources, side=SOURCE), TextPart(targets, side=TARGET)], dtype)
    return source, target


@dataclass(frozen=True, eq=False)
class ScoredTextPairs:
    """An STS table: n pairs of sentences with human scores."""

    first: list[str]
    second: list[str]
    scores: Floats  # (n,)
    tracks: list[str]  # (n,)


def read_scored_pairs(uri: str | DatasetFiles, track_columns: Sequence[str] = ()) -> ScoredTextPairs:
    """Read the columns sentence1, sentence2 and score; rows with equal values in all track columns form a track.

    Raise DataError if a score is not a number.
    """
    first, second, score_cells, *track_cells = load_columns(uri, *STS_COLUMNS, *(track_columns or (None,)))
    scores = np.array([parse_number(cell) for cell in score_cells])
    if not np.isfinite(scores).all():
        row = int(np.isfinite(scores).argmin())
        raise DataError(f"{uri}: score {row + 1} of the table is {score_cells[row]!r}, which is not a number; fix or remove the row")
    return ScoredTextPairs(first, second, scores, ["-".join(values) for values in zip(*track_cells, strict=True)])


@dataclass(frozen=True)
class TextPart:
    """Texts of one language. An encoder with two sides encodes them with the side of `lang` or, where it records none, with `side`."""

    texts: Sequence[str]
    lang: str | None = None
    side: str | None = None


def one_side(encoder: Encoder, side: str) -> Encoder:
    """Return one side of an encoder with two sides; another encoder itself."""
    return encoder.side(side) if isinstance(encoder, PairEncoder) else encoder


def part_encoder(encoder: Encoder, part: TextPart) -> Encoder:
    """Return the encoder of texts of a side and a language. Raise ConfigError where the encoder needs one that is not known."""
    side = encoder.side(encoder.pair.choose_side(part.lang, part.side)) if isinstance(encoder, PairEncoder) else encoder
    return in_language(side, part.lang)


def encode_parts(encoder: Encoder, parts: Sequence[TextPart], dtype: type[np.floating[Any]] = np.float16) -> list[npt.NDArray[Any]]:
    """Return the vectors (n, dim) of each part; those of one side and tag are encoded together. Raise what `part_encoder` raises."""
    encoders = [part_encoder(encoder, part) for part in parts]
    vectors: list[npt.NDArray[Any]] = [np.zeros((0, encoder.dim), dtype=dtype)] * len(parts)
    for own_encoder in {id(each): each for each in encoders}.values():
        numbers = [number for number, each in enumerate(encoders) if each is own_encoder]
        rows = encode(own_encoder, [text for number in numbers for text in parts[number].texts], dtype)
        bounds = np.cumsum([len(parts[number].texts) for number in numbers])[:-1]
        for number, part_rows in zip(numbers, np.split(rows, bounds), strict=True):
            vectors[number] = part_rows
    return vectors


def encode_tokens(encoder: Encoder, source: TextPart, target: TextPart, task: RescoredTask) -> TokenSides | None:
    """Return the tokens of both sides, None if the task does not rescore. Raise ConfigError if it has to, and the encoder cannot."""
    sides: list[TokenVectors] = []
    for part in (source, target):
        token_encoder = choose_rescoring_encoder(part_encoder(encoder, part), task.token_layer, task.rescore)
        if token_encoder is None:
            return None
        sides.append(token_encoder.token_vectors(part.texts))
    num_candidates = task.rescore_candidates or default_candidates([len(source.texts), len(target.texts)])
    return TokenSides(sides[0], sides[1], num_candidates)


def encode(encoder: Encoder, texts: Sequence[str], dtype: type[np.floating[Any]] = np.float16) -> npt.NDArray[Any]:
    """n texts -> (n, dim) vectors; equal texts are encoded once.

    Tasks that search use float16, in which embeddings are stored and searched; tasks that analyse the vectors use float32.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    unique = list(row_of)
    vectors = np.zeros((len(unique), encoder.dim), dtype=dtype)
    for start in range(0, len(unique), CHUNK_TEXTS):
        vectors[start : start + CHUNK_TEXTS] = encoder.encode(unique[start : start + CHUNK_TEXTS])
        done = min(start + CHUNK_TEXTS, len(unique))
        report_progress(logger, Progress("encode", done, len(unique), "sentence"))
    return vectors[[row_of[text] for text in texts]]

"""`miner.score`: the margins of aligned sentences or vectors in memory, as `miner score` computes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa

from miner import encoders
from miner.api.embedding import named
from miner.api.results import TableResult
from miner.api.settings import ScoringOptions, SearchSettings
from miner.api.sides import OpenSide, Side, SideOpener, check_encoders
from miner.encoders import Encoder
from miner.encoders.transformer_parts import choose_device
from miner.errors import DataError
from miner.mining.candidates import means_of
from miner.mining.margin import Floats, margins
from miner.search import exact
from miner.search.exact import pair_similarities
from miner.search.neighbours import Neighbours, VectorBlock, empty_neighbours


@dataclass(frozen=True, eq=False)
class PairScores(TableResult):
    """The margins of n pairs, in their order."""

    margins: Floats  # (n,); NaN if a sentence is empty, too long or without a vector
    similarities: Floats  # (n,)
    texts: tuple[Sequence[str | None], Sequence[str | None]] | None  # n cleaned texts of both sides, None for a dropped one

    def __len__(self) -> int:
        return len(self.margins)

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns margin, similarity and, if there are texts, source_text and target_text."""
        columns = {"margin": pa.array(self.margins), "similarity": pa.array(self.similarities)}
        texts = {} if self.texts is None else dict(zip(("source_text", "target_text"), self.texts, strict=True))
        return pa.table({**columns, **{name: pa.array(side, pa.string()) for name, side in texts.items()}})


def score(
    source: Side,
    target: Side,
    encoder: str | Encoder = encoders.BUILTIN,
    background_source: Side | None = None,
    background_target: Side | None = None,
    **options: Unpack[ScoringOptions],
) -> PairScores:
    """Score pairs by their margin, as `miner score` does: row i of the source and row i of the target are a pair.

    Args:
        source: Sentences, the result of `miner.embed`, or a tuple of ids (n,) and unit vectors (n, dim).
        target: As many of the other side, in any of these forms.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`. Vectors need none.
        background_source: More sentences of the source's side among which neighbours are searched.
        background_target: The same for the other side.
        **options: Those of `miner score` by name: `k`, `margin`, `source_lang`, `target_lang`, `max_chars`, `device` and so on.

    Raises a MinerError for invalid sides or options, or sides of different length.

    Example:
        >>> scores = miner.score(english, german, source_lang="en", target_lang="de")
        >>> good = scores.margins > 1.1
    """
    settings = SearchSettings.check(**named(encoder), **options)
    opener = SideOpener(encoder, settings, {})
    sides = opener.open(source, "source"), opener.open(target, "target")
    if len(sides[0].sentence_of) != len(sides[1].sentence_of):
        raise DataError(
            f"{len(sides[0].sentence_of)} sources and {len(sides[1].sentence_of)} targets; row i of one must be the translation of row i"
        )
    check_encoders(*sides)
    blocks = [side.block for side in sides]
    for number, background in enumerate((background_source, background_target)):
        if background is not None:
            blocks[number] = _merge(sides[number], opener.open(background, ("source", "target")[number]))
    return _score(sides, _search(sides, blocks, settings), settings.margin)


def _merge(side: OpenSide, background: OpenSide) -> VectorBlock:
    """Return the sentences of a side and of its background, each once."""
    check_encoders(side, background)
    ids, rows = np.unique(np.concatenate([side.ids, background.ids]), return_index=True)
    return VectorBlock(ids, np.concatenate([side.block.vectors, background.block.vectors])[rows])


def _search(sides: tuple[OpenSide, OpenSide], blocks: Sequence[VectorBlock], settings: SearchSettings) -> tuple[Neighbours, Neighbours]:
    """Return the neighbours of each side among the block of the other one."""
    search = exact.SearchOptions(str(choose_device(settings.device)))
    source, target = (side.block for side in sides)
    if blocks[0] is source and blocks[1] is target:
        return exact.search_block(source, target, settings.k, search)
    nothing = [empty_neighbours(len(block.ids), settings.k) for block in (source, target)]
    forward = exact.search_forward(source, blocks[1], nothing[0], search)
    return forward, exact.search_forward(target, blocks[0], nothing[1], search)


def _score(sides: tuple[OpenSide, OpenSide], neighbours: tuple[Neighbours, Neighbours], margin: str) -> PairScores:
    """Score row i of both sides, by the neighbours of their sentences."""
    rows = np.stack([side.sentence_of for side in sides])
    is_pair = (rows >= 0).all(axis=0)
    (sources, targets), num_pairs = rows[:, is_pair], rows.shape[1]
    similarities, scores = np.full(num_pairs, np.nan), np.full(num_pairs, np.nan)
    similarities[is_pair] = pair_similarities(sides[0].block.vectors[sources], sides[1].block.vectors[targets])
    means = [means_of(side.ids, nearest).means for side, nearest in zip(sides, neighbours, strict=True)]
    scores[is_pair] = margins(margin, similarities[is_pair], means[0][sources], means[1][targets])
    texts = [None if side.texts is None else [side.texts[row] if row >= 0 else None for row in side.sentence_of] for side in sides]
    return PairScores(scores, similarities, None if texts[0] is None or texts[1] is None else (texts[0], texts[1]))

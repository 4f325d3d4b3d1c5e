"""`miner.score`: the margins of aligned sentences or vectors in memory, as `miner score` computes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa

from miner import encoders
from miner.api.embedding import EncoderLike, check_encoder, find_profile, named
from miner.api.rescoring import ROLES, InMemoryRescoring, choose_rescoring, num_neighbours
from miner.api.results import TableResult
from miner.api.settings import InMemoryScoring, ScoringOptions, SearchSettings, check_names
from miner.api.sides import OpenSide, Side, SideOpener, check_encoders
from miner.arrays import Floats, Ints
from miner.config.commands import PairTextFilters, SentenceFilters
from miner.config.filters import choose
from miner.config.probability import ProbabilityBound
from miner.devices import choose_device
from miner.encoders import Encoder
from miner.errors import ConfigError, DataError
from miner.filters import language
from miner.filters.line_pair_filter import KEPT, NO_SENTENCE, Codes, LinePairFilter, code_of, count_reasons
from miner.mining.candidates import NeighbourMeans, means_of
from miner.mining.late_interaction import late_similarities
from miner.mining.late_scores import TokensById, neighbour_means
from miner.mining.margin import blend, margins
from miner.search import exact
from miner.search.exact import pair_similarities
from miner.search.neighbours import Neighbours, VectorBlock, empty_neighbours


@dataclass(frozen=True, eq=False)
class PairScores(TableResult):
    """The margins of n pairs, in the order of the input: of all of them, or of those that the bounds keep."""

    margins: Floats  # (n,); NaN if a sentence is empty, too long or without a vector
    similarities: Floats  # (n,)
    texts: tuple[Sequence[str | None], Sequence[str | None]] | None  # n cleaned texts of both sides, None for a dropped one
    rows: Ints  # (n,) of the input
    dropped: Mapping[str, int]  # reason -> pairs that the bounds drop

    def __len__(self) -> int:
        return len(self.margins)

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns row, margin, similarity and, if there are texts, source_text and target_text."""
        columns = {"row": pa.array(self.rows), "margin": pa.array(self.margins), "similarity": pa.array(self.similarities)}
        texts = {} if self.texts is None else dict(zip(("source_text", "target_text"), self.texts, strict=True))
        return pa.table({**columns, **{name: pa.array(side, pa.string()) for name, side in texts.items()}})


def score(
    source: Side,
    target: Side,
    encoder: EncoderLike = encoders.BUILTIN,
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
        **options: Those of `miner score` by name: `k`, `margin`, `threshold`, `min_probability`, `top`, `source_lang`, `target_lang`,
            `max_chars`, `device` and so on; `filters` is a list of values of `--filter`. With `threshold`, `min_probability`, `filters` or
            `top`, only the pairs that they keep are returned.

    Raises a MinerError for invalid sides or options, or sides of different length.

    Example:
        >>> scores = miner.score(english, german, source_lang="en", target_lang="de", threshold=1.1, filters=["recommended"])
        >>> scores.to_pandas()[["row", "margin", "source_text", "target_text"]]
    """
    settings = _check_options(encoder := check_encoder(encoder), options)
    opener = SideOpener(encoder, settings)
    sides = opener.open(source, "source"), opener.open(target, "target")
    _check_sides(sides, settings)
    profile = find_profile(encoder, sides[0].fingerprint, settings, [side.lang for side in sides])
    backgrounds = zip(sides, (background_source, background_target), ROLES, strict=True)
    searched = [_merge(side, None if background is None else opener.open(background, role)) for side, background, role in backgrounds]
    rescoring = choose_rescoring(sides, encoder, settings)
    if any(side.texts is None for side in searched):  # a background of vectors
        rescoring = None
    neighbours = _search(sides, searched, settings, num_neighbours(rescoring, settings))
    late = None if rescoring is None else (rescoring, _late_means(sides, searched, neighbours, rescoring))
    probability = profile.of_line_pairs().probability_bound(settings.margin, rescoring is not None, settings.min_probability)
    return _select(_score(sides, neighbours, settings, late), sides, settings, probability)


def _check_options(encoder: str | Encoder, options: ScoringOptions) -> InMemoryScoring:
    """Return the settings. Raises ConfigError if they are invalid, or a filter needs a package that is not installed."""
    check_names(options, ScoringOptions.__annotations__)
    chosen = choose(options.pop("filters", ()), sentence_filters=SentenceFilters, pair_filters=PairTextFilters)
    settings = InMemoryScoring.check(**named(encoder), **options, **chosen)
    language.check_identifier([*settings.sentence_filters.bounds(), *settings.pair_filters.bounds()], settings.lang_id_model)
    return settings


def _check_sides(sides: tuple[OpenSide, OpenSide], settings: InMemoryScoring) -> None:
    """Raise DataError or ConfigError if the sides are no pairs, are of two encoders, or have no texts for a filter; warn of filters."""
    if len(sides[0].sentence_of) != len(sides[1].sentence_of):
        raise DataError(
            f"{len(sides[0].sentence_of)} sources and {len(sides[1].sentence_of)} targets; row i of one must be the translation of row i"
        )
    check_encoders(*sides)
    has_bounds = settings.sentence_filters.bounds() or settings.pair_filters.bounds() or settings.min_probability is not None
    if has_bounds and any(side.texts is None for side in sides):
        raise ConfigError("filters read texts; give sentences or the result of `miner.embed`, or leave the filters out")
    language.warn_if_unrated(settings.pair_filters.bounds(), [side.lang for side in sides], settings.lang_id_model)


@dataclass(frozen=True, eq=False)
class _Searched:
    """The sentences of a side and of its background."""

    block: VectorBlock
    texts: Sequence[str] | None


def _merge(side: OpenSide, background: OpenSide | None) -> _Searched:
    """Return the sentences of a side and of its background, each once."""
    if background is None:
        return _Searched(side.block, side.texts)
    check_encoders(side, background)
    ids, rows = np.unique(np.concatenate([side.ids, background.ids]), return_index=True)
    texts = None if side.texts is None or background.texts is None else [*side.texts, *background.texts]
    block = VectorBlock(ids, np.concatenate([side.block.vectors, background.block.vectors])[rows])
    return _Searched(block, None if texts is None else [texts[row] for row in rows])


def _search(
    sides: tuple[OpenSide, OpenSide], searched: Sequence[_Searched], settings: SearchSettings, k: int
) -> tuple[Neighbours, Neighbours]:
    """Return the k nearest neighbours of each side among the other one and its background."""
    search = exact.SearchOptions(choose_device(settings.device))
    source, target = (side.block for side in sides)
    if searched[0].block is source and searched[1].block is target:
        return exact.search_block(source, target, k, search)
    nothing = [empty_neighbours(len(block.ids), k) for block in (source, target)]
    forward = exact.search_forward(source, searched[1].block, nothing[0], search)
    return forward, exact.search_forward(target, searched[0].block, nothing[1], search)


def _late_means(
    sides: tuple[OpenSide, OpenSide], searched: Sequence[_Searched], neighbours: tuple[Neighbours, Neighbours], rescoring: InMemoryRescoring
) -> list[NeighbourMeans]:
    """Return the means of late interaction of both sides."""
    tokens = [TokensById(side.block.ids, rescoring.tokens(role, side.texts or ())) for role, side in zip(ROLES, searched, strict=True)]
    own = [
        TokensById(side.ids, tokens_of_side.tokens.take(np.searchsorted(tokens_of_side.ids, side.ids)))
        for side, tokens_of_side in zip(sides, tokens, strict=True)
    ]
    k, options = rescoring.settings.k, rescoring.options()
    return [neighbour_means(own[number], neighbours[number], tokens[1 - number], k, options) for number in (0, 1)]


def _score(
    sides: tuple[OpenSide, OpenSide],
    neighbours: tuple[Neighbours, Neighbours],
    settings: SearchSettings,
    late: tuple[InMemoryRescoring, list[NeighbourMeans]] | None,
) -> PairScores:
    """Score row i of both sides, by the neighbours of their sentences."""
    rows = np.stack([side.sentence_of for side in sides])
    is_pair = (rows >= 0).all(axis=0)
    (sources, targets), num_pairs = rows[:, is_pair], rows.shape[1]
    similarities, scores = np.full(num_pairs, np.nan), np.full(num_pairs, np.nan)
    similarities[is_pair] = pair_similarities(sides[0].block.vectors[sources], sides[1].block.vectors[targets])
    means = [means_of(side.ids, nearest, settings.k).means for side, nearest in zip(sides, neighbours, strict=True)]
    scores[is_pair] = margins(settings.margin, similarities[is_pair], means[0][sources], means[1][targets])
    if late is not None:
        rescoring, late_means = late
        source_tokens, target_tokens = (rescoring.tokens(role, side.texts or ()) for role, side in zip(ROLES, sides, strict=True))
        late_scores = late_similarities(source_tokens, target_tokens, sources, targets, rescoring.options())
        late_margins = margins(settings.margin, late_scores, late_means[0].means[sources], late_means[1].means[targets])
        scores[is_pair] = blend(scores[is_pair], late_margins)
    texts = [None if side.texts is None else [side.texts[row] if row >= 0 else None for row in side.sentence_of] for side in sides]
    both = None if texts[0] is None or texts[1] is None else (texts[0], texts[1])
    return PairScores(scores, similarities, both, np.arange(num_pairs), {})


def _select(scores: PairScores, sides: tuple[OpenSide, OpenSide], settings: InMemoryScoring, probability: ProbabilityBound) -> PairScores:
    """Return the pairs that the bounds of the settings keep."""
    line_filter = LinePairFilter.of(settings, (sides[0].lang, sides[1].lang), probability)
    if not line_filter.drops_pairs:
        return scores
    codes = line_filter.check_pairs(_sentence_codes(sides), scores.margins, *(scores.texts or ((), ())))
    codes = line_filter.check_top(codes, scores.margins)
    rows = np.flatnonzero(codes == KEPT)
    kept = scores.to_arrow().take(pa.array(rows))
    texts = None if scores.texts is None else (kept["source_text"].to_pylist(), kept["target_text"].to_pylist())
    return PairScores(scores.margins[rows], scores.similarities[rows], texts, rows, count_reasons(codes))


def _sentence_codes(sides: tuple[OpenSide, OpenSide]) -> Codes:
    """Return (n,) the codes of n pairs by what is known of their sentences: a side without, or what the sentence filters decided."""
    codes = np.full(len(sides[0].sentence_of), KEPT, dtype=np.int8)
    for side in reversed(sides):
        for reason, rows in side.dropped_rows.items():
            codes[rows] = code_of(reason)
    for side in sides:
        has_sentence = side.sentence_of >= 0
        for rows in side.dropped_rows.values():
            has_sentence[rows] = True
        codes[~has_sentence] = code_of(NO_SENTENCE)
    return codes

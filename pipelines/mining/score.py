"""`miner score`: the margin of every line pair of an existing bitext, in their order, repeated pairs included; and which pairs to keep.

The neighbours of a sentence are searched among the sentences of the other side and, if there is one, a larger background; a sentence in
both counts once. So a pair gets the margin that mining those corpora would give it. Text and vectors are read block by block: memory is
bounded by the block of the search and BLOCK_BYTES of vectors, plus 32 bytes per sentence and 9 per line (25 with `top`), and the tokens
of RESCORED_SENTENCES sentences and of their neighbours. Sentence filters drop sentences before the search, as in mining.
"""

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from miner import languages
from miner.arrays import Floats, Ids, Ints
from miner.config.choices import MARGINS
from miner.config.commands import EmbedConfig, EncoderSettings, ScoreConfig, TextSettings
from miner.encoders import choose_side, mining_profile
from miner.errors import ConfigError, DataError
from miner.filters import language
from miner.filters.line_pair_filter import KEPT, LinePairFilter, count_reasons
from miner.io import lock, outputs, storage
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import CANDIDATES, NEIGHBOURS
from miner.io.tables import SCORED
from miner.mining.alignment import ShiftFinder
from miner.mining.candidates import NeighbourMeans, means_of, merge_means
from miner.mining.late_scores import TokensById, neighbour_means, score_pairs
from miner.mining.margin import blend, margins
from miner.search.dense import pair_similarities
from miner.search.neighbours import Neighbours
from miner.text.normalise import sentence_ids
from miner.units import list_counts
from pipelines.beam import workers
from pipelines.beam.runner import claim_output, run_pipeline, together
from pipelines.corpus import embed
from pipelines.mining import inputs, rescore, rescore_choice
from pipelines.mining.line_pairs import LinePairs
from pipelines.mining.rescore import RescoredSide
from pipelines.mining.scored_lines import ENDINGS, SCORES, SELECTED, ScoredLines, ScoreWriter, is_output
from pipelines.mining.summary import describe_side
from pipelines.search import exact
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, read_neighbours

SIDES = ("source", "target")
MIN_NEIGHBOURS = 50  # sentences of a side among which neighbours say something
WORK_NAMES = (*SIDES, "background-", NEIGHBOURS, SELECTED, lock.PREFIX)  # prefixes of the names in the work folder
BLOCK_BYTES = 128 << 20  # vectors of the pairs scored at a time
RESCORED_SENTENCES = 1 << 14  # whose neighbours are rescored at a time
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoreResult:
    """The outcome of `miner score`."""

    output: str
    lines: int
    scored: int  # lines with a margin
    unscored: Mapping[str, int]  # reason -> lines without a margin
    written: int  # lines of the output
    dropped: Mapping[str, int] | None  # reason -> lines that are not in the output; None: there is no bound
    sides: Mapping[str, Mapping[str, int]]  # side -> outcome -> lines, as counted when the text was read
    unique: Mapping[str, int]  # side -> sentences
    quantiles: Mapping[str, float]  # share of the pairs -> margin below which they are
    seconds: Mapping[str, float]

    def summary(self) -> str:
        """Return a few lines for the terminal."""
        unscored = list_counts(self.unscored)
        dropped = list_counts(self.dropped or {})
        quantiles = ", ".join(f"{float(share):.0%} below {margin:.4f}" for share, margin in self.quantiles.items())
        return (
            "\n".join(describe_side(side, self.sides[side], self.unique[side]) for side in SIDES)
            + f"\n{self.lines:,} line pairs: {self.scored:,} scored{unscored and f', {unscored}'}"
            + (f"\nmargins: {quantiles}" if quantiles else "")
            + (f"\n{self.written:,} pairs kept; dropped: {dropped or 'none'}" if self.dropped is not None else "")
        )

    def figures(self) -> dict[str, Any]:
        """Return the result for --json."""
        return asdict(self)


def run(
    config: ScoreConfig, options: Sequence[str] = (), block_bytes: int = BLOCK_BYTES, embedded: Mapping[str, str] | None = None
) -> ScoreResult:
    """Write `config.output`: a line `margin<TAB>source<TAB>target` per line pair of the input, nan if a side has no sentence.

    With a threshold, filters or `top`, only the pairs that these keep are written. A file whose name ends in .parquet is a table of the
    schema `scored_lines.SCORED`. `embedded` maps sides to the embeddings directories of their sentences, if there are any.

    Intermediate results are kept in OUTPUT.work until the end, so that a run that was stopped resumes. Raises the MinerError of invalid
    texts, sides of different length, encoder or backgrounds.
    """
    workers.describe(options).device_type(config.device)  # raises for an unknown one
    bitext = LinePairs.of(config, [*SCORED.names, *([SCORES.name] if config.reasons else [])])
    language.check_identifier([*config.sentence_filters.bounds(), *config.pair_filters.bounds()], config.lang_id_model)
    work = f"{config.output}.work"
    _check_paths(config, bitext, work)
    num_lines = bitext.count_lines()  # raises for an invalid text, before the long part
    backgrounds = _open_backgrounds(config)
    seconds: dict[str, float] = defaultdict(float)
    with _discard_useless(work), claim_output(work):
        embed_text = partial(_embed_text, config, work, options, seconds)
        source, target = (
            open_corpus(embedded[side]) if embedded and side in embedded else embed_text(side, uri, settings)
            for side, uri, settings in zip(SIDES, bitext.uris, bitext.settings, strict=True)
        )
        inputs.check_pair(source, target)
        _check_size({"source": source, "target": target}, config)
        for side, path in config.backgrounds().items():
            if side not in backgrounds:
                backgrounds[side] = embed_text(f"background-{side}", path, config.part(TextSettings))
        for background in backgrounds.values():
            inputs.check_pair(source, background)
        profile = embed.profile_of(config, source)
        langs = source.lang, target.lang
        mining_profile.warn_of_languages(profile, langs)
        language.warn_if_unrated(config.pair_filters.bounds(), langs, config.lang_id_model)
        start = time.perf_counter()
        sides = _search(config, {"source": source, "target": target}, backgrounds, work, options)
        seconds["search"] = time.perf_counter() - start
        start = time.perf_counter()
        probability = profile.of_line_pairs().probability_bound(config.margin, sides[0].rescored is not None, config.min_probability)
        line_filter = LinePairFilter.of(config, langs, probability)
        shifts = ShiftFinder()
        function = partial(_score, config.margin, sides, shifts)
        writer = ScoreWriter(bitext, function, line_filter, max(1, block_bytes // (4 * source.dim)), config.reasons)
        scored = writer.write(config.output, work, num_lines)
        seconds["score"] = time.perf_counter() - start
        shifts.warn(bitext.uris)
    storage.remove(work)
    return _result(config, scored, line_filter.drops_pairs, (source, target), seconds)


@contextlib.contextmanager
def _discard_useless(work: str) -> Iterator[None]:
    """Remove what a first run leaves if the texts or settings are invalid: the same command cannot resume it."""
    is_new = not storage.exists(work)
    try:
        yield
    except (ConfigError, DataError):
        if is_new:
            storage.remove(work)
        raise


def _check_size(corpora: Mapping[str, Corpus], config: ScoreConfig) -> None:
    """Refuse sides of one sentence without a background, whose margins are all 1, and warn of small ones."""
    for side, corpus in corpora.items():
        if side in config.backgrounds() or corpus.rows >= MIN_NEIGHBOURS:
            continue
        remedy = f"give more text of that side as --background-{side}"
        if corpus.rows == 1 and MARGINS[config.margin].is_relative:
            raise DataError(f"{side}: one sentence, so a margin compares a pair with itself alone; {remedy}")
        logger.warning("%s: margins compare pairs with the neighbours among only %d sentences; %s", side, corpus.rows, remedy)


def _check_paths(config: ScoreConfig, bitext: LinePairs, work: str) -> None:
    """Raise ConfigError if the output is no file or would overwrite an input, or the work folder has other files."""
    outputs.claim_file(config.output, [*bitext.uris, *config.backgrounds().values()], is_output)
    if not config.output.endswith(ENDINGS):
        raise ConfigError(f"{config.output}: unknown kind of file; name one that ends in {', '.join(ENDINGS)}")
    foreign = [name for name in storage.names_in(work) if not name.startswith(WORK_NAMES)]
    if foreign:
        raise ConfigError(f"{work}: contains {foreign[0]}, which `miner score` did not write; move it, or choose another --output")


def _open_backgrounds(config: ScoreConfig) -> dict[str, Corpus]:
    """Open the backgrounds that are folders, and check their encoder; check the backgrounds that are text."""
    for code in (config.source_lang, config.target_lang):
        languages.canonical(code)  # ConfigError
    backgrounds = {}
    for side, path in config.backgrounds().items():
        if inputs.is_folder(path):
            backgrounds[side] = inputs.open_folder(path)
            inputs.check_encoder(backgrounds[side], config)
        else:
            inputs.check_text(path, config)
    return backgrounds


def _embed_text(
    config: ScoreConfig, work: str, options: Sequence[str], seconds: dict[str, float], name: str, text: str, settings: TextSettings
) -> Corpus:
    """Embed a text as the corpus WORK/`name`, and add up the seconds by stage."""
    output = storage.join(work, name)
    side, lang = ("source", config.source_lang) if name.endswith("source") else ("target", config.target_lang)
    embed_settings = {**config.shared(EmbedConfig), **dict(settings), **dict(choose_side(config, lang, default=side))}
    embed_settings |= {"inputs": (text,), "output": output, "lang": lang, "replace": True}
    result = embed.run(EmbedConfig(**embed_settings), options)
    for stage, spent in result.seconds.items():
        seconds[stage] += spent
    return open_corpus(output)


@dataclass(frozen=True)
class _SearchedSide:
    """One side with the mean similarities of its sentences to their neighbours."""

    corpus: Corpus
    means: NeighbourMeans
    rescored: RescoredSide | None
    late_means: NeighbourMeans  # if it is rescored


def _search(
    config: ScoreConfig, corpora: Mapping[str, Corpus], backgrounds: Mapping[str, Corpus], work: str, options: Sequence[str]
) -> tuple[_SearchedSide, _SearchedSide]:
    """Search each side among the other side and its background. Return the source and the target."""
    source, target = corpora["source"], corpora["target"]
    encoder, folders = config.part(EncoderSettings), (storage.join(work, NEIGHBOURS, FORWARD), storage.join(work, CANDIDATES))
    rescoring = rescore_choice.choose(config, config.k, encoder, (source, target), folders)
    num_neighbours = config.k if rescoring is None else rescoring.num_neighbours(config.k)
    searched = {NEIGHBOURS: (source, target)}  # folder -> the two sides that are searched
    if "target" in backgrounds:
        searched[f"{NEIGHBOURS}-in-target"] = (source, backgrounds["target"])
    if "source" in backgrounds:
        searched[f"{NEIGHBOURS}-in-source"] = (backgrounds["source"], target)
    requests = {name: SearchRequest(*sides, num_neighbours, config.device) for name, sides in searched.items()}
    run_pipeline(together({name: exact.run(request, storage.join(work, name)) for name, request in requests.items()}), options)
    sides = []
    for side, other, direction in (("source", "target", FORWARD), ("target", "source", BACKWARD)):
        names = [name for name in (NEIGHBOURS, f"{NEIGHBOURS}-in-{other}") if name in searched]
        rescored, others = None, list[RescoredSide]()
        if rescoring is not None:
            background = [backgrounds[other]] if other in backgrounds else []
            rescored, *others = rescore.rescored_sides([corpora[side], corpora[other], *background], encoder, rescoring)
        means, late_means = [], []
        for shard in corpora[side].shards:
            ids, neighbours = _read_merged([storage.join(work, name, direction) for name in names], shard.name)
            means.append(means_of(ids, neighbours, config.k))
            if rescored is not None:
                late_means += _late_means(rescored, others, ids, neighbours, config.k)
        sides.append(_SearchedSide(corpora[side], merge_means(means), rescored, merge_means(late_means)))
    return sides[0], sides[1]


def _late_means(side: RescoredSide, others: Sequence[RescoredSide], ids: Ids, neighbours: Neighbours, k: int) -> list[NeighbourMeans]:
    """Rescore the neighbours (n, c) of sentences (n,), and return the means of the k largest of each."""
    means = []
    is_fast = side.token_layer is None or side.is_stored
    step = RESCORED_SENTENCES if is_fast else max(1, len(ids))  # a transformer encodes each sentence of a shard once
    for start in range(0, len(ids), step):
        rows = np.arange(start, min(start + step, len(ids)))
        block = neighbours.take(rows)
        other_ids = np.unique(block.ids[block.is_neighbour])
        sentences, tokens = (TokensById(ids[rows], side.tokens_of(ids[rows])), TokensById(other_ids, rescore.tokens_in(others, other_ids)))
        means.append(neighbour_means(sentences, block, tokens, k, side.device()))
    return means


def _read_merged(folders: Sequence[str], name: str) -> tuple[Ids, Neighbours]:
    """Return the sentences of a shard and their neighbours in all searches."""
    ids, neighbours = read_neighbours(folders[0], name)
    for folder in folders[1:]:
        neighbours = _merge_overlapping(neighbours, read_neighbours(folder, name)[1])
    return ids, neighbours


def _merge_overlapping(neighbours: Neighbours, others: Neighbours) -> Neighbours:
    """Return the k nearest of both, where a sentence may be in both."""
    is_same = (others.ids[:, :, None] == neighbours.ids[:, None, :]) & neighbours.is_neighbour[:, None, :]
    return neighbours.merge(replace(others, similarities=np.where(is_same.any(axis=2), np.nan, others.similarities)))


def _score(
    margin: str,
    sides: tuple[_SearchedSide, _SearchedSide],
    shifts: ShiftFinder,
    lines: Ints,
    source_texts: list[str],
    target_texts: list[str],
) -> tuple[Floats, Floats]:
    """Return the similarities and the margins (n,) of pairs of texts (n,), blended with late interaction if the sides are rescored."""
    source, target = sides
    source_ids, target_ids = sentence_ids(source_texts), sentence_ids(target_texts)
    vectors = source.corpus.vectors_of(source_ids), target.corpus.vectors_of(target_ids)
    similarities = pair_similarities(*vectors)
    shifts.add(lines, similarities, *vectors)
    scores = margins(margin, similarities, source.means.of(source_ids), target.means.of(target_ids))
    if source.rescored is None or target.rescored is None:
        return similarities, scores
    source_tokens, target_tokens = (
        side.tokens_of(ids) if side.is_stored else side.token_vectors(texts)
        for side, ids, texts in ((source.rescored, source_ids, source_texts), (target.rescored, target_ids, target_texts))
    )
    rows = np.arange(len(source_ids))
    late = score_pairs(source_tokens, target_tokens, rows, rows, source.rescored.device())
    return similarities, blend(scores, margins(margin, late, source.late_means.of(source_ids), target.late_means.of(target_ids)))


def _result(
    config: ScoreConfig, scored: ScoredLines, drops_pairs: bool, corpora: tuple[Corpus, Corpus], seconds: Mapping[str, float]
) -> ScoreResult:
    defined = scored.margins[np.isfinite(scored.margins)]
    quantiles = np.quantile(defined, QUANTILES).tolist() if len(defined) else []
    reasons, unscored = count_reasons(scored.codes), count_reasons(scored.codes[np.isnan(scored.margins)])
    return ScoreResult(
        output=config.output,
        lines=len(scored.margins),
        scored=int((~np.isnan(scored.margins)).sum()),
        unscored=unscored,
        written=int((scored.codes == KEPT).sum()) if drops_pairs else len(scored.margins),
        dropped=reasons if drops_pairs else None,
        sides={side: corpus.counts for side, corpus in zip(SIDES, corpora, strict=True)},
        unique={side: corpus.rows for side, corpus in zip(SIDES, corpora, strict=True)},
        quantiles=dict(zip(map(str, QUANTILES), quantiles, strict=False)),
        seconds={name: round(spent, 3) for name, spent in seconds.items()},
    )

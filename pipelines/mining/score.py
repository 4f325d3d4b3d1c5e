"""`miner score`: the margin of every line pair of an existing bitext, in their order, repeated pairs included.

The neighbours of a sentence are searched among the sentences of the other side and, if there is one, a larger background; a sentence in
both counts once. So a pair gets the margin that mining those corpora would give it. Text and vectors are read block by block: memory is
bounded by the block of the search and BLOCK_BYTES of vectors, plus 32 bytes per sentence, and the tokens of RESCORED_SENTENCES sentences
and of their neighbours.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from miner import languages, lock, storage
from miner.config.commands import EmbedConfig, EncoderSettings, ScoreConfig, TextSettings
from miner.corpus import Corpus, open_corpus
from miner.encoders import choose_side
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, DataError
from miner.mining import writers
from miner.mining.candidates import Ids, NeighbourMeans, means_of, merge_means
from miner.mining.late_interaction import late_similarities
from miner.mining.late_scores import TokensById, neighbour_means
from miner.mining.margin import Floats, blend, margins
from miner.progress import Progress, report_progress
from miner.search.exact import pair_similarities
from miner.search.neighbours import Neighbours
from miner.text import readers
from miner.text.normalise import sentence_ids
from miner.text.pairs import Lines, read_pairs
from pipelines.beam.runner import claim_output
from pipelines.corpus import embed
from pipelines.mining import inputs, rescore
from pipelines.mining.rescore import RescoredSide, Rescoring
from pipelines.search import exact
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, read_neighbours

SIDES = ("source", "target")
WORK_NAMES = (*SIDES, "background-", "neighbours", lock.PREFIX)  # prefixes of the names in the work folder
BLOCK_BYTES = 128 << 20  # vectors of the pairs scored at a time
RESCORED_SENTENCES = 1 << 14  # whose neighbours are rescored at a time
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoreResult:
    """The outcome of `miner score`."""

    output: str
    lines: int
    scored: int
    dropped: int  # lines with a side that is empty, invalid or too long
    without_margin: int  # pairs of sentences for which the encoder has no vector
    unique: Mapping[str, int]  # side -> sentences
    quantiles: Mapping[str, float]  # share of the pairs -> margin below which they are
    seconds: Mapping[str, float]

    def summary(self) -> str:
        """Return a few lines for the terminal."""
        not_scored = ((self.dropped, "dropped"), (self.without_margin, "without a margin"))
        counts = [f"{self.scored:,} scored", *(f"{count:,} {name}" for count, name in not_scored if count)]
        quantiles = ", ".join(f"{float(share):.0%} below {margin:.4f}" for share, margin in self.quantiles.items())
        seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.seconds.items())
        return (
            f"{self.lines:,} line pairs: {', '.join(counts)}\n"
            f"unique sentences: {self.unique['source']:,} and {self.unique['target']:,}\n"
            + (f"margins: {quantiles}\n" if quantiles else "")
            + f"{sum(self.seconds.values()):.1f} s: {seconds}\n"
            f"file: {self.output}"
        )

    def figures(self) -> dict[str, Any]:
        """Return the result for --json."""
        return asdict(self)


def run(config: ScoreConfig, options: Sequence[str] = (), block_bytes: int = BLOCK_BYTES) -> ScoreResult:
    """Write `config.output`: a line `margin<TAB>source<TAB>target` per line pair of the input; nan if a side is dropped.

    Intermediate results are kept in OUTPUT.work until the end, so that a run that was stopped resumes. Raises the MinerError of invalid
    texts, sides of different length, encoder or backgrounds.
    """
    choose_device(config.device)
    if storage.is_folder(config.output):
        raise ConfigError(f"{config.output}: a folder; name a file to write")
    bitext = _LinePairs.of(config)
    num_lines = bitext.count_lines()  # raises for an invalid text, before the long part
    work = f"{config.output}.work"
    _check_paths(config, bitext, work)
    backgrounds = _open_backgrounds(config)
    seconds: dict[str, float] = defaultdict(float)
    with claim_output(work):
        embedding = _Embedding(config, work, seconds, options)
        source, target = (embedding.corpus(*names) for names in zip(SIDES, bitext.uris, bitext.settings, strict=True))
        for side, path in config.backgrounds().items():
            if side not in backgrounds:
                backgrounds[side] = embedding.corpus(f"background-{side}", path, config.part(TextSettings))
        for background in backgrounds.values():
            inputs.check_pair(source, background)
        start = time.perf_counter()
        sides = _Search(source, target, backgrounds, config, work).run(options)
        seconds["search"] = time.perf_counter() - start
        start = time.perf_counter()
        scores = _write_scores(config, bitext, sides, num_lines, max(1, block_bytes // (4 * source.dim)))
        seconds["score"] = time.perf_counter() - start
    storage.remove(work)
    return _result(config, num_lines, scores, (source, target), seconds)


def _check_paths(config: ScoreConfig, bitext: "_LinePairs", work: str) -> None:
    """Raise ConfigError if the output would overwrite an input, or the work folder has other files."""
    input_paths = {storage.filesystem(path)[1] for path in (*bitext.uris, *config.backgrounds().values())}
    if storage.filesystem(config.output)[1] in input_paths:
        raise ConfigError(f"{config.output}: both input and output; choose another --output")
    foreign = [name for name in storage.names_in(work) if not name.startswith(WORK_NAMES)]
    if foreign:
        raise ConfigError(f"{work}: contains {foreign[0]}, which `miner score` did not write; move it, or choose another --output")


@dataclass(frozen=True)
class _LinePairs:
    """The files or columns of the two sides."""

    uris: tuple[str, str]
    settings: tuple[TextSettings, TextSettings]

    @classmethod
    def of(cls, config: ScoreConfig) -> "_LinePairs":
        paths = [config.source, config.source if config.target is None else config.target]
        uris = [readers.expand([path]) for path in paths]
        for path, files in zip(paths, uris, strict=True):
            if files == [readers.STDIN]:
                raise ConfigError("standard input cannot be scored, because it is read more than once; give a file")
            if len(files) > 1:
                raise ConfigError(f"{path}: matches {len(files)} files; a bitext has one file per side")
        source, target = uris[0][0], uris[1][0]
        return cls((source, target), (config.side_text("source", source), config.side_text("target", target)))

    def read(self) -> Iterator[tuple[Lines, Lines]]:
        return read_pairs(*self.uris, self.settings)

    def blocks(self, num_lines: int) -> Iterator[tuple[Lines, Lines]]:
        """Yield the line pairs, at least `num_lines` at a time but for the last."""
        pending: tuple[Lines, Lines] = [], []
        for sources, targets in self.read():
            pending[0].extend(sources)
            pending[1].extend(targets)
            if len(pending[0]) >= num_lines:
                yield pending
                pending = [], []
        if pending[0]:
            yield pending

    def count_lines(self) -> int:
        """Return the number of line pairs. DataError if one side has no sentence."""
        num_lines = 0
        num_sentences = [0, 0]
        for block in self.read():
            num_lines += len(block[0])
            num_sentences = [count + sum(map(bool, side)) for count, side in zip(num_sentences, block, strict=True)]
        for uri, settings, count in zip(self.uris, self.settings, num_sentences, strict=True):
            if not count:
                column = f" of column {settings.text_column}" if settings.text_column else ""
                raise DataError(f"{uri}: no sentence in {num_lines} lines{column}; give a text with sentences")
        return num_lines


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


@dataclass(frozen=True)
class _Embedding:
    """Embeds texts under the work folder, and adds up the seconds."""

    config: ScoreConfig
    work: str
    seconds: dict[str, float]
    options: Sequence[str]

    def corpus(self, name: str, text: str, settings: TextSettings) -> Corpus:
        """Embed a text as the corpus WORK/`name`."""
        output = storage.join(self.work, name)
        side, lang = ("source", self.config.source_lang) if name.endswith("source") else ("target", self.config.target_lang)
        embed_settings = {**dict(settings), **dict(choose_side(self.config.part(EncoderSettings), lang, default=side))}
        result = embed.run(EmbedConfig(inputs=(text,), output=output, lang=lang, **embed_settings), self.options)
        for stage, seconds in result.seconds.items():
            self.seconds[stage] += seconds
        return open_corpus(output)


@dataclass(frozen=True)
class _SearchedSide:
    """One side with the mean similarities of its sentences to their neighbours."""

    corpus: Corpus
    means: NeighbourMeans
    rescored: RescoredSide | None
    late_means: NeighbourMeans  # if it is rescored


@dataclass(frozen=True)
class _Search:
    """The search of both sides, each among the other side and its background."""

    source: Corpus
    target: Corpus
    backgrounds: Mapping[str, Corpus]
    config: ScoreConfig
    work: str

    @cached_property
    def rescoring(self) -> Rescoring | None:
        """How the neighbours are rescored."""
        folders = storage.join(self.work, "neighbours", FORWARD), storage.join(self.work, "candidates")
        return rescore.choose(self.config, self.config.k, self.config.part(EncoderSettings), self.source, folders)

    @property
    def requests(self) -> dict[str, tuple[Corpus, Corpus]]:
        """Folder -> the two sides that are searched."""
        requests = {"neighbours": (self.source, self.target)}
        if "target" in self.backgrounds:
            requests["neighbours-in-target"] = (self.source, self.backgrounds["target"])
        if "source" in self.backgrounds:
            requests["neighbours-in-source"] = (self.backgrounds["source"], self.target)
        return requests

    def run(self, options: Sequence[str]) -> tuple[_SearchedSide, _SearchedSide]:
        """Search both directions. Return the source and the target."""
        num_neighbours = self.config.k if self.rescoring is None else self.rescoring.num_neighbours(self.config.k)
        for name, sides in self.requests.items():
            exact.run(SearchRequest(*sides, num_neighbours, self.config.device), storage.join(self.work, name), options)
        return self._side("source", FORWARD), self._side("target", BACKWARD)

    def _side(self, name: str, direction: str) -> _SearchedSide:
        corpus, other, k = getattr(self, name), "target" if name == "source" else "source", self.config.k
        names = [request for request in ("neighbours", f"neighbours-in-{other}") if request in self.requests]
        folders = [storage.join(self.work, request, direction) for request in names]
        rescored, others = None, list[RescoredSide]()
        if self.rescoring is not None:
            encoder, background = self.config.part(EncoderSettings), self.backgrounds.get(other)
            rescored = RescoredSide.of(corpus, encoder)
            others = [RescoredSide.of(side, encoder) for side in (getattr(self, other), background) if side is not None]
        means, late_means = [], []
        for shard in corpus.shards:
            ids, neighbours = _read_merged(folders, shard.name)
            means.append(means_of(ids, neighbours, k))
            if rescored is not None:
                late_means += _late_means(rescored, others, ids, neighbours, k)
        return _SearchedSide(corpus, merge_means(means), rescored, merge_means(late_means))


def _late_means(side: RescoredSide, others: Sequence[RescoredSide], ids: Ids, neighbours: Neighbours, k: int) -> list[NeighbourMeans]:
    """Rescore the neighbours (n, c) of sentences (n,), and return the means of the k largest of each."""
    means = []
    for start in range(0, len(ids), RESCORED_SENTENCES):
        rows = np.arange(start, min(start + RESCORED_SENTENCES, len(ids)))
        block = neighbours.take(rows)
        other_ids = np.unique(block.ids[block.is_neighbour])
        sentences, tokens = (TokensById(ids[rows], side.tokens_of(ids[rows])), TokensById(other_ids, rescore.tokens_in(others, other_ids)))
        means.append(neighbour_means(sentences, block, tokens, k, side.options()))
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


def _write_scores(
    config: ScoreConfig, bitext: _LinePairs, sides: tuple[_SearchedSide, _SearchedSide], num_lines: int, block_lines: int
) -> Floats:
    """Write the output. Return the margin of each line: NaN if it is undefined, infinite if the line is dropped."""
    blocks = []
    num_done = 0
    with writers.text_writer(config.output) as file:
        for source_texts, target_texts in bitext.blocks(block_lines):
            lines = list(zip(source_texts, target_texts, strict=True))
            rows = np.flatnonzero([bool(source_text and target_text) for source_text, target_text in lines])
            scores = np.full(len(lines), np.inf)
            scores[rows] = _margins(config.margin, sides, *([str(texts[row]) for row in rows] for texts in (source_texts, target_texts)))
            shown = np.where(np.isinf(scores), np.nan, scores).tolist()
            file.writelines(
                f"{margin:.8f}\t{source_text or ''}\t{target_text or ''}\n"
                for margin, (source_text, target_text) in zip(shown, lines, strict=True)
            )
            blocks.append(scores)
            num_done += len(lines)
            report_progress(logger, Progress("score", num_done, num_lines, "line"))
    return np.concatenate([np.zeros(0), *blocks])


def _margins(margin: str, sides: tuple[_SearchedSide, _SearchedSide], source_texts: list[str], target_texts: list[str]) -> Floats:
    """Return the margins (n,) of pairs of texts (n,), blended with late interaction if the sides are rescored."""
    source, target = sides
    source_ids, target_ids = sentence_ids(source_texts), sentence_ids(target_texts)
    similarities = pair_similarities(source.corpus.vectors_of(source_ids), target.corpus.vectors_of(target_ids))
    scores = margins(margin, similarities, source.means.of(source_ids), target.means.of(target_ids))
    if source.rescored is None or target.rescored is None:
        return scores
    rows, tokens = np.arange(len(source_ids)), (source.rescored.token_vectors(source_texts), target.rescored.token_vectors(target_texts))
    late = late_similarities(*tokens, rows, rows, source.rescored.options())
    return blend(scores, margins(margin, late, source.late_means.of(source_ids), target.late_means.of(target_ids)))


def _result(
    config: ScoreConfig, num_lines: int, scores: Floats, corpora: tuple[Corpus, Corpus], seconds: Mapping[str, float]
) -> ScoreResult:
    defined = scores[np.isfinite(scores)]
    quantiles = np.quantile(defined, QUANTILES).tolist() if len(defined) else []
    return ScoreResult(
        output=config.output,
        lines=num_lines,
        scored=len(defined),
        dropped=int(np.isinf(scores).sum()),
        without_margin=int(np.isnan(scores).sum()),
        unique={side: corpus.rows for side, corpus in zip(SIDES, corpora, strict=True)},
        quantiles=dict(zip(map(str, QUANTILES), quantiles, strict=False)),
        seconds={name: round(spent, 3) for name, spent in seconds.items()},
    )

"""The margin of every line pair of an existing bitext: line i of one text with line i of the other, in their order, repeats and all.

The neighbours of a sentence are looked for among the sentences of the other side and, where there is one, a larger background; what stands
in both counts once. So a pair gets the margin that mining those corpora would give it. Text and vectors are read in stretches: memory is
bounded by the block of the search and STRETCH bytes of vectors, beside 16 bytes for each sentence.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from miner import languages, lock, storage
from miner.config.commands import EmbedConfig, EncoderSettings, ScoreConfig, TextSettings
from miner.corpus import Corpus, open_corpus
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, DataError
from miner.mining import writers
from miner.mining.candidates import Ids, NeighbourMeans, all_means, means_of
from miner.mining.margin import Floats, margins
from miner.progress import Progress, report_progress
from miner.search.neighbours import Neighbours
from miner.text import readers
from miner.text.normalise import sentence_ids
from miner.text.pairs import Lines, read_pairs
from pipelines.beam.runner import claim_output
from pipelines.corpus import embed
from pipelines.mining import inputs as inputs_module
from pipelines.search import exact
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, read_neighbours

SIDES = ("source", "target")
WORKED = (*SIDES, "background-", "neighbours", lock.PREFIX)  # how the names begin that lie in the folder of the work
STRETCH = 128 << 20  # bytes of the vectors of the pairs scored at a time
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScoreResult:
    """What `miner score` did."""

    output: str
    lines: int
    scored: int
    dropped: int  # lines with a side that is empty, invalid or too long
    without_margin: int  # pairs of sentences to which the encoder gives no vector
    unique: Mapping[str, int]  # sentences, by side
    quantiles: Mapping[str, float]  # of the margins: share of the pairs -> margin below which they are
    seconds: Mapping[str, float]

    def summary(self) -> str:
        """A few lines for a person."""
        told = [f"{count:,} {name}" for name, count in (("dropped", self.dropped), ("without a margin", self.without_margin)) if count]
        spread = ", ".join(f"{float(share):.0%} below {margin:.4f}" for share, margin in self.quantiles.items())
        return (
            f"{self.lines:,} line pairs: {', '.join([f'{self.scored:,} scored', *told])}\n"
            f"unique sentences: {self.unique['source']:,} and {self.unique['target']:,}\n"
            + (f"margins: {spread}\n" if spread else "")
            + f"{sum(self.seconds.values()):.1f} s: {', '.join(f'{name} {spent:.1f} s' for name, spent in self.seconds.items())}\n"
            f"file: {self.output}"
        )

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


def run(config: ScoreConfig, options: Sequence[str] = ()) -> ScoreResult:
    """Write `config.output`, a line `margin<TAB>source<TAB>target` for each line pair of the input; nan where a side is dropped.

    What is made on the way lies in OUTPUT.work until the end, so that a run that was stopped goes on. Raises the MinerError of whatever
    cannot work: texts, sides of different length, encoder, backgrounds.
    """
    choose_device(config.device)
    if storage.is_folder(config.output):
        raise ConfigError(f"{config.output}: a folder; name a file to write")
    bitext = _Bitext.of(config)
    lines = bitext.count_lines()  # raises what is wrong with them before the long part
    work = f"{config.output}.work"
    _check_places(config, bitext, work)
    backgrounds = _open_backgrounds(config)
    seconds: Counter[str] = Counter()
    with claim_output(work):
        embedding = _Embedding(config, work, seconds, options)
        corpora = [embedding.of(side, bitext.places[at], bitext.settings[at]) for at, side in enumerate(SIDES)]
        for side, place in config.backgrounds().items():
            if side not in backgrounds:
                backgrounds[side] = embedding.of(f"background-{side}", place, config.part(TextSettings))
        for background in backgrounds.values():
            inputs_module.check_pair(corpora[0], background)
        start = time.perf_counter()
        means = _means(corpora, backgrounds, config, work, options)
        seconds["search"] = time.perf_counter() - start
        start = time.perf_counter()
        scores = _write(config, bitext, corpora, means, lines)
        seconds["score"] = time.perf_counter() - start
    storage.remove(work)
    return _result(config, lines, scores, corpora, seconds)


def _check_places(config: ScoreConfig, bitext: "_Bitext", work: str) -> None:
    """ConfigError where the output would take the place of what is read, or the folder for the work is of someone else."""
    inputs = {storage.filesystem(place)[1] for place in (*bitext.places, *config.backgrounds().values())}
    if storage.filesystem(config.output)[1] in inputs:
        raise ConfigError(f"{config.output}: both read and written; choose another --output")
    strange = [name for name in storage.names_in(work) if not name.startswith(WORKED)]
    if strange:
        raise ConfigError(f"{work}: holds {strange[0]}, which is none of ours; move it, or choose another --output")


@dataclass(frozen=True)
class _Bitext:
    """Where the two sides are read from, and how."""

    places: tuple[str, str]
    settings: tuple[TextSettings, TextSettings]

    @classmethod
    def of(cls, config: ScoreConfig) -> "_Bitext":
        places = [config.source, config.source if config.target is None else config.target]
        uris = [readers.expand([place]) for place in places]
        for place, found in zip(places, uris, strict=True):
            if found == [readers.STDIN]:
                raise ConfigError("standard input cannot be scored, as it is read more than once; give a file")
            if len(found) > 1:
                raise ConfigError(f"{place}: names {len(found)} files; a bitext has one a side, whose lines belong together")
        text = config.part(TextSettings)
        settings = [text.model_copy(update={"text_column": column}) for column in (config.source_column, config.target_column)]
        return cls((uris[0][0], uris[1][0]), (settings[0], settings[1]))

    def read(self) -> Iterator[tuple[Lines, Lines]]:
        return read_pairs(*self.places, self.settings)

    def count_lines(self) -> int:
        """How many line pairs there are. DataError where one side has not a single sentence."""
        lines = 0
        sentences = [0, 0]
        for block in self.read():
            lines += len(block[0])
            sentences = [held + sum(map(bool, side)) for held, side in zip(sentences, block, strict=True)]
        for place, settings, count in zip(self.places, self.settings, sentences, strict=True):
            if not count:
                where = f" of column {settings.text_column}" if settings.text_column else ""
                raise DataError(f"{place}: not one sentence in {lines} lines{where}; give a text with sentences")
        return lines


def _open_backgrounds(config: ScoreConfig) -> dict[str, Corpus]:
    """The backgrounds that are folders, which must be of the encoder that the bitext will be embedded by; the others are looked into."""
    for code in (config.source_lang, config.target_lang):
        languages.canonical(code)  # ConfigError
    found = {}
    for side, place in config.backgrounds().items():
        if inputs_module.is_folder(place):
            found[side] = inputs_module.open_folder(place)
            inputs_module.check_encoder(found[side], config)
        else:
            inputs_module.check_text(place, config)
    return found


@dataclass(frozen=True)
class _Embedding:
    """Embeds texts under the folder of the work, and keeps count of the seconds."""

    config: ScoreConfig
    work: str
    seconds: Counter[str]
    options: Sequence[str]

    def of(self, name: str, place: str, settings: TextSettings) -> Corpus:
        """The corpus WORK/`name` of a text."""
        output = storage.join(self.work, name)
        lang = self.config.source_lang if name.endswith("source") else self.config.target_lang
        chosen = {**dict(settings), **dict(self.config.part(EncoderSettings))}
        result = embed.run(EmbedConfig(inputs=(place,), output=output, lang=lang, **chosen), self.options)
        self.seconds.update(result.seconds)
        return open_corpus(output)


def _means(
    corpora: Sequence[Corpus], backgrounds: Mapping[str, Corpus], config: ScoreConfig, work: str, options: Sequence[str]
) -> tuple[NeighbourMeans, NeighbourMeans]:
    """The mean similarity of every source to its nearest targets, and of every target to its nearest sources."""
    source, target = corpora
    searches = {"neighbours": (source, target)}
    if "target" in backgrounds:
        searches["neighbours-in-target"] = (source, backgrounds["target"])
    if "source" in backgrounds:
        searches["neighbours-in-source"] = (backgrounds["source"], target)
    for name, pair in searches.items():
        exact.run(SearchRequest(*pair, config.k, config.device), storage.join(work, name), options)
    found = []
    for direction, corpus, other in ((FORWARD, source, "target"), (BACKWARD, target, "source")):
        folders = [storage.join(work, name, direction) for name in ("neighbours", f"neighbours-in-{other}") if name in searches]
        found.append(all_means([_means_of_shard(folders, shard.name) for shard in corpus.shards]))
    return found[0], found[1]


def _means_of_shard(folders: Sequence[str], name: str) -> NeighbourMeans:
    ids, found = read_neighbours(folders[0], name)
    for folder in folders[1:]:
        found = _union(found, read_neighbours(folder, name)[1])
    return means_of(ids, found)


def _union(found: Neighbours, others: Neighbours) -> Neighbours:
    """The k nearest of both, where the same sentence may be in both."""
    same = (others.ids[:, :, None] == found.ids[:, None, :]) & found.is_neighbour[:, None, :]
    return found.merge(replace(others, similarities=np.where(same.any(axis=2), np.nan, others.similarities)))


def _write(
    config: ScoreConfig, bitext: _Bitext, corpora: Sequence[Corpus], means: tuple[NeighbourMeans, NeighbourMeans], lines: int
) -> Floats:
    """Write the output; returns the margin of each line, NaN where there is none, and infinite where the line was dropped."""
    count = max(1, STRETCH // (4 * corpora[0].dim))
    scores = []
    done = 0
    with writers.tsv_writer(config.output) as file:
        for ours, theirs in _stretches(bitext, count):
            whole = np.flatnonzero([bool(one and other) for one, other in zip(ours, theirs, strict=True)])
            ids = [sentence_ids([str(side[row]) for row in whole]) for side in (ours, theirs)]
            found = np.full(len(ours), np.inf)
            found[whole] = margins(config.margin, _similarities(corpora, ids), means[0].of(ids[0]), means[1].of(ids[1]))
            shown = np.where(np.isinf(found), np.nan, found).tolist()
            file.writelines(f"{margin:.8f}\t{one or ''}\t{other or ''}\n" for margin, one, other in zip(shown, ours, theirs, strict=True))
            scores.append(found)
            done += len(ours)
            report_progress(logger, Progress("score", done, lines, "line"))
    return np.concatenate([np.zeros(0), *scores])


def _stretches(bitext: _Bitext, count: int) -> Iterator[tuple[Lines, Lines]]:
    """The line pairs, at least `count` at a time but for the last."""
    held: tuple[Lines, Lines] = [], []
    for ours, theirs in bitext.read():
        held[0].extend(ours)
        held[1].extend(theirs)
        if len(held[0]) >= count:
            yield held
            held = [], []
    if held[0]:
        yield held


def _similarities(corpora: Sequence[Corpus], ids: Sequence[Ids]) -> Floats:
    """(n,) sources and targets -> (n,) their similarities, exact as those of the search are."""
    ours, theirs = (corpus.vectors_of(some) for corpus, some in zip(corpora, ids, strict=True))
    similarities = np.empty(len(ours))
    for start in range(0, len(ours), 4096):
        rows = slice(start, start + 4096)
        similarities[rows] = np.einsum("nd,nd->n", ours[rows].astype(np.float64), theirs[rows].astype(np.float64))
    return similarities


def _result(config: ScoreConfig, lines: int, scores: Floats, corpora: Sequence[Corpus], seconds: Counter[str]) -> ScoreResult:
    scored = scores[np.isfinite(scores)]
    quantiles = np.quantile(scored, QUANTILES).tolist() if len(scored) else []
    return ScoreResult(
        output=config.output,
        lines=lines,
        scored=len(scored),
        dropped=int(np.isinf(scores).sum()),
        without_margin=int(np.isnan(scores).sum()),
        unique={side: corpus.rows for side, corpus in zip(SIDES, corpora, strict=True)},
        quantiles=dict(zip(map(str, QUANTILES), quantiles, strict=False)),
        seconds={name: round(spent, 3) for name, spent in seconds.items()},
    )

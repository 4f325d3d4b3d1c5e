"""Planted pairs: known translations added to both corpora, to measure how many of them mining finds, and how often it errs.

Of a third of the pairs both sentences are planted; of another third only the source, and of the last third only the target. The latter
have no translation, so any pair of them is wrong. The planted sentences are additional shards for one more scoring and matching. The
bitext itself is mined without them, so they neither appear in it nor change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from miner.arrays import Bools, Floats, Ids, Ints, find_rows
from miner.config.choices import LATE
from miner.config.commands import EmbedConfig, EncoderSettings, TextSettings
from miner.encoders import with_recorded_dtype
from miner.errors import DataError
from miner.io import storage, table_files
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import CANDIDATES, NEIGHBOURS, Stage
from miner.mining.candidates import ScoredPairs
from miner.mining.matching import mark_first
from miner.mining.thresholds import PlantedMargins
from miner.text import readers
from miner.text.normalise import sentence_ids
from miner.text.readers import read_pairs
from pipelines.beam.runner import Pipeline, run_stages, together
from pipelines.beam.tasks import ShardTask, StageRun
from pipelines.corpus import embed
from pipelines.mining import candidates
from pipelines.mining.select_pairs import PairSelection, SelectConfig
from pipelines.search import exact
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest

FOLDER = "planted"
SIDES = ("source", "target")
PREFIX = "planted-"  # how names of shards of planted sentences start
WHOLE, SOURCE_ONLY, TARGET_ONLY = range(3)
COLUMNS = TextSettings(text_column="1"), TextSettings(text_column="2")


@dataclass(frozen=True)
class PlantedPairs:
    """Pairs with the ids (n,) of both sides, each of which occurs once and in neither corpus, and which sides are planted (n,)."""

    sources: Ids
    targets: Ids
    kinds: Ints  # WHOLE, SOURCE_ONLY or TARGET_ONLY
    texts: Sequence[tuple[str, str]]

    def planted_texts(self, side: int) -> list[str]:
        """Return the planted sentences of a side, 0 or 1."""
        kinds = (WHOLE, (SOURCE_ONLY, TARGET_ONLY)[side])
        return [texts[side] for texts, kind in zip(self.texts, self.kinds, strict=True) if kind in kinds]


def check(uri: str) -> None:
    """Raise DataError for a file that cannot be planted, whatever the corpora are."""
    for number, column in enumerate(COLUMNS, start=1):
        if not any(block.texts for block in readers.read_sentences(uri, column)):
            raise DataError(f"{uri}: no sentence in column {number}; give lines of `source<TAB>target`")


def read(uri: str, source: Corpus, target: Corpus) -> PlantedPairs:
    """Read a TSV of `source<TAB>target` without a header. Pairs with a sentence of a corpus or of an earlier pair are skipped.

    DataError if fewer than three are left, one of each kind.
    """
    lines = chain.from_iterable(zip(*block, strict=True) for block in read_pairs(uri, uri, COLUMNS))
    pairs = [(source_text, target_text) for source_text, target_text in lines if source_text and target_text]
    ids = [sentence_ids([pair[side] for pair in pairs]) for side in (0, 1)]
    is_new = np.ones(len(pairs), dtype=bool)
    for side_ids, corpus in zip(ids, (source, target), strict=True):
        is_new &= mark_first(side_ids) & ~_is_in(corpus, side_ids)
    rows = np.flatnonzero(is_new)
    if len(rows) < 3:
        raise DataError(f"{uri}: {len(rows)} pairs whose sentences are in neither corpus; give hundreds of other pairs")
    return PlantedPairs(ids[0][rows], ids[1][rows], np.arange(len(rows)) % 3, [pairs[row] for row in rows])


def _is_in(corpus: Corpus, ids: Ids) -> Bools:
    """Mark (n,) the ids that a corpus has."""
    is_in = np.zeros(len(ids), dtype=bool)
    for shard in corpus.shards:
        for table in corpus.sentences(shard.name, ["id"]):
            is_in |= np.isin(ids, table["id"].to_numpy())
    return is_in


@dataclass(frozen=True)
class MixedCorpus(Corpus):
    """A corpus with planted sentences, in shards whose names begin with PREFIX."""

    planted: Corpus

    @classmethod
    def of(cls, corpus: Corpus, planted: Corpus) -> "MixedCorpus":
        shards = tuple(replace(shard, name=PREFIX + shard.name) for shard in planted.shards)
        values = {field.name: getattr(corpus, field.name) for field in fields(Corpus)}
        values["tokens"] = corpus.tokens if corpus.tokens == planted.tokens else None
        return cls(**{**values, "shards": corpus.shards + shards}, planted=planted)

    def sentences_uri(self, name: str) -> str:
        if name.startswith(PREFIX):
            return self.planted.sentences_uri(name.removeprefix(PREFIX))
        return super().sentences_uri(name)

    def tokens_uri(self, name: str) -> str:
        if name.startswith(PREFIX):
            return self.planted.tokens_uri(name.removeprefix(PREFIX))
        return super().tokens_uri(name)


def plant(planted: PlantedPairs, selection: PairSelection, neighbours: str) -> Pipeline[PairSelection]:
    """Return a selection from both corpora with the planted sentences. Their neighbours and candidates are under OUTPUT/planted.

    `neighbours` are those of the corpora alone: only what the planted sentences add is searched.
    """
    search_result, config = selection.search_result, selection.settings
    folder = storage.join(config.output, FOLDER)
    source, target = search_result.source, search_result.target
    embedded, _ = yield from together(
        {name: _embed(planted, side, getattr(search_result, name), config, selection.options) for side, name in enumerate(SIDES)}
    )
    new_source, new_target = (embedded[name] for name in SIDES)
    blocks = {"old-new": (source, new_target), "new-old": (new_source, target), "new-new": (new_source, new_target)}
    requests = {name: SearchRequest(*sides, search_result.num_neighbours, config.device) for name, sides in blocks.items()}
    yield from together({name: exact.run(request, storage.join(folder, name)) for name, request in requests.items()})
    searches = {"old-old": neighbours, **{name: storage.join(folder, name) for name in blocks}}
    mixed_source, mixed_target = MixedCorpus.of(source, new_source), MixedCorpus.of(target, new_target)
    mixed_neighbours = storage.join(folder, NEIGHBOURS)
    directions = {FORWARD: mixed_source, BACKWARD: mixed_target}
    merges = [_merge_searches(searches, storage.join(mixed_neighbours, name), name, corpus) for name, corpus in directions.items()]
    yield from run_stages(merges)
    mixed = replace(search_result, source=mixed_source, target=mixed_target, folder=storage.join(folder, CANDIDATES))
    yield from candidates.run(mixed_neighbours, mixed, config.part(EncoderSettings), limits=selection.limits)
    return replace(selection, search_result=mixed)


def _embed(planted: PlantedPairs, side: int, corpus: Corpus, config: SelectConfig, options: Sequence[str]) -> Pipeline[Corpus]:
    """Embed the planted sentences of a side, 0 or 1, under OUTPUT/planted."""
    output = storage.join(config.output, FOLDER, SIDES[side])
    text = f"{output}.txt"  # beside the folder: an input inside the output is an error
    with storage.atomic(text) as handle:
        handle.write("".join(f"{line}\n" for line in planted.planted_texts(side)).encode())
    settings = {**dict(with_recorded_dtype(config.part(EncoderSettings), [corpus.fingerprint])), "side": corpus.side}
    if corpus.tokens is not None:
        settings |= {"rescore": LATE, "token_layer": corpus.tokens[0]}
    yield from embed.pipeline(EmbedConfig(inputs=(text,), output=output, lang=corpus.lang, replace=True, **settings), options)
    return open_corpus(output)


def _merge_searches(searches: Mapping[str, str], folder: str, direction: str, corpus: Corpus) -> StageRun:
    """Return the stage that fills `folder` with the nearest neighbours of each shard in the two searches it was part of."""
    parts: dict[str, dict[str, str]] = {}  # shard -> name and URI of its neighbours in each search
    for shard in corpus.shards:
        age, name = "new" if shard.name.startswith(PREFIX) else "old", shard.name.removeprefix(PREFIX)
        shard_searches = [f"{age}-{other}" if direction == FORWARD else f"{other}-{age}" for other in ("old", "new")]
        parts[shard.name] = {f"{search}/{direction}/{name}": storage.join(searches[search], direction, name) for search in shard_searches}
    inputs = {name: storage.checksum(uri) for part in parts.values() for name, uri in part.items()}
    stage = Stage(folder, NEIGHBOURS, {}, inputs)
    shard_keys = {shard: stage.key({name: inputs[name] for name in part}) for shard, part in parts.items()}
    return StageRun(stage, shard_keys, _MergeShard({shard: list(part.values()) for shard, part in parts.items()}, folder))


class _MergeShard(ShardTask):
    """Merge the neighbours of one shard in two searches."""

    def __init__(self, parts: Mapping[str, Sequence[str]], folder: str) -> None:
        self.parts = parts
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        (ids, neighbours), (_, others) = (exact.from_arrow(table_files.read_table(uri)) for uri in self.parts[name])
        table_files.write_table(storage.join(self.folder, name), exact.to_arrow(ids, neighbours.merge(others)))
        return len(ids), {}


def planted_margins(pairs: ScoredPairs, planted: PlantedPairs) -> PlantedMargins:
    """Return the margins at which the planted sentences are paired, among the pairs of both mixed corpora."""
    lone_sources, lone_targets = planted.sources[planted.kinds == SOURCE_ONLY], planted.targets[planted.kinds == TARGET_ONLY]
    is_whole = planted.kinds == WHOLE
    partners = dict(zip(planted.sources[is_whole].tolist(), planted.targets[is_whole].tolist(), strict=True))
    rows = np.flatnonzero(np.isin(pairs.source_ids, planted.sources[is_whole]))
    correct = [row for row in rows if partners[int(pairs.source_ids[row])] == pairs.target_ids[row]]
    return PlantedMargins(
        np.append(pairs.margins[correct], np.full(int(is_whole.sum()) - len(correct), -np.inf)),
        _largest_margins(lone_sources, pairs.source_ids, pairs.margins),
        _largest_margins(lone_targets, pairs.target_ids, pairs.margins),
    )


def _largest_margins(sentences: Ids, pair_ids: Ids, margins: Floats) -> Floats:
    """Return the largest margin (m,) of each sentence (m,) among pairs, by their ids (n,) and margins (n,); -inf if it has no pair."""
    largest = np.full(len(sentences), -np.inf)
    order = np.argsort(sentences)
    rows = find_rows(pair_ids, sentences[order])
    np.maximum.at(largest, order[rows[rows >= 0]], margins[rows >= 0])
    return largest

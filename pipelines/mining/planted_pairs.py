"""Planted pairs: known translations mixed into both corpora, to see how many of them mining finds, and how often it is fooled.

A third of the pairs is planted whole; of another third only the sources are, and of the last only the targets, which have no translation
then: whatever they are paired with is wrong. They are further shards for one more round of scoring and matching. What the corpora are
mined for is found without them, so that they neither appear in the pairs nor change them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from miner import storage
from miner.config.commands import EmbedConfig, EncoderSettings, FromCandidatesConfig, MineConfig, TextSettings
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError
from miner.mining.candidates import Ids, ScoredPairs
from miner.mining.margin import Floats
from miner.mining.thresholds import Planted
from miner.stages import Stage
from miner.text import readers
from miner.text.normalise import sentence_ids
from miner.text.pairs import read_pairs
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.corpus import embed
from pipelines.mining import candidates
from pipelines.mining.candidates import SearchResult
from pipelines.search import exact
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest

PlantConfig = MineConfig | FromCandidatesConfig

FOLDER = "planted"
NEW = "planted-"  # begins the names of shards of planted sentences
WHOLE, SOURCE_ONLY, TARGET_ONLY = range(3)
COLUMNS = TextSettings(text_column="1"), TextSettings(text_column="2")


@dataclass(frozen=True)
class PlantedPairs:
    """Planted pairs: ids (n,) of the two sides, each once and in neither corpus, and what is planted of each (n,)."""

    sources: Ids
    targets: Ids
    kinds: npt.NDArray[np.intp]
    texts: Sequence[tuple[str, str]]

    def of(self, side: int, *kinds: int) -> list[str]:
        """The texts of one side, 0 or 1, of the pairs of these kinds."""
        return [pair[side] for pair, kind in zip(self.texts, self.kinds, strict=True) if kind in kinds]


def check(uri: str) -> None:
    """DataError for a file that cannot be planted whatever the corpora are: to be told before the long part."""
    for number, column in enumerate(COLUMNS, start=1):
        if not any(block.texts for block in readers.read_sentences(uri, column)):
            raise DataError(f"{uri}: not one sentence in column {number}; give lines of `source<TAB>target`")


def read(uri: str, source: Corpus, target: Corpus) -> PlantedPairs:
    """A TSV of `source<TAB>target` without a header. Pairs with a sentence that a corpus or an earlier pair has are left out.

    DataError where fewer than three are left, so that nothing could be learnt of one kind.
    """
    lines = chain.from_iterable(zip(*block, strict=True) for block in read_pairs(uri, uri, COLUMNS))
    pairs = [(one, other) for one, other in lines if one and other]
    ids = [sentence_ids([pair[side] for pair in pairs]) for side in (0, 1)]
    fresh = np.ones(len(pairs), dtype=bool)
    for side, among in zip(ids, (source, target), strict=True):
        first = np.zeros(len(pairs), dtype=bool)
        first[np.unique(side, return_index=True)[1]] = True
        fresh &= first & ~_held(among, side)
    rows = np.flatnonzero(fresh)
    if len(rows) < 3:
        raise DataError(f"{uri}: {len(rows)} pairs whose sentences stand in neither corpus; plant hundreds of other ones")
    return PlantedPairs(ids[0][rows], ids[1][rows], np.arange(len(rows)) % 3, [pairs[row] for row in rows])


def _held(among: Corpus, ids: Ids) -> npt.NDArray[np.bool_]:
    """(n,): which of the ids a corpus has."""
    held = np.zeros(len(ids), dtype=bool)
    for shard in among.shards:
        for table in among.sentences(shard.name, ["id"]):
            held |= np.isin(ids, table["id"].to_numpy())
    return held


@dataclass(frozen=True)
class MixedCorpus(Corpus):
    """A side with what was planted in it, whose shards have names that begin with NEW."""

    planted: Corpus

    def sentences_uri(self, name: str) -> str:
        if name.startswith(NEW):
            return self.planted.sentences_uri(name.removeprefix(NEW))
        return super().sentences_uri(name)


def _mixed(real: Corpus, planted: Corpus) -> MixedCorpus:
    new = tuple(replace(shard, name=NEW + shard.name) for shard in planted.shards)
    return MixedCorpus(**{**vars(real), "shards": real.shards + new}, planted=planted)


def sow(seeds: PlantedPairs, found: SearchResult, config: PlantConfig, neighbours: str, options: Sequence[str] = ()) -> SearchResult:
    """Both sides with the seeds among them, their neighbours and candidates, under OUTPUT/planted.

    `neighbours` are those of the sides without them: only what the seeds add is searched for.
    """
    folder = storage.join(config.output, FOLDER)
    planted = [_embed(seeds, side, real, config, options) for side, real in enumerate((found.source, found.target))]
    blocks = {"old-new": (found.source, planted[1]), "new-old": (planted[0], found.target), "new-new": (planted[0], planted[1])}
    for name, sides in blocks.items():
        exact.run(SearchRequest(*sides, found.k, config.device), storage.join(folder, name), options)
    places = {"old-old": neighbours, **{name: storage.join(folder, name) for name in blocks}}
    sides = _mixed(found.source, planted[0]), _mixed(found.target, planted[1])
    mixed = storage.join(folder, "neighbours")
    for direction, corpus in ((FORWARD, sides[0]), (BACKWARD, sides[1])):
        _mix(places, storage.join(mixed, direction), direction, corpus, options)
    scored = storage.join(folder, candidates.STAGE)
    candidates.run(mixed, scored, options)
    return SearchResult(*sides, scored, found.k, found.engine)


def _embed(seeds: PlantedPairs, side: int, real: Corpus, config: PlantConfig, options: Sequence[str]) -> Corpus:
    place = storage.join(config.output, FOLDER, ("source", "target")[side])
    text = storage.join(place, "planted.txt")
    with storage.atomic(text) as handle:
        handle.write("".join(f"{line}\n" for line in seeds.of(side, WHOLE, (SOURCE_ONLY, TARGET_ONLY)[side])).encode())
    settings = dict(config.part(EncoderSettings))
    embed.run(EmbedConfig(inputs=(text,), output=place, lang=real.lang, **settings), options)
    return open_corpus(place)


def _mix(places: Mapping[str, str], folder: str, direction: str, corpus: Corpus, options: Sequence[str]) -> None:
    """Fill `folder` with the nearest of what each shard of the corpus has in two of the searches."""
    parts: dict[str, dict[str, str]] = {}  # shard -> the searches it was in: name of its neighbours there, and where they lie
    for shard in corpus.shards:
        age, name = "new" if shard.name.startswith(NEW) else "old", shard.name.removeprefix(NEW)
        searches = [f"{age}-{other}" if direction == FORWARD else f"{other}-{age}" for other in ("old", "new")]
        parts[shard.name] = {f"{each}/{direction}/{name}": storage.join(places[each], direction, name) for each in searches}
    inputs = {name: storage.checksum(uri) for part in parts.values() for name, uri in part.items()}
    stage = Stage(folder, "neighbours", {}, inputs)
    made_from = {name: stage.key({each: inputs[each] for each in part}) for name, part in parts.items()}
    run_stage(stage, made_from, _Mix({name: list(part.values()) for name, part in parts.items()}, folder), options)


class _Mix(ShardTask):
    """One shard: of the neighbours it has in either search, the nearest."""

    def __init__(self, parts: Mapping[str, Sequence[str]], folder: str) -> None:
        self.parts = parts
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        (ids, found), (_, others) = (exact.from_arrow(storage.read_table(uri)) for uri in self.parts[name])
        storage.write_table(storage.join(self.folder, name), exact.to_arrow(ids, found.merge(others)))
        return len(ids), {}


def harvest(pairs: ScoredPairs, seeds: PlantedPairs) -> Planted:
    """What became of the seeds among the pairs of both sides."""
    lone_sources, lone_targets = seeds.sources[seeds.kinds == SOURCE_ONLY], seeds.targets[seeds.kinds == TARGET_ONLY]
    whole = seeds.kinds == WHOLE
    partners = dict(zip(seeds.sources[whole].tolist(), seeds.targets[whole].tolist(), strict=True))
    rows = np.flatnonzero(np.isin(pairs.source_ids, seeds.sources[whole]))
    right = [row for row in rows if partners[int(pairs.source_ids[row])] == pairs.target_ids[row]]
    return Planted(
        np.append(pairs.margins[right], np.full(int(whole.sum()) - len(right), -np.inf)),
        _largest(lone_sources, pairs.source_ids, pairs.margins),
        _largest(lone_targets, pairs.target_ids, pairs.margins),
    )


def _largest(wanted: Ids, ids: Ids, margins: Floats) -> Floats:
    """(m,) ids -> (m,) the largest margin that stands with each of them, -inf for none."""
    largest = np.full(len(wanted), -np.inf)
    order = np.argsort(wanted)
    rows = np.flatnonzero(np.isin(ids, wanted))
    np.maximum.at(largest, order[np.searchsorted(wanted[order], ids[rows])], margins[rows])
    return largest

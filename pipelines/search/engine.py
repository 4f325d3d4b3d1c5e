"""Find the nearest neighbours of two sides, in both directions, with the requested engine or the faster one."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from miner.config.choices import AUTO, EXACT, FAISS
from miner.config.commands import EngineSettings, IndexSettings
from miner.io import records, stages, storage
from miner.io.corpus import Corpus
from miner.search import faiss_index
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, together
from pipelines.search import approximate, build_index, exact, index_files, previous_neighbours
from pipelines.search.engine_trial import EngineTrial
from pipelines.search.exact import SearchRequest
from pipelines.search.index_files import IndexedSide

INDEXES = "indexes"  # folder
CHOICE_FILE = "engine.json"
REQUESTED = "requested"  # the reason for an engine that the user chose
MIN_CHECKED_SECONDS = 60.0  # of exact search, from which its first pairs of groups are compared with the estimate

logger = logging.getLogger(__name__)


class RecordedEngine(TypedDict):
    """The content of CHOICE_FILE."""

    key: str  # of the inputs
    engine: str
    reason: str
    searched_shards: dict[str, dict[str, str]]  # side -> shard -> checksum


def find_neighbours(
    search: SearchRequest,
    paths: tuple[str, str],
    settings: EngineSettings,
    output: str,
    options: Sequence[str] = (),
    reason: str = REQUESTED,
) -> Pipeline[Mapping[str, Any]]:
    """Write OUTPUT/neighbours/forward and OUTPUT/neighbours/backward; return the engine, the reason for it, and its details.

    `paths` are the source and target that the user gave: an index directory is searched as it is, for another side FAISS builds an
    index in OUTPUT/indexes. `reason` is that for the engine of the settings, if it is not `auto`.
    """
    indexes = _existing_indexes(search, paths)
    folder = storage.join(output, stages.NEIGHBOURS)
    has_index = (indexes[0] is not None, indexes[1] is not None)
    if settings.engine == AUTO:
        engine, reason = yield from choose_engine(search, settings, has_index, folder, storage.join(folder, CHOICE_FILE), options)
    else:
        engine, _ = require_engine(settings.engine)
    logger.info("search by the %s engine: %s", engine, reason)
    if engine == EXACT:
        yield from exact.run(search, folder)
        return {"name": engine, "reason": reason}
    corpora = {"source": search.source, "target": search.target}
    missing = {side: corpus for (side, corpus), index in zip(corpora.items(), indexes, strict=True) if index is None}
    builds = {side: _build_index(corpus, side, search, settings, output, options) for side, corpus in missing.items()}
    built, _ = yield from together(builds)
    source, target = (built[side] if index is None else index for side, index in zip(corpora, indexes, strict=True))
    forward, backward = yield from approximate.run(search, (source, target), settings.target_recall, folder)
    storage.remove(storage.join(folder, exact.PARTIAL))  # of an exact search that was slower than expected
    return {"name": engine, "reason": reason, exact.FORWARD: forward.details, exact.BACKWARD: backward.details}


def choose_engine(
    search: SearchRequest, settings: EngineSettings, has_index: tuple[bool, bool], folder: str, uri: str, options: Sequence[str] = ()
) -> Pipeline[tuple[str, str]]:
    """Return the engine that is faster on the workers, and the reason; `has_index` says which sides are indexed already.

    After the first pairs of groups, exact search is compared with its estimate. They are in FOLDER, where a later exact search keeps them.
    The choice is recorded in `uri` and reused: it depends on measured times, and a resumed run must not change its engine because the
    machine is busier.
    """
    machine = workers.describe(options)
    fixed = fixed_engine(settings, machine.device_type(search.device))
    if fixed is not None:
        return fixed
    key = storage.key([search.source.key, search.target.key, search.k, settings.target_recall, *has_index])
    recorded = records.read(uri, RecordedEngine) if storage.exists(uri) else None
    if recorded is not None and recorded["key"] == key:
        return recorded["engine"], recorded["reason"]
    trial = EngineTrial(search, settings.target_recall, has_index, machine.cores, _searched_share(search, recorded))
    seconds = trial.estimate()
    if machine.is_here and seconds.engine == EXACT and seconds.exact >= MIN_CHECKED_SECONDS and not trial.searched_share:
        seconds = trial.correct(seconds, (yield from exact.search_first_pairs(search, folder)))
    reason = trial.describe(seconds)
    shards = previous_neighbours.manifest_details(search.source, search.target)
    records.write(uri, {"key": key, "engine": seconds.engine, "reason": reason, **shards})
    return seconds.engine, reason


def _searched_share(search: SearchRequest, recorded: RecordedEngine | None) -> float:
    """Return the share of the pairs of sentences that exact search compared before the corpora grew."""
    if recorded is None or recorded["engine"] != EXACT:
        return 0.0
    searched_shards = recorded["searched_shards"]
    if not previous_neighbours.has_grown_from(searched_shards, search.source, search.target):
        return 0.0
    share = 1.0
    for side, corpus in (("source", search.source), ("target", search.target)):
        share *= sum(shard.rows for shard in corpus.shards if shard.name in searched_shards[side]) / max(1, corpus.rows)
    return share


def fixed_engine(settings: EngineSettings, device: str) -> tuple[str, str] | None:
    """Return the engine and the reason for it where sizes do not matter, else None. `device` is a type such as cpu.

    Raises ConfigError if FAISS is requested but not installed.
    """
    if settings.engine != AUTO:
        return require_engine(settings.engine)
    if not faiss_index.is_available():
        return EXACT, "FAISS is not installed"
    return None if device == "cpu" else (EXACT, f"one pass on {device} takes less time than building an index")


def require_engine(name: str) -> tuple[str, str]:
    """Return an engine that the user chose, and the reason. Raises ConfigError if it is FAISS, which is not installed."""
    if name == FAISS:
        faiss_index.require_faiss()
    return name, REQUESTED


def _existing_indexes(search: SearchRequest, paths: tuple[str, str]) -> list[IndexedSide | None]:
    """Return the indexes that the user gave; None for a side that is no index, or whose index does not cover the whole corpus."""
    indexes: list[IndexedSide | None] = []
    for path, corpus in zip(paths, (search.source, search.target), strict=True):
        index = None
        if storage.is_folder(path) and build_index.is_index(path):
            manifest = stages.read_manifest(path)
            if manifest.inputs["embeddings"] == corpus.key:
                index = IndexedSide.describe(path, manifest, corpus)
                index_files.check_in_place(index)
        indexes.append(index)
    return indexes


def _build_index(
    corpus: Corpus, name: str, search: SearchRequest, settings: EngineSettings, output: str, options: Sequence[str]
) -> Pipeline[IndexedSide]:
    """Return the index of a side, built in OUTPUT/indexes."""
    folder = storage.join(output, INDEXES, name)
    index_settings = IndexSettings(memory=settings.memory, target_recall=settings.target_recall, device=search.device)
    return IndexedSide.describe(folder, (yield from build_index.build(corpus, folder, index_settings, search.k, options)), corpus)

"""The nearest neighbours of two sides, in both directions, by the engine that is asked for or the faster one."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from miner import stages, storage
from miner.config.commands import EngineSettings, IndexSettings
from miner.corpus import Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search import cost_model, faiss_index, precision
from miner.stages import Manifest
from miner.storage import available_cores
from pipelines.search import approximate, build_index, exact, reuse
from pipelines.search.approximate import IndexedSide
from pipelines.search.exact import SearchRequest

NEIGHBOURS, INDEXES = "neighbours", "indexes"  # folders
CHOSEN = "engine.json"

logger = logging.getLogger(__name__)


def find(
    wanted: SearchRequest, places: tuple[str, str], settings: EngineSettings, output: str, options: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Fill OUTPUT/neighbours/forward and OUTPUT/neighbours/backward, and tell by which engine and why.

    `places` are the source and target as the user gave them: a folder of `miner index` is searched as it is, for the other
    sides FAISS builds an index under OUTPUT/indexes.
    """
    given = _given(wanted, places)
    folder = storage.join(output, NEIGHBOURS)
    engine, why = choose(wanted, settings, (given[0] is not None, given[1] is not None), storage.join(folder, CHOSEN))
    logger.info("search by the %s engine: %s", engine, why)
    if engine == "exact":
        exact.run(wanted, folder, options)
        return {"name": engine, "why": why}
    sides = [
        _built(corpus, name, wanted, settings, output, options) if side is None else side
        for side, corpus, name in zip(given, (wanted.source, wanted.target), ("source", "target"), strict=True)
    ]
    forward, backward = approximate.run(wanted, (sides[0], sides[1]), settings.target_recall, folder, options)
    return {"name": engine, "why": why, exact.FORWARD: forward.details, exact.BACKWARD: backward.details}


def choose(wanted: SearchRequest, settings: EngineSettings, built: tuple[bool, bool], uri: str) -> tuple[str, str]:
    """The engine and the reason for it; `built` tells which sides have an index already.

    What was estimated is written down in `uri`: which arithmetic is the fastest is measured, and a busy hour may tell otherwise,
    but a run that was stopped goes on as it began.
    """
    device = choose_device(wanted.device)
    known = whatever_the_size(settings, device.type)
    if known is not None:
        return known
    asked = storage.key([wanted.source.key, wanted.target.key, wanted.k, settings.target_recall, *built])
    before = storage.read_json(uri) if storage.exists(uri) else None
    before = before if isinstance(before, dict) else {}
    if before.get("asked") == asked:
        return before["engine"], before["why"]
    fastest = next(iter(precision.fastest(device, wanted.source.dim)))
    rows = (wanted.source.rows, wanted.target.rows)
    seconds = cost_model.estimate(rows, wanted.source.dim, wanted.k, settings.target_recall, fastest, available_cores(), built)
    seconds = replace(seconds, exact=seconds.exact * (1 - _searched(wanted, before)))
    sizes = f"{rows[0]:,} x {rows[1]:,} vectors x {wanted.source.dim} dimensions"
    why = f"{sizes} by exact search in about {seconds.exact:.0f} s, by FAISS at recall {settings.target_recall:g} in {seconds.faiss:.0f} s"
    among = reuse.details(wanted.source, wanted.target)
    storage.write_json(uri, {"asked": asked, "engine": seconds.engine, "why": why, **among})
    return seconds.engine, why


def _searched(wanted: SearchRequest, before: Mapping[str, Any]) -> float:
    """The share of the work that exact search did before the corpora grew."""
    if before.get("engine") != "exact" or not reuse.within(before.get("among", {}), wanted.source, wanted.target):
        return 0.0
    share = 1.0
    for side, corpus in (("source", wanted.source), ("target", wanted.target)):
        share *= sum(shard.rows for shard in corpus.shards if shard.name in before["among"][side]) / max(1, corpus.rows)
    return share


def whatever_the_size(settings: EngineSettings, device: str) -> tuple[str, str] | None:
    """The engine and the reason for it, where sizes do not matter on a `device` such as cpu; ConfigError for FAISS that is missing."""
    if settings.engine != "auto":
        if settings.engine == "faiss":
            faiss_index.require()
        return settings.engine, "asked for"
    if not faiss_index.available():
        return "exact", "FAISS is not installed"
    return None if device == "cpu" else ("exact", f"one pass on {device} takes less time than building an index")


def _given(wanted: SearchRequest, places: tuple[str, str]) -> list[IndexedSide | None]:
    """The indexes that the user gave; None for a side that is no index, or of which the index is not all."""
    sides: list[IndexedSide | None] = []
    for place, corpus in zip(places, (wanted.source, wanted.target), strict=True):
        whole = storage.is_folder(place) and build_index.is_index(place) and stages.read_manifest(place).inputs["embeddings"] == corpus.key
        sides.append(_side(place, build_index.checked(place), corpus) if whole else None)
    return sides


def _built(corpus: Corpus, name: str, wanted: SearchRequest, settings: EngineSettings, output: str, options: Sequence[str]) -> IndexedSide:
    """The index of a side, built under OUTPUT."""
    folder = storage.join(output, INDEXES, name)
    build = IndexSettings(memory=settings.memory, target_recall=settings.target_recall, device=wanted.device)
    return _side(folder, build_index.build(corpus, folder, build, wanted.k, options), corpus)


def _side(folder: str, manifest: Manifest, corpus: Corpus) -> IndexedSide:
    (file,) = manifest.shards
    return IndexedSide(folder, file.name, file.checksum, manifest.details["factory"], corpus)

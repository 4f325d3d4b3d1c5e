"""The nearest neighbours of two sides, in both directions, by the engine that is asked for or the faster one."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from miner import storage
from miner.config import EngineSettings, IndexSettings
from miner.corpus import Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search import choice, faiss_index, precision
from miner.storage import Manifest, available_cores
from pipelines import approximate, index, search
from pipelines.approximate import Side
from pipelines.search import Search

NEIGHBOURS, INDEXES = "neighbours", "indexes"  # folders

logger = logging.getLogger(__name__)


def find(wanted: Search, places: tuple[str, str], settings: EngineSettings, output: str, options: Sequence[str] = ()) -> Mapping[str, Any]:
    """Fill OUTPUT/neighbours/forward and OUTPUT/neighbours/backward, and tell by which engine and why.

    `places` are the source and target as the user gave them: a folder of `miner index` is searched as it is, for the other
    sides FAISS builds an index under OUTPUT/indexes.
    """
    engine, why = _choose(wanted, settings)
    logger.info("search by the %s engine: %s", engine, why)
    folder = storage.join(output, NEIGHBOURS)
    if engine == "exact":
        search.run(wanted, folder, options)
        return {"name": engine, "why": why}
    corpora = {"source": wanted.source, "target": wanted.target}
    sides = [
        _index(corpus, place, name, wanted, settings, output, options)
        for (name, corpus), place in zip(corpora.items(), places, strict=True)
    ]
    forward, backward = approximate.run(wanted, (sides[0], sides[1]), settings.target_recall, folder, options)
    for manifest in (forward, backward):
        _report(manifest, wanted.k)
    return {"name": engine, "why": why, search.FORWARD: forward.details, search.BACKWARD: backward.details}


def _choose(wanted: Search, settings: EngineSettings) -> tuple[str, str]:
    """The engine and the reason for it, in numbers that are the same on the same machine."""
    if settings.engine != "auto":
        if settings.engine == "faiss":
            faiss_index.require()
        return settings.engine, "asked for"
    if not faiss_index.available():
        return "exact", "FAISS is not installed"
    device = choose_device(wanted.device)
    if device.type != "cpu":
        return "exact", f"one pass on {device.type} takes less time than building an index"
    fastest = next(iter(precision.fastest(device, wanted.source.dim)))
    rows = (wanted.source.rows, wanted.target.rows)
    seconds = choice.estimate(rows, wanted.source.dim, settings.target_recall, fastest, available_cores())
    sizes = f"{rows[0]:,} x {rows[1]:,} vectors x {wanted.source.dim} dimensions"
    why = f"{sizes} by exact search in about {seconds.exact:.0f} s, by FAISS at recall {settings.target_recall:g} in {seconds.faiss:.0f} s"
    return seconds.engine, why


def _index(corpus: Corpus, place: str, name: str, wanted: Search, settings: EngineSettings, output: str, options: Sequence[str]) -> Side:
    """The index of a side: the one that was given, or one built under OUTPUT."""
    folder = storage.join(output, INDEXES, name)
    if storage.is_folder(place) and index.is_index(place) and storage.read_manifest(place).inputs["embeddings"] == corpus.key:
        folder, manifest = place, index.checked(place)
    else:
        build = IndexSettings(memory=settings.memory, target_recall=settings.target_recall, device=wanted.device)
        manifest = index.build(corpus, folder, build, wanted.k, options)
    (file,) = manifest.shards
    return Side(folder, file.name, file.checksum, manifest.details["factory"], corpus)


def _report(manifest: Manifest, k: int) -> None:
    told = manifest.details
    missed = "" if told["low"] >= told["target_recall"] else f", which does not surely reach {told['target_recall']:g}"
    level = logging.WARNING if missed else logging.INFO
    logger.log(
        level, "recall@%d of %s: %.4f of a sample%s; %d searched again", k, told["factory"], told["recall"], missed, told["searched_again"]
    )

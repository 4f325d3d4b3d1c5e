"""The index stage: a folder of `miner embed` -> one FAISS file, which answers with sentence ids, and its vectors in order.

The index is trained once, on a sample of all shards. Then every shard is added to an index of its own, and these are put
together; an index that cannot be put together, such as a graph, is filled in one go. The vectors are kept beside it as plain
arrays of float16, which are mapped into memory to score exactly what the index proposes. Each of these is a stage with markers,
so that a stopped run goes on. How hard to look is tuned at the end, and stands in the manifest with the recall that was measured.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from miner import stages, storage
from miner.config.commands import IndexConfig, IndexSettings
from miner.corpus import Corpus, open_corpus
from miner.encoders.transformer_parts import choose_device
from miner.errors import DataError, StorageError
from miner.search import cost_model, faiss_index
from miner.search.tuning import Setting
from miner.stages import MANIFEST, Manifest, Stage
from pipelines.beam.runner import ShardTask, run_stage, working_in
from pipelines.search.open_index import SAMPLE, VECTORS, OpenIndex, draw, vectors_name

STAGE = "index"
TRAINED, PARTS = "trained", "parts"  # folders of what the index is made from; gone when it is finished
FILE = stages.shard_name(0, 1, ".faiss")


@dataclass(frozen=True)
class IndexResult:
    """What `miner index` did."""

    output: str
    factory: str
    rows: int
    dim: int
    k: int
    target: float
    effort: str | None  # what `setting.effort` is of
    setting: Setting

    def summary(self) -> str:
        """A few lines for a person."""
        effort = f"{self.effort} {self.setting.effort}, " if self.effort else ""
        missed = (
            "" if self.setting.low >= self.target else f"; the target of {self.target:g} is not surely reached, so give another --factory"
        )
        return (
            f"{self.rows:,} vectors x {self.dim} dimensions ({self.factory}) in {self.output}\n"
            f"recall@{self.k} {self.setting.recall:.4f} on a held-out sample"
            f" ({effort}{self.setting.candidates} candidates scored again){missed}"
        )

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        names = ("factory", "rows", "dim", "k", "effort")
        return {**{name: getattr(self, name) for name in names}, "target_recall": self.target, "setting": asdict(self.setting)}


def run(config: IndexConfig, options: Sequence[str] = ()) -> IndexResult:
    """Build `config.output` from `config.embeddings`; what an earlier run finished is kept.

    Raises ConfigError for a factory that cannot be or without FAISS, and what `open_corpus` raises.
    """
    corpus = open_corpus(config.embeddings)
    if not corpus.rows:
        raise DataError(f"{config.embeddings}: holds no sentences; embed a text that has some")
    with working_in(config.output):
        manifest = build(corpus, config.output, config.part(IndexSettings), config.k, options)
    told = manifest.details
    setting = Setting(**told["setting"])
    return IndexResult(config.output, told["factory"], manifest.rows, corpus.dim, config.k, config.target_recall, told["effort"], setting)


def build(corpus: Corpus, output: str, settings: IndexSettings, k: int, options: Sequence[str] = ()) -> Manifest:
    """Fill `output` with an index of `corpus`, tuned for its own k nearest."""
    device = str(choose_device(settings.device))
    factory = settings.factory
    if factory == "auto":
        faiss_index.require()
        factory = cost_model.factory(corpus.rows, corpus.dim, settings.memory_bytes, gpu=device != "cpu" and faiss_index.gpus() > 0)
    plan = _Plan(corpus, output, factory, settings.seed, faiss_index.training_rows(factory, corpus.dim))
    made_with = {"factory": settings.factory, "dim": corpus.dim, "fingerprint": corpus.fingerprint}
    stage = Stage(output, STAGE, made_with, {"embeddings": corpus.key, "factory": factory, "seed": str(settings.seed)})
    stage.start()
    made_from = {FILE: stage.key()}
    before = stages.read_manifest(output, STAGE).details if stage.complete(made_from) else {}
    if stage.finished(FILE, made_from[FILE]) is None:
        _make_parts(plan, options)
    vectors = plan.stage(VECTORS)
    run_stage(
        vectors, {vectors_name(shard.name): vectors.key({"shard": shard.checksum}) for shard in corpus.shards}, _Vectors(plan), options
    )
    asked = {"k": k, "target_recall": settings.target_recall}

    def details(_: object) -> Mapping[str, Any]:
        told = {"embeddings": _place(corpus.folder, output), "factory": factory, "asked": asked}
        if before.get("asked") == asked:
            return {**before, **told}
        return {**told, **_tuned(plan, device, k, settings)}

    manifest = run_stage(stage, made_from, _Whole(plan), options, details)
    for name in (TRAINED, PARTS):
        storage.remove(stage.path(name))
    return manifest


@dataclass(frozen=True)
class _Plan:
    """What is built where."""

    corpus: Corpus
    output: str
    factory: str
    seed: int
    sample: int  # vectors to train with

    def stage(self, name: str) -> Stage:
        """The stage of OUTPUT/name, which another factory or seed makes anew."""
        return Stage(storage.join(self.output, name), f"{STAGE}-{name}", {}, {"embeddings": self.corpus.key})

    def trained(self) -> Any:
        return _read(storage.join(self.output, TRAINED, FILE))

    def shards(self) -> dict[str, str]:
        """Part -> the shard it is made from."""
        return {shard.name.removesuffix(".parquet") + ".faiss": shard.name for shard in self.corpus.shards}


def _make_parts(plan: _Plan, options: Sequence[str]) -> None:
    """Train, and make the parts where they can be put together."""
    how = {"factory": plan.factory, "seed": str(plan.seed)}
    training = plan.stage(TRAINED)
    key = training.key({**how, **training.inputs})
    run_stage(training, {FILE: key}, _Train(plan), options)
    if faiss_index.mergeable(plan.trained()):
        parts = plan.stage(PARTS)
        checksums = {shard.name: shard.checksum for shard in plan.corpus.shards}
        run_stage(
            parts,
            {part: parts.key({"trained": key, "shard": checksums[name]}) for part, name in plan.shards().items()},
            _Part(plan),
            options,
        )


class _Building(ShardTask):
    """What the steps of building share: they are pickled with the plan."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan


class _Vectors(_Building):
    """One shard of embeddings -> one array of its vectors."""

    def setup(self) -> None:
        self.shards = {vectors_name(shard.name): shard for shard in self.plan.corpus.shards}

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        shard = self.shards[name]
        with storage.atomic(storage.join(self.plan.output, VECTORS, name)) as handle:
            header = {"descr": "<f2", "fortran_order": False, "shape": (shard.rows, self.plan.corpus.dim)}
            np.lib.format.write_array_header_2_0(handle, header)
            for _, vectors in self.plan.corpus.vectors(shard.name):
                handle.write(memoryview(np.ascontiguousarray(vectors)).cast("B"))
        return shard.rows, {}


class _Train(_Building):
    """The sample -> the index, trained and empty."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        sample = draw(self.plan.corpus, self.plan.sample, self.plan.seed)[1]
        index = faiss_index.train(self.plan.factory, self.plan.corpus.dim, sample, self.plan.seed)
        _write(index, storage.join(self.plan.output, TRAINED, name))
        return len(sample), {}


class _Part(_Building):
    """One shard of embeddings -> an index of it."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = self.plan.trained()
        for ids, vectors in self.plan.corpus.vectors(self.plan.shards()[name]):
            faiss_index.add(index, ids, vectors)
        _write(index, storage.join(self.plan.output, PARTS, name))
        return int(index.ntotal), {}


class _Whole(_Building):
    """The parts, or all shards in one go -> the index."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = self.plan.trained()
        if faiss_index.mergeable(index):
            for part in self.plan.shards():
                faiss_index.merge(index, _read(storage.join(self.plan.output, PARTS, part)))
        else:
            for shard in self.plan.corpus.shards:
                for ids, vectors in self.plan.corpus.vectors(shard.name):
                    faiss_index.add(index, ids, vectors)
        if index.ntotal != self.plan.corpus.rows:
            raise DataError(f"{self.plan.output}: {index.ntotal} vectors in the index of {self.plan.corpus.rows}; delete it and run again")
        _write(index, storage.join(self.plan.output, name))
        return int(index.ntotal), {}


def _tuned(plan: _Plan, device: str, k: int, settings: IndexSettings) -> Mapping[str, Any]:
    """How to search the index, tuned with a sample of its own vectors, and what that finds."""
    indexed = OpenIndex(plan.output, FILE, plan.corpus, device)
    own, queries = draw(plan.corpus, SAMPLE, settings.seed + 1)  # others than it was trained with
    setting = indexed.tune(queries, k, settings.target_recall, own)
    return {"effort": indexed.index.effort, "setting": asdict(setting)}


def _write(index: Any, uri: str) -> None:
    with storage.atomic(uri) as handle:
        handle.write(memoryview(faiss_index.dump(index)))


def _read(uri: str) -> Any:
    fs, path = storage.filesystem(uri)
    return faiss_index.load(np.frombuffer(fs.cat_file(path), dtype=np.uint8))


def _place(corpus: str, output: str) -> str:
    """Where the embeddings are, seen from the index: they may move together, and the manifest is the same wherever they are."""
    if "://" in corpus:
        return corpus
    place = storage.filesystem(corpus)[1]
    return place if "://" in output else posixpath.relpath(place, storage.filesystem(output)[1])


def is_index(folder: str) -> bool:
    """Whether this is a finished folder of `miner index`."""
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        return False
    found = storage.read_json(uri)
    return isinstance(found, dict) and found.get("stage") == STAGE


def indexed_corpus(folder: str) -> Corpus:
    """The corpus that was indexed: its texts are needed, and where exact search is the faster engine, its vectors.

    Raises DataError where its embeddings are not those of the index, StorageError where they are gone.
    """
    manifest = stages.read_manifest(folder, STAGE)
    place = str(manifest.details["embeddings"])
    if "://" not in place:
        place = posixpath.normpath(storage.join(folder, place))
    corpus = open_corpus(place)
    if manifest.inputs.get("embeddings") != corpus.key:
        raise DataError(f"{folder}: made from other embeddings than {place} now holds; run `miner index` again")
    return corpus


def checked(folder: str) -> Manifest:
    """The manifest of an index that is whole. StorageError where a file is not: mapped into memory, it would end the process."""
    manifest = stages.read_manifest(folder, STAGE)
    beside = stages.read_manifest(storage.join(folder, VECTORS)).shards
    for shard, place in [*((shard, ()) for shard in manifest.shards), *((shard, (VECTORS,)) for shard in beside)]:
        uri = storage.join(folder, *place, shard.name)
        if not storage.exists(uri) or storage.checksum(uri) != shard.checksum:
            raise StorageError(f"{uri}: missing, or not as it was written; run the same `miner index` again")
    return manifest

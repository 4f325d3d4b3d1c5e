"""The index stage: an embeddings directory -> a FAISS file that returns sentence ids, and its vectors as arrays.

The index is trained once, on a sample of all shards. Then each shard is added to an index of its own, and these are merged; an index that
cannot be merged, such as a graph, is filled in one process. The vectors are stored as float16 arrays, which are mapped into memory to
rescore the candidates of the index. At the end the search parameters are tuned, and written to the manifest with the measured recall. Each
step is a stage with markers that runs on workers, so a stopped run resumes.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from miner.config.commands import IndexConfig, IndexSettings
from miner.devices import CPU
from miner.errors import DataError, SettingsError
from miner.io import stages, storage
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import INDEX, MANIFEST, Manifest, Stage
from miner.search import cost_model, faiss_index
from miner.search.tuning import SearchParameters
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, claim_output, run_pipeline, run_stage, run_stages
from pipelines.beam.tasks import ShardTask, StageRun
from pipelines.search import tune
from pipelines.search.index_files import VECTORS, IndexedSide, vectors_name
from pipelines.search.open_index import draw_sample
from pipelines.search.tune import TunedSearch, TuneSearch

TRAINED, PARTS, TUNING = "trained", "parts", "tuning"  # folders of intermediate results, removed at the end
FILE = stages.shard_name(0, 1, ".faiss")


@dataclass(frozen=True)
class IndexResult:
    """What `miner index` reports."""

    output: str
    factory: str
    rows: int
    dim: int
    k: int
    target_recall: float
    effort_name: str | None
    parameters: SearchParameters

    def summary(self) -> str:
        """Return a few lines for a person."""
        parameters = self.parameters
        effort = f"{self.effort_name} {parameters.effort}, " if self.effort_name else ""
        warning = (
            ""
            if parameters.low >= self.target_recall
            else f"; the target of {self.target_recall:g} is not surely reached, so give another --factory"
        )
        return (
            f"{self.rows:,} vectors x {self.dim} dimensions ({self.factory}) in {self.output}\n"
            f"recall@{self.k} {parameters.recall:.4f} on a held-out sample"
            f" ({effort}{parameters.candidates} candidates scored again){warning}"
        )

    def figures(self) -> dict[str, Any]:
        """Return the same for --json."""
        return asdict(self)


def run(config: IndexConfig, options: Sequence[str] = ()) -> IndexResult:
    """Build `config.output` from `config.embeddings`; steps that an earlier run finished are kept.

    Raises ConfigError for an invalid factory or without FAISS, and the errors of `open_corpus`.
    """
    corpus = open_corpus(config.embeddings)
    if not corpus.rows:
        raise DataError(f"{config.embeddings}: holds no sentences; embed a text that has some")
    with claim_output(config.output, INDEX):
        manifest = run_pipeline(build(corpus, config.output, config.part(IndexSettings), config.k, options), options)
    details = manifest.details
    return IndexResult(
        output=config.output,
        factory=details["factory"],
        rows=manifest.rows,
        dim=corpus.dim,
        k=config.k,
        target_recall=config.target_recall,
        effort_name=details["effort_name"],
        parameters=SearchParameters(**details["parameters"]),
    )


def build(corpus: Corpus, output: str, settings: IndexSettings, k: int, options: Sequence[str] = ()) -> Pipeline[Manifest]:
    """Write an index of `corpus` to `output`, with search parameters tuned for its own k nearest."""
    machine = workers.describe(options)
    factory = settings.factory
    if factory == "auto":
        faiss_index.require_faiss()
        has_gpu = machine.device_type(settings.device) != CPU and (faiss_index.num_gpus() > 0 or not machine.is_here)
        factory = cost_model.choose_factory(corpus.rows, corpus.dim, settings.memory_bytes, has_gpu)
    plan = _BuildPlan(corpus, output, factory, settings.seed, faiss_index.num_training_rows(factory, corpus.dim))
    config = {"factory": settings.factory, "dim": corpus.dim, "fingerprint": corpus.fingerprint}
    inputs = {"embeddings": corpus.key, "factory": factory, "seed": str(settings.seed)}
    stage = _UntunedIndex(output, INDEX, config, inputs)
    _check_embeddings(corpus, output)
    stage.start()
    shard_keys = {FILE: stage.key()}
    previous = stages.read_manifest(output, INDEX).details if stage.is_complete(shard_keys) else {}
    merged = yield from _fill(plan, stage, shard_keys)
    tuned_for = {"k": k, "target_recall": settings.target_recall}
    details = {**previous, "embeddings": _relative_path(corpus.folder, output), "factory": factory, "tuned_for": tuned_for}
    if previous.get("tuned_for") != tuned_for:
        side = IndexedSide(output, FILE, merged.shards[0].checksum, factory, corpus)
        details |= asdict((yield from _tune(side, k, settings)))
    manifest = Stage(output, INDEX, config, inputs).finish(shard_keys, lambda _: details)
    for name in (TRAINED, PARTS, TUNING):
        storage.remove(stage.path(name))
    return manifest


class _UntunedIndex(Stage):
    """The index until its search is tuned: the file and its marker, without the manifest that says that the directory is complete."""

    finish = Stage.draft_manifest


def _check_embeddings(corpus: Corpus, output: str) -> None:
    """Raise SettingsError if an output has the index of another corpus, not only of an earlier state of this one."""
    if storage.exists(storage.join(output, MANIFEST)):
        previous = stages.read_manifest(output, INDEX)
        folder = previous.details["embeddings"]
        if previous.inputs.get("embeddings") != corpus.key and folder != _relative_path(corpus.folder, output):
            raise SettingsError(f"{output}: made from the embeddings {folder}, not {corpus.folder}; choose another --output, or delete it")


def _fill(plan: "_BuildPlan", stage: Stage, shard_keys: Mapping[str, str]) -> Pipeline[Manifest]:
    """Write the vectors, and the index if it is missing."""
    vectors = plan.stage(VECTORS)
    vector_keys = {vectors_name(shard.name): vectors.key({"shard": shard.checksum}) for shard in plan.corpus.shards}
    runs = [StageRun(vectors, vector_keys, WriteVectors(plan))]
    if not stage.find_shards(shard_keys):
        yield from run_stages([plan.training()])
        if faiss_index.is_mergeable(plan.read_trained()):
            runs.append(plan.parts())
    yield from run_stages(runs)
    return (yield from run_stage(stage, shard_keys, MergeIndex(plan)))


def _tune(side: IndexedSide, k: int, settings: IndexSettings) -> Pipeline[TunedSearch]:
    """Tune the search with a sample of the index's own vectors, which is not the training sample."""
    folder = storage.join(side.folder, TUNING)
    task = TuneSearch(side, side.corpus, True, settings.seed + 1, k, settings.target_recall, settings.device, folder)
    yield from run_stages([task.stage_run()])
    return tune.read(folder)


@dataclass(frozen=True)
class _BuildPlan:
    """What is built, and where."""

    corpus: Corpus
    output: str
    factory: str
    seed: int
    num_training_rows: int

    def stage(self, name: str) -> Stage:
        """Return the stage of OUTPUT/name; its keys depend on the factory and the seed where these matter."""
        return Stage(storage.join(self.output, name), f"{INDEX}-{name}", {}, {"embeddings": self.corpus.key})

    def training(self) -> StageRun:
        """Return the stage that trains the index."""
        stage = self.stage(TRAINED)
        return StageRun(stage, {FILE: stage.key({"factory": self.factory, "seed": str(self.seed), **stage.inputs})}, TrainIndex(self))

    def parts(self) -> StageRun:
        """Return the stage that builds the parts of a trained index."""
        stage, trained = self.stage(PARTS), self.training().shard_keys[FILE]
        checksums = {shard.name: shard.checksum for shard in self.corpus.shards}
        inputs = {part: stage.key({"trained": trained, "shard": checksums[shard]}) for part, shard in self.part_shards().items()}
        return StageRun(stage, inputs, IndexShard(self))

    def read_trained(self) -> Any:
        return _read_index(storage.join(self.output, TRAINED), FILE)

    def part_shards(self) -> dict[str, str]:
        """Return the embeddings shard of each part of the index."""
        return {shard.name.removesuffix(".parquet") + ".faiss": shard.name for shard in self.corpus.shards}


class _BuildTask(ShardTask):
    """A step of the build; pickled with the plan."""

    def __init__(self, plan: _BuildPlan) -> None:
        self.plan = plan


class WriteVectors(_BuildTask):
    """Write the vectors of one shard as a .npy array."""

    def setup(self) -> None:
        self.shards = {vectors_name(shard.name): shard for shard in self.plan.corpus.shards}

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        shard = self.shards[name]
        with storage.atomic(storage.join(self.plan.output, VECTORS, name)) as handle:
            header = {"descr": "<f2", "fortran_order": False, "shape": (shard.rows, self.plan.corpus.dim)}
            np.lib.format.write_array_header_2_0(handle, header)
            for _, vectors in self.plan.corpus.vectors(shard.name):
                handle.write(np.ascontiguousarray(vectors).data.cast("B"))
        return shard.rows, {}


class TrainIndex(_BuildTask):
    """Train an empty index on a sample."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        plan = self.plan
        sample = draw_sample(plan.corpus, plan.num_training_rows, plan.seed)[1]
        index = faiss_index.train_index(plan.factory, plan.corpus.dim, sample, plan.seed)
        _write_index(index, storage.join(plan.output, TRAINED, name))
        return len(sample), {}


class IndexShard(_BuildTask):
    """Index one shard of embeddings."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = self.plan.read_trained()
        for ids, vectors in self.plan.corpus.vectors(self.plan.part_shards()[name]):
            faiss_index.add_vectors(index, ids, vectors)
        _write_index(index, storage.join(self.plan.output, PARTS, name))
        return int(index.ntotal), {}


class MergeIndex(_BuildTask):
    """Merge the parts, or add all shards to one index."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        plan = self.plan
        index = plan.read_trained()
        if faiss_index.is_mergeable(index):
            for part in plan.part_shards():
                faiss_index.merge_index(index, _read_index(storage.join(plan.output, PARTS), part))
        else:
            for shard in plan.corpus.shards:
                for ids, vectors in plan.corpus.vectors(shard.name):
                    faiss_index.add_vectors(index, ids, vectors)
        if index.ntotal != plan.corpus.rows:
            raise DataError(f"{plan.output}: {index.ntotal} vectors in the index of {plan.corpus.rows}; delete it and run again")
        _write_index(index, storage.join(plan.output, name))
        return int(index.ntotal), {}


def _write_index(index: Any, uri: str) -> None:
    with storage.atomic(uri) as handle:
        handle.write(faiss_index.dump(index).data)


def _read_index(folder: str, name: str) -> Any:
    """Read an index that a finished stage has written."""
    (checksum,) = (shard.checksum for shard in stages.read_manifest(folder).shards if shard.name == name)
    return faiss_index.load(np.frombuffer(storage.read_whole(storage.join(folder, name), checksum), dtype=np.uint8))


def _relative_path(embeddings: str, output: str) -> str:
    """Return the path of the embeddings relative to the index, so that both can move together and the manifest does not change."""
    if "://" in embeddings:
        return embeddings
    path = storage.filesystem(embeddings)[1]
    return path if "://" in output else posixpath.relpath(path, storage.filesystem(output)[1])


def is_index(folder: str) -> bool:
    """Return whether this is a complete index directory."""
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        return False
    return stages.read_manifest(folder).stage == INDEX


def indexed_corpus(folder: str) -> Corpus:
    """Return the corpus of an index, for its texts and, where exact search is the faster engine, its vectors.

    Raises DataError if its embeddings have changed since, StorageError if they are gone.
    """
    manifest = stages.read_manifest(folder, INDEX)
    path = str(manifest.details["embeddings"])
    if "://" not in path and not posixpath.isabs(path):
        protocol, separator, parent = folder.rpartition("://")
        path = protocol + separator + posixpath.normpath(storage.join(parent, path))
    corpus = open_corpus(path)
    if manifest.inputs.get("embeddings") != corpus.key:
        raise DataError(f"{folder}: made from other embeddings than {path} now holds; run `miner index` again")
    return corpus

"""The index stage: a folder of `miner embed` -> a FAISS file for each of its shards, which answers with sentence ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miner import storage
from miner.config import IndexConfig
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError
from miner.search import faiss_index
from miner.storage import MANIFEST, Stage
from pipelines.runner import run_stage

STAGE = "index"
SUFFIX = ".faiss"


@dataclass(frozen=True)
class IndexResult:
    """What `miner index` did."""

    output: str
    factory: str
    rows: int
    dim: int
    files: int

    def summary(self) -> str:
        """One line for a person."""
        return f"{self.rows:,} vectors x {self.dim} dimensions ({self.factory}) in {self.files} FAISS file(s) in {self.output}"


def run(config: IndexConfig, options: Sequence[str] = ()) -> IndexResult:
    """Build `config.output` from `config.embeddings`; files that an earlier run finished are kept.

    Raises ConfigError for an unknown factory or without FAISS, and what `open_corpus` raises.
    """
    faiss_index.check(config.factory)
    corpus = open_corpus(config.embeddings)
    made_with = {"factory": config.factory, "dim": corpus.dim, "fingerprint": corpus.fingerprint}
    stage = Stage(config.output, STAGE, made_with, {"embeddings": corpus.key})
    made_from = {_file_name(shard.name): stage.key({"shard": shard.checksum}) for shard in corpus.shards}
    details = {"embeddings": _place(config.embeddings)}
    manifest = run_stage(stage, made_from, _Index(corpus, config.output, config.factory), options, lambda _: details)
    return IndexResult(config.output, config.factory, manifest.rows, corpus.dim, len(manifest.shards))


def _place(uri: str) -> str:
    """A name that also holds in another working directory."""
    return uri if "://" in uri else storage.filesystem(uri)[1]


def _file_name(shard: str) -> str:
    return shard.removesuffix(".parquet") + SUFFIX


class _Index:
    """One shard of embeddings -> one FAISS file."""

    def __init__(self, corpus: Corpus, folder: str, factory: str) -> None:
        self.corpus = corpus
        self.folder = folder
        self.factory = factory

    def setup(self) -> None:
        self.shards = {_file_name(shard.name): shard for shard in self.corpus.shards}

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        shard = self.shards[name]
        index = faiss_index.build(self.corpus.vectors(shard.name), self.corpus.dim, self.factory)
        with storage.atomic(storage.join(self.folder, name)) as handle:
            handle.write(memoryview(faiss_index.dump(index)))
        return shard.rows, {}


def is_index(folder: str) -> bool:
    """Whether this is a finished folder of `miner index`."""
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        return False
    found = storage.read_json(uri)
    return isinstance(found, dict) and found.get("stage") == STAGE


def indexed_corpus(folder: str) -> Corpus:
    """The corpus that was indexed, which is what is mined: it is needed for the texts, and one exact pass over its vectors finds
    both directions sooner than two searches by FAISS, whose float32 similarities do not tie where they should.

    Raises DataError where its embeddings are not those of the index, StorageError where they are gone.
    """
    manifest = storage.read_manifest(folder, STAGE)
    place = str(manifest.details["embeddings"])
    corpus = open_corpus(place)
    if manifest.inputs.get("embeddings") != corpus.key:
        raise DataError(f"{folder}: made from other embeddings than {place} now holds; run `miner index` again")
    return corpus

"""Text -> shards of unique sentences. *Scatter* files the sentences of one input by id range, *gather* makes one range a shard.

What scatter leaves lies under `OUTPUT/.ranges` until the sentences are complete, so a run that was stopped goes on from there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from miner import corpus, storage
from miner.config import EmbedConfig, TextSettings
from miner.errors import DataError
from miner.storage import Manifest, Stage
from miner.text import readers, sentences
from pipelines.runner import run_stage

RANGES = ".ranges"
STDIN = ".stdin"


def run(config: EmbedConfig, inputs: Sequence[str], options: Sequence[str] = ()) -> Manifest:
    """Make `config.output`/sentences from inputs that `readers.expand` found; what is finished and still fits is kept.

    The manifest's details hold the counts of `readers.COUNTS`, and of duplicates. DataError where there is no sentence at all.
    """
    spool = storage.join(config.output, STDIN)
    try:
        signatures = {uri: readers.spool_stdin(spool) if uri == readers.STDIN else sentences.signature(uri) for uri in inputs}
        places = {uri: spool if uri == readers.STDIN else uri for uri in inputs}
        settings = config.part(TextSettings)
        ranges = sentences.ranges_for(list(places.values()), settings)
        stage = Stage(storage.join(config.output, corpus.SENTENCES), corpus.SENTENCES, settings.model_dump(), signatures)
        stage.start()
        made_from = {storage.shard_name(index, ranges): stage.key() for index in range(ranges)}
        if not stage.pending(made_from) and storage.exists(stage.path(storage.MANIFEST)):
            return storage.read_manifest(stage.folder)
        work = _Scatter(storage.join(config.output, RANGES), places, ranges, settings)
        counts = _scatter(work, signatures, options)
        manifest = run_stage(
            stage,
            made_from,
            _Gather(stage.folder, work.folder, ranges),
            options,
            lambda shards: {"counts": {**counts, "duplicate": sum(shard.counts["duplicate"] for shard in shards)}},
        )
    finally:
        storage.remove(spool)
    storage.remove(work.folder)
    return manifest


class _Scatter:
    """One input -> one file of sentences in the order of their ranges."""

    def __init__(self, folder: str, places: Mapping[str, str], ranges: int, settings: TextSettings) -> None:
        self.folder = folder
        self.ranges = ranges
        self.settings = settings
        self.places = {_scattered(source): (uri, source) for source, uri in places.items()}

    def setup(self) -> None:
        pass

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        uri, source = self.places[name]
        counts = sentences.scatter(uri, self.folder, self.ranges, self.settings, source)
        return counts["kept"], counts


class _Gather:
    """One range of all inputs -> one shard of unique sentences."""

    def __init__(self, folder: str, scattered: str, ranges: int) -> None:
        self.folder = folder
        self.scattered = scattered
        self.ranges = ranges

    def setup(self) -> None:
        pass

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        table, counts = sentences.gather(self.scattered, storage.shard_index(name), self.ranges)
        with storage.parquet_writer(storage.join(self.folder, name), table.schema) as writer:
            corpus.write_row_groups(writer, table)
        return len(table), counts


def _scattered(source: str) -> str:
    return storage.key(source) + sentences.SUFFIX


def _scatter(work: _Scatter, signatures: Mapping[str, str], options: Sequence[str]) -> dict[str, int]:
    """Scatter every input that is not scattered yet; returns the counts of them all."""
    stage = Stage(work.folder, "ranges", {}, signatures)
    how = {"settings": storage.key(work.settings.model_dump()), "ranges": str(work.ranges)}
    made_from = {_scattered(source): stage.key({source: signature, **how}) for source, signature in signatures.items()}
    for name in set(storage.names_in(work.folder)) - set(made_from):
        if name.endswith(sentences.SUFFIX):  # of an input that is no longer asked for; gather takes all there are
            storage.remove(stage.path(name))
            storage.remove(stage.path(f"{storage.MARKERS}/{name}.json"))
    manifest = run_stage(stage, made_from, work, options)
    counts = Counter(dict.fromkeys(readers.COUNTS, 0))
    for shard in manifest.shards:
        counts.update(shard.counts)
    if not counts["kept"]:
        storage.remove(work.folder)
        reasons = ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in readers.COUNTS if name not in ("lines", "kept"))
        raise DataError(f"{', '.join(signatures)}: not one sentence in {counts['lines']} lines ({reasons}); give a text with sentences")
    return dict(counts)

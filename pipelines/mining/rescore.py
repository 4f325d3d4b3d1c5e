"""Rescore candidates by late interaction (`miner.mining.late_interaction`), by ranges of targets.

The sources' texts go to the ranges of the targets of their candidates, each once. A worker holds the tokens of one range of targets and
of the sources of its candidates; those of a transformer are in a temporary file. Of corpora that grew, only new pairs are rescored.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Ids, Ints, mark_run_starts
from miner.config.commands import EncoderSettings
from miner.devices import choose_device
from miner.encoders.base import in_language
from miner.encoders.layer_tokens import choose_token_encoder
from miner.encoders.token_vectors import TextTokens, TokenVectors
from miner.errors import MinerError
from miner.io import stages, storage
from miner.io.corpus import Corpus, SentenceLookup, Span, id_spans
from miner.io.stages import Shard, Stage
from miner.io.tables import concat_tables
from miner.mining import candidates as scoring
from miner.mining.candidates import LateScores, look_up
from miner.mining.late_scores import score_pairs
from miner.text.sharding import range_of
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, ShuffleTask, StepOutput, TextsById
from pipelines.corpus import embed
from pipelines.mining.rescore_choice import Rescoring, find_encoder

PAIR = ("source_ids", "target_ids")
LATE_COLUMNS = LATE, TARGET_MEAN = ("late_similarities", "target_late_means")  # of edges that are rescored

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RescoredSide:
    """The sentences of one side and how their tokens are encoded. Picklable."""

    corpus: Corpus
    spans: Mapping[str, Span]
    encoder: EncoderSettings
    token_layer: int | None  # None for an encoder without layers, whose tokens are encoded in no time
    is_stored: bool = False  # whether the tokens are read from the corpus

    def find(self, ids: Ids) -> SentenceLookup:
        return self.corpus.find(ids, self.spans)

    def device(self) -> str:
        return choose_device(self.encoder.device)  # the worker may have a device that the driver lacks

    def tokens_of(self, ids: Ids) -> TokenVectors:
        """Return the tokens of sentences (n,)."""
        return self.parse(self.read(ids))

    def read(self, ids: Ids) -> pa.ChunkedArray:
        """Return what the tokens of sentences (n,) are derived from: stored tokens, or texts."""
        return self.corpus.tokens_of(ids, self.spans) if self.is_stored else self.find(ids).of(ids)["text"]

    def parse(self, column: pa.ChunkedArray) -> TokenVectors:
        """Return the tokens of sentences of which `read` returned this column."""
        if not self.is_stored:
            return self.token_vectors(column.to_pylist())
        assert self.corpus.tokens is not None
        return TextTokens.from_arrow(column, self.corpus.tokens[1]).to_token_vectors()

    def token_vectors(self, texts: list[str]) -> TokenVectors:
        encoder = choose_token_encoder(
            in_language(embed.load_once(self.encoder, self.corpus.fingerprint), self.corpus.lang), self.token_layer
        )
        assert encoder is not None, "`rescore_choice.choose` comes first"
        return encoder.token_vectors(texts)


def rescored_sides(corpora: Sequence[Corpus], encoder: EncoderSettings, rescoring: Rescoring) -> list[RescoredSide]:
    """Return where the tokens of corpora are stored or how they are encoded. Raises what `find_encoder` raises."""
    if rescoring.are_stored(corpora):
        return [RescoredSide(corpus, corpus.spans(), encoder, rescoring.token_layer, is_stored=True) for corpus in corpora]
    own_encoder = find_encoder(encoder, corpora)
    settings = [own_encoder.model_copy(update={"side": corpus.side}) for corpus in corpora]
    return [RescoredSide(corpus, corpus.spans(), own, rescoring.token_layer) for corpus, own in zip(corpora, settings, strict=True)]


@dataclass(frozen=True)
class PreviousCandidates:
    """Candidates that an earlier run rescored, in shards that are sorted by source."""

    pairs: TextsById

    @classmethod
    def find(cls, stage: Stage, fingerprint: str) -> "PreviousCandidates | None":
        """Return the intact shards of the candidates in the folder of a stage, if their settings and their encoder are the same."""
        try:
            manifest = stages.read_manifest(stage.folder, stage.stage)
        except MinerError:
            return None
        if dict(manifest.config) != stage.config or manifest.details.get("fingerprint") != fingerprint:
            return None
        shards = {storage.join(stage.folder, shard.name): shard for shard in manifest.shards if shard.rows}
        return cls(TextsById(id_spans([uri for uri, shard in shards.items() if _is_intact(uri, shard)]), "source_id"))

    def read(self, index: int, ranges: int) -> pa.Table:
        """Read the pairs of a range of sources and their late interaction."""
        tables = self.pairs.read(index, ranges)
        columns = ("source_id", "target_id", "late_similarity")
        pairs = (pa.table([table[name] for name in columns], names=[*PAIR, LATE]) for table in tables)
        return concat_tables([_no_pairs(), *pairs])


def _is_intact(uri: str, shard: Shard) -> bool:
    return storage.exists(uri) and storage.checksum(uri) == shard.checksum


@dataclass(frozen=True)
class RescoredEdges:
    """Merged edges, one file per range of targets, and those of them that were rescored before, one file per range of sources."""

    edges: StepOutput
    previous: StepOutput | None

    def of_sources(self, index: int) -> pa.Table:
        """Return the edges of a range of sources, with the late interaction of pairs that were rescored before, NaN for the others."""
        previous = _no_pairs() if self.previous is None else _read_file(self.previous, index, len(self.edges.shards))
        return _join_previous(self.edges.gather(index), previous)

    def of_targets(self, index: int, source_ranges: int) -> pa.Table:
        """Return the same of a range of targets."""
        previous = _no_pairs() if self.previous is None else self.previous.gather(index)
        return _join_previous(_read_file(self.edges, index, source_ranges), previous)


class RescoreTask(ShuffleTask[[RescoredEdges, StepOutput, Sequence[RescoredSide], int]]):
    """Rescore the ranges of targets. Its work is to encode sentences."""

    work_unit = "sentence"

    def __init__(self, folder: str, edges: RescoredEdges, texts: StepOutput, sides: Sequence[RescoredSide], k: int) -> None:
        super().__init__(folder, _rescore_target_range, edges, texts, sides, k)
        self.num_sentences = texts.rows + sides[1].corpus.rows
        self.uses_accelerator = not sides[1].is_stored and embed.uses_accelerator(sides[1].encoder)

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        """Estimate the sentences of each range: ids are hashes, so ranges are alike."""
        return dict.fromkeys(names, max(1, self.num_sentences // len(names)))


def rescore(
    edges: StepOutput,
    sides: Sequence[RescoredSide],
    k: int,
    source_ranges: int,
    previous: PreviousCandidates | None,
    steps: ShuffleSteps,
) -> Pipeline[StepOutput]:
    """Add LATE_COLUMNS to the merged edges of a source and a target side, which are one file per range of targets.

    Pairs of `previous` keep their late interaction.
    """
    sources = shuffle.names(source_ranges)
    pairs = None
    if previous is not None:
        pairs = yield from steps.apply("previous", sources, _write_previous, edges, previous, source_ranges)
    rescored = RescoredEdges(edges, pairs)
    texts = yield from steps.apply("texts", sources, _write_source_texts, rescored, sides[0])
    task = RescoreTask(steps.place("rescored"), rescored, texts, sides, k)
    output = yield from steps.run("rescored", edges.shards, task)
    if pairs is not None:
        logger.info("rescore: %d of %d candidates; the others were rescored before", output.rows - pairs.rows, output.rows)
    return output


def _write_previous(index: int, uri: str, edges: StepOutput, previous: PreviousCandidates, ranges: int) -> tuple[int, Mapping[str, int]]:
    """Send the pairs of one of the ranges of sources that were rescored before to the ranges of their targets."""
    table = _join_previous(edges.gather(index), previous.read(index, ranges))
    table = table.filter(pc.is_finite(table[LATE])).select([*PAIR, LATE])
    shuffle.scatter_by_id(uri, table, "target_ids", len(edges.shards))
    return len(table), {}


def _join_previous(edges: pa.Table, previous: pa.Table) -> pa.Table:
    """Add the late interaction of `previous` pairs to edges, NaN for pairs that are new."""
    return edges.append_column(LATE, pa.array(look_up(_pairs(edges), _pairs(previous), previous[LATE].to_numpy())))


def _pairs(table: pa.Table) -> tuple[Ids, Ids]:
    return table["source_ids"].to_numpy(), table["target_ids"].to_numpy()


def _no_pairs() -> pa.Table:
    return pa.schema([*((name, pa.int64()) for name in PAIR), (LATE, pa.float64())]).empty_table()


def _read_file(output: StepOutput, index: int, ranges: int) -> pa.Table:
    return concat_tables([output.read(output.shards[index], number) for number in range(ranges)])


def _write_source_texts(index: int, uri: str, edges: RescoredEdges, source: RescoredSide) -> tuple[int, Mapping[str, int]]:
    """Send the texts, or the stored tokens, of one range of sources to the ranges of the targets of their new candidates, each once."""
    num_ranges = len(edges.edges.shards)
    table = edges.of_sources(index)
    table = table.filter(pc.is_nan(table[LATE]))
    ids, ranges = table["source_ids"].to_numpy(), range_of(table["target_ids"].to_numpy(), num_ranges)
    order = np.lexsort((ids, ranges))
    ids, ranges = ids[order], ranges[order]
    is_new = mark_run_starts(ids, ranges)
    table = pa.table({"id": pa.array(ids[is_new]), "read": source.read(ids[is_new])})
    shuffle.scatter(uri, table, ranges[is_new], num_ranges)
    return int(is_new.sum()), {}


def _rescore_target_range(
    index: int, uri: str, edges: RescoredEdges, texts: StepOutput, sides: Sequence[RescoredSide], k: int
) -> tuple[int, Mapping[str, int]]:
    """Rescore the new edges of one range of targets, and send all to the ranges of sources."""
    source, target = sides
    num_ranges = len(texts.shards)
    table = edges.of_targets(index, num_ranges)
    source_ids, target_ids, backward = (table[name].to_numpy() for name in (*PAIR, "backward"))
    similarities = table[LATE].to_numpy().copy()
    new = np.flatnonzero(np.isnan(similarities))
    source_rows, source_tokens = _encode_sources(texts.gather(index), source, source_ids[new])
    unique_targets, target_rows = np.unique(target_ids[new], return_inverse=True)
    target_tokens = target.tokens_of(unique_targets)
    similarities[new] = score_pairs(target_tokens, source_tokens, target_rows, source_rows, target.device())
    table = table.set_column(table.column_names.index(LATE), LATE, pa.array(similarities))
    table = table.append_column(TARGET_MEAN, pa.array(scoring.late_means(target_ids, similarities, backward, k)))
    shuffle.scatter_by_id(uri, table, "source_ids", num_ranges)
    return len(table), {}


def tokens_in(sides: Sequence[RescoredSide], ids: Ids) -> TokenVectors:
    """Return the tokens of sentences (n,), ascending and each once, of which each is in one of the sides at least."""
    missing, side_ids, columns = ids, list[Ids](), list[pa.ChunkedArray]()
    for side in sides:
        side_ids.append(side.corpus.find_present(missing, side.spans).ids)
        columns.append(side.read(side_ids[-1]))
        missing = np.setdiff1d(missing, side_ids[-1])
    order = np.argsort(np.concatenate(side_ids))
    return sides[0].parse(pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type).take(pa.array(order)))


def _encode_sources(texts: pa.Table, source: RescoredSide, ids: Ids) -> tuple[Ints, TokenVectors]:
    """Return the row of each source (n,) among those that were sent, and the tokens of these."""
    text_ids = texts["id"].to_numpy()
    order = np.argsort(text_ids)
    rows = order[np.searchsorted(text_ids[order], ids)]
    return rows, source.parse(texts["read"])


def late_scores(columns: dict[str, Any], k: int) -> LateScores | None:
    """Take LATE_COLUMNS out of the columns of the edges of a range of sources, and add the means of the sources; None without them."""
    if not all(name in columns for name in LATE_COLUMNS):
        return None
    similarities, target_means = (columns.pop(name) for name in LATE_COLUMNS)
    return LateScores(similarities, scoring.late_means(columns["source_ids"], similarities, columns["forward"], k), target_means)

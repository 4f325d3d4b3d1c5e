"""Memory and disk of every stage, in bytes, from what it holds and writes. benchmarks/scale.md compares them with measurements."""

import math
from dataclasses import dataclass

from miner.search import cost_model

PROCESS_BYTES = 0.45e9  # Python, torch, Beam and the built-in encoder, without data
ALLOCATOR_BYTES = 0.25e9  # freed memory that Arrow and the allocator keep
SEARCH_BYTES = 0.5e9  # vectors, candidates and scores in use

RANGE_COPIES = 3  # bytes per byte of a text range while it is sorted and written
SCATTERED_ROW_BYTES = 28  # of a line before sorting, besides its text
TRAINING_BYTES_PER_COMPONENT = 12  # of a training vector of an index: as float16, as float32, and in k-means
CANDIDATE_FILE_BYTES = 24  # of a candidate in its table, compressed
CANDIDATE_MATCHING_BYTES = 120  # of a candidate that is matched
CANDIDATE_SHUFFLE_BYTES = 25  # of a candidate on its way to the range of its other side
RESCORED_CANDIDATE_BYTES = 120  # of a candidate that is rescored
RESCORED_TEXT_COPIES = 4  # bytes per byte of a text that is rescored: as a string, in Arrow, and its tokens
PAIR_COPIES = 3  # of the pairs that are joined or sorted
PAIR_ROW_BYTES = 80  # of a pair, besides its texts


@dataclass(frozen=True)
class BatchSizes:
    """How much the stages process at a time, as their modules define it."""

    range_bytes: int  # of text that is read and sorted
    row_group_rows: int  # sentences that are encoded and written
    target_groups: int  # whose partial neighbours are on disk
    resident_bytes: int  # of source vectors that are compared with all targets
    matched_candidates: int
    sorted_pairs: int


@dataclass(frozen=True)
class CorpusSize:
    """The expected size of a corpus."""

    sentences: int
    text_bytes: float  # of one sentence
    row_bytes: float  # of one sentence in its table
    shards: int
    dim: int

    @property
    def shard_sentences(self) -> float:
        return self.sentences / self.shards


@dataclass(frozen=True)
class ResourceNeed:
    """What a stage takes."""

    memory: float  # of one process
    disk: float = 0.0  # of its output
    temporary_disk: float = 0.0  # of files that are removed when it is complete
    read_bytes: float = 0.0  # of vectors by exact search, which reads vectors once per group of the other side


def _process(data_bytes: float) -> float:
    """Return the memory of a process that holds this much data."""
    return PROCESS_BYTES + ALLOCATOR_BYTES + data_bytes


def reading_need(corpus: CorpusSize, batches: BatchSizes) -> ResourceNeed:
    """Text -> sentences. All lines are on disk, uncompressed, until they are sorted."""
    line_bytes = corpus.text_bytes + SCATTERED_ROW_BYTES
    range_bytes = max(batches.range_bytes, corpus.shard_sentences * line_bytes)
    return ResourceNeed(_process(RANGE_COPIES * range_bytes), corpus.sentences * corpus.row_bytes, corpus.sentences * line_bytes)


def embedding_need(corpus: CorpusSize, batches: BatchSizes) -> ResourceNeed:
    """Sentences -> embeddings. Texts and vectors of two row groups are in memory, one of which is being written."""
    rows = 2 * min(batches.row_group_rows, corpus.shard_sentences)
    data = rows * (corpus.text_bytes + (4 + 2) * corpus.dim)
    return ResourceNeed(_process(data), corpus.sentences * (cost_model.ID_BYTES + 2 * corpus.dim))


def indexing_need(corpus: CorpusSize, factory: str) -> ResourceNeed:
    """Embeddings -> index: the training sample or the index and its serialised copy; on disk also the vectors, and the parts meanwhile."""
    index_bytes = cost_model.index_bytes(factory, corpus.sentences, corpus.dim)
    training_bytes = cost_model.num_training_rows(corpus.sentences) * TRAINING_BYTES_PER_COMPONENT * corpus.dim
    return ResourceNeed(_process(max(training_bytes, 3 * index_bytes)), index_bytes + corpus.sentences * 2 * corpus.dim, index_bytes)


def index_copy_bytes(corpus: CorpusSize, factory: str) -> float:
    """Return the bytes of the copy of a remote index that each machine has: the index, the vectors and their ids."""
    return cost_model.index_bytes(factory, corpus.sentences, corpus.dim) + corpus.sentences * (2 * corpus.dim + cost_model.ID_BYTES)


def exact_search_need(source: CorpusSize, target: CorpusSize, k: int, batches: BatchSizes) -> ResourceNeed:
    """Exact search: each pair of groups of shards writes the neighbours of both, which are merged with those of the passes before.

    A process has the neighbours of a group and the resident vectors of its sources, with their tiles in 8 bits.
    """
    row_bytes = _neighbour_row_bytes(k)
    disk, shard_rows = (source.sentences + target.sentences) * row_bytes, source.shard_sentences + target.shard_sentences
    group = cost_model.shards_per_group((source.shards, target.shards), (source.sentences, target.sentences))
    source_groups, target_groups = (math.ceil(side.shards / group) for side in (source, target))
    pass_groups = min(batches.target_groups, target_groups)
    partial = (source.sentences * pass_groups + target.sentences * pass_groups / target_groups * source_groups) * row_bytes
    previous = disk if pass_groups < target_groups else 0
    resident = min(batches.resident_bytes, group * source.shard_sentences * 2 * source.dim)
    shards, sentences = (source.shards, target.shards), (source.sentences, target.sentences)
    read = cost_model.exact_read_bytes(shards, sentences, source.dim, group, batches.resident_bytes)
    memory = _process(SEARCH_BYTES + 1.5 * resident + 3 * group * shard_rows * row_bytes)
    return ResourceNeed(memory, disk, partial + previous, read)


def faiss_search_need(source: CorpusSize, target: CorpusSize, k: int, factories: tuple[str, str]) -> ResourceNeed:
    """Search by FAISS: the larger index, twice where its codes are laid out again, the ids of its corpus, and a shard of neighbours."""
    index_bytes = [
        2 * cost_model.index_bytes(factory, side.sentences, side.dim) + side.sentences * cost_model.ID_BYTES
        for factory, side in zip(factories, (source, target), strict=True)
    ]
    row_bytes = _neighbour_row_bytes(k)
    neighbours = 3 * max(source.shard_sentences, target.shard_sentences) * row_bytes
    return ResourceNeed(_process(SEARCH_BYTES + max(index_bytes) + neighbours), (source.sentences + target.sentences) * row_bytes)


def rescoring_need(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Candidates -> late interaction: texts and tokens of a range of targets and of the sources of its candidates, and these candidates.

    A text is on disk once for each range of targets that has one of its candidates.
    """
    text_bytes = source.text_bytes + target.text_bytes
    sources = min(source.sentences, 2 * k * target.shard_sentences)
    candidates = 2 * k * target.shard_sentences
    data = RESCORED_TEXT_COPIES * (target.shard_sentences + sources) * text_bytes / 2 + candidates * RESCORED_CANDIDATE_BYTES
    return ResourceNeed(_process(data), 0.0, source.sentences * source.text_bytes * min(target.shards, 2 * k))


def mining_need(source: CorpusSize, target: CorpusSize, k: int, batches: BatchSizes) -> ResourceNeed:
    """Neighbours -> candidates -> bitext, by ranges of ids and of margins.

    The number of pairs is that of the smaller side: the most that one-to-one retrieval can give.
    """
    candidates, pair_bytes = k * (source.sentences + target.sentences), source.text_bytes + target.text_bytes + PAIR_ROW_BYTES
    pairs = min(source.sentences, target.sentences)
    joining = PAIR_COPIES * CANDIDATE_SHUFFLE_BYTES * k * (source.shard_sentences + target.shard_sentences)
    matching = min(candidates, batches.matched_candidates) * CANDIDATE_MATCHING_BYTES
    sorting = PAIR_COPIES * min(pairs, batches.sorted_pairs) * pair_bytes
    disk = candidates * CANDIDATE_FILE_BYTES + pairs * pair_bytes
    return ResourceNeed(_process(max(joining, matching, sorting)), disk, max(2 * candidates * CANDIDATE_SHUFFLE_BYTES, pairs * pair_bytes))


def _neighbour_row_bytes(k: int) -> int:
    """Return the bytes of a sentence id, its k neighbours and their similarities."""
    return cost_model.ID_BYTES + 16 * k

"""Memory and disk of every stage, in bytes, by what it holds and writes. benchmarks/scale.md has them beside what was measured."""

from dataclasses import dataclass

from miner.search import cost_model

PROCESS = 0.45e9  # Python, torch, Beam and the built-in encoder, before there is any data
BUFFERS = 0.25e9  # what Arrow and the allocator keep of memory that is free again
RANGE = 32 << 20  # of text that a reader holds at a time
COPIES = 3  # bytes held for each of a range of text, while it is sorted and written
GROUP = 32_768  # sentences that are encoded and written at a time
SCATTERED = 28  # of a line that is not yet sorted, besides its text
CANDIDATE = 24  # of a candidate in its table, packed
CONTENDING = 120  # of one that is matched, of which there are AT_ONCE at most
MEETING = 25  # of a candidate on its way to the other side
AT_ONCE = 1 << 22
IN_ORDER = 1 << 19  # pairs with their texts that are sorted at a time
COPIES_OF_ROWS = 3  # that are held of them
BITEXT = 80  # of a pair, besides its texts
SAMPLED = 12  # of a number of a vector that an index is trained with: as float16, as float32, and in k-means
COMPARED = 32  # shards of targets of which partial results are on disk at a time
SEARCHING = 0.5e9  # of vectors and candidates in hand, and of their scores


@dataclass(frozen=True)
class CorpusSize:
    """A corpus, as large as it will be."""

    sentences: int
    text: float  # bytes of one sentence
    row: float  # bytes of one sentence in its table
    shards: int
    dim: int

    @property
    def shard(self) -> float:
        """Sentences of a shard."""
        return self.sentences / self.shards


@dataclass(frozen=True)
class ResourceNeed:
    """What a stage takes."""

    memory: float  # of one process
    disk: float = 0.0  # of what it leaves
    passing: float = 0.0  # of what is gone when it is done


def reading(corpus: CorpusSize) -> ResourceNeed:
    """Text -> sentences; on the way every line lies on disk, uncompressed."""
    scattered = corpus.text + SCATTERED
    held = max(RANGE, corpus.shard * scattered)
    return ResourceNeed(PROCESS + BUFFERS + COPIES * held, corpus.sentences * corpus.row, corpus.sentences * scattered)


def embedding(corpus: CorpusSize) -> ResourceNeed:
    """Texts and vectors of two row groups, one of which is being written."""
    held = 2 * min(GROUP, corpus.shard) * (corpus.text + (4 + 2) * corpus.dim)
    return ResourceNeed(PROCESS + BUFFERS + held, corpus.sentences * (cost_model.ID_BYTES + 2 * corpus.dim))


def indexing(corpus: CorpusSize, factory: str) -> ResourceNeed:
    """Its training sample, or the index and the bytes that are written of it; on disk the vectors once more, and the parts meanwhile."""
    whole = cost_model.index_bytes(factory, corpus.sentences, corpus.dim)
    sample = cost_model.num_training_rows(corpus.sentences) * SAMPLED * corpus.dim
    return ResourceNeed(PROCESS + BUFFERS + max(sample, 3 * whole), whole + corpus.sentences * 2 * corpus.dim, whole)


def comparing(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Exact search: every pair of shards leaves the neighbours of both, which are merged with those of the targets before."""
    nearest = _nearest(k)
    left, shards = (source.sentences + target.sentences) * nearest, source.shard + target.shard
    columns = min(COMPARED, target.shards)
    blocks = (source.sentences * columns + columns * target.shard * source.shards) * nearest
    before = left if columns < target.shards else 0
    return ResourceNeed(PROCESS + BUFFERS + SEARCHING + 3 * shards * nearest, left, blocks + before)


def proposing(source: CorpusSize, target: CorpusSize, k: int, factories: tuple[str, str]) -> ResourceNeed:
    """Search by FAISS: the larger index, twice where it is laid out anew, the ids of its corpus, and a shard of neighbours."""
    held = [
        2 * cost_model.index_bytes(name, side.sentences, side.dim) + side.sentences * cost_model.ID_BYTES
        for name, side in zip(factories, (source, target), strict=True)
    ]
    neighbours = max(source.shard, target.shard) * _nearest(k)
    return ResourceNeed(PROCESS + BUFFERS + SEARCHING + max(held) + 3 * neighbours, (source.sentences + target.sentences) * _nearest(k))


def deciding(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Candidates and pairs, by ranges of ids and of margins.

    As many pairs as the smaller side has sentences are the most there can be with the usual retrieval.
    """
    candidates, texts = k * (source.sentences + target.sentences), source.text + target.text
    pairs = min(source.sentences, target.sentences)
    joining = COPIES_OF_ROWS * MEETING * k * (source.shard + target.shard)
    matching = min(candidates, AT_ONCE) * CONTENDING
    ordering = COPIES_OF_ROWS * min(pairs, IN_ORDER) * (texts + BITEXT)
    left = candidates * CANDIDATE + pairs * (texts + BITEXT)
    passing = max(2 * candidates * MEETING, pairs * (texts + BITEXT))
    return ResourceNeed(PROCESS + BUFFERS + max(joining, matching, ordering), left, passing)


def _nearest(k: int) -> int:
    """Of a sentence, its k neighbours and their similarities."""
    return cost_model.ID_BYTES + 16 * k

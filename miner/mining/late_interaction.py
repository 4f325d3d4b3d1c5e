"""Late interaction: how well each token of one sentence matches its best token of the other, in both directions.

For unit token vectors u_i of x and v_j of y, with weights w_i and w_j,

    L(x, y) = 1/2 (sum_i w_i max_j u_i.v_j / sum_i w_i  +  sum_j w_j max_i u_i.v_j / sum_j w_j)

This is MaxSim of ColBERT (Khattab and Zaharia, SIGIR 2020, equation 3), weighted and in both directions. Vectors and weights are integers
(`miner.encoders.token_vectors`), so products and sums are exact in int32 and in float32 and float64: a score depends neither on the
arithmetic, nor on the order or the batch.

One product gives the similarities of the tokens of a sentence and those of all its candidates. Sentences of similar length share a block,
whose maxima are computed together. Texts are padded with their first token at weight 0, which changes no maximum.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miner.encoders.token_vectors import SCALE, TokenVectors
from miner.mining.margin import Floats
from miner.search.parallel import parallel_for
from miner.search.precision import full_precision_matmul, rank_precisions

Rows = npt.NDArray[np.int64]

QUERY_MULTIPLE = 8  # to which queries are padded
KEY_MULTIPLE = 8  # to which keys are padded: rows of products that are reduced at a time
MAX_KEYS = 64  # of one product, which bounds its memory for a sentence with very many candidates
CPU_BLOCK_CELLS = 1 << 21  # products of a block: 8 MB; half or twice as many take a tenth longer
GPU_BLOCK_CELLS = 1 << 24
MAX_GPU_TABLE_BYTES = 1 << 30  # of the vectors of a side; a larger table is in memory, or in a file, and goes to the GPU by block


@dataclass(frozen=True)
class LateOptions:
    """Where and how scores are computed. None of this changes the result."""

    device: str = "cpu"
    precision: str | None = None  # int8 or float32; None: the faster one
    block_cells: int | None = None


DEFAULT_OPTIONS = LateOptions()


def late_similarities(
    queries: TokenVectors, keys: TokenVectors, query_rows: Rows, key_rows: Rows, options: LateOptions = DEFAULT_OPTIONS
) -> Floats:
    """Return L (p,) of pairs of a query and a key (p,), by their rows; 0 where a text has no tokens. Queries and keys are interchangeable.

    Faster where each query has many keys.
    """
    result = np.zeros(len(query_rows))
    rows = np.flatnonzero((queries.lengths[query_rows] > 0) & (keys.lengths[key_rows] > 0))
    if not len(rows):
        return result
    device = torch.device(options.device)
    precision = options.precision or _fastest_precision(device, _padded_dim(keys))
    sides = _Side.of(queries, QUERY_MULTIPLE, device), _Side.of(keys, KEY_MULTIPLE, device)
    order = rows[np.lexsort((query_rows[rows], sides[0].padded[query_rows[rows]]))]
    cells = options.block_cells or (CPU_BLOCK_CELLS if device.type == "cpu" else GPU_BLOCK_CELLS)
    blocks = _Blocks.of(sides, query_rows[order], key_rows[order], cells)
    scorer = _BlockScorer(*sides, blocks, precision)
    with full_precision_matmul():
        parallel_for(len(blocks.starts) - 1, scorer.score, device)
    result[order] = scorer.scores
    return result


def _fastest_precision(device: torch.device, dim: int) -> str:
    return "int8" if device.type == "cpu" and "int8" in rank_precisions(device, dim) else "float32"


def _padded_dim(tokens: TokenVectors) -> int:
    return -(-int(tokens.table.shape[1]) // 8) * 8


@dataclass(frozen=True)
class _Side:
    """The texts of one side on a device."""

    tokens: TokenVectors
    device: torch.device
    table: Tensor  # (t, dim / 8) int64: 8 components each, which torch gathers 8 times as fast
    padded: Rows  # (n,) padded lengths
    total_weights: npt.NDArray[np.int64]  # (n,)

    @classmethod
    def of(cls, tokens: TokenVectors, multiple: int, device: torch.device) -> "_Side":
        table = tokens.table
        if table.shape[1] % 8:
            table = np.pad(table, ((0, 0), (0, _padded_dim(tokens) - table.shape[1])))
        packed = torch.from_numpy(np.require(table, requirements=["C", "W"])).view(torch.int64)
        if table.nbytes <= MAX_GPU_TABLE_BYTES:
            packed = packed.to(device)
        return cls(tokens, device, packed, -(-tokens.lengths // multiple) * multiple, tokens.total_weights())

    def gather(self, texts: Rows) -> tuple[Tensor, npt.NDArray[np.int64]]:
        """Return the vectors (m, dim) int8 of the padded tokens of these texts, and their weights (m,)."""
        padded = self.padded[texts]
        starts = np.cumsum(padded) - padded
        offsets = np.arange(int(padded.sum())) - np.repeat(starts, padded)
        is_token = offsets < np.repeat(self.tokens.lengths[texts], padded)
        positions = np.repeat(self.tokens.bounds[texts], padded) + np.where(is_token, offsets, 0)
        rows = torch.from_numpy(self.tokens.rows[positions]).to(self.table.device)
        weights = np.where(is_token, self.tokens.weights[positions], 0).astype(np.int64)
        return self.table.index_select(0, rows).to(self.device).view(torch.int8), weights


@dataclass(frozen=True)
class _Blocks:
    """Pairs in the order of their queries, cut into products of one query and some keys, and these into blocks of equal padded length."""

    query_rows: Rows  # (p,)
    key_rows: Rows  # (p,)
    product_starts: Rows  # (products + 1,) of the pairs
    starts: Rows  # (blocks + 1,) of the products

    @classmethod
    def of(cls, sides: tuple[_Side, _Side], query_rows: Rows, key_rows: Rows, cells: int) -> "_Blocks":
        pairs = np.arange(len(query_rows))
        is_new_query = np.append(True, query_rows[1:] != query_rows[:-1])
        rank = pairs - np.maximum.accumulate(np.where(is_new_query, pairs, 0))
        products = np.flatnonzero(rank % MAX_KEYS == 0)
        widths = sides[0].padded[query_rows]
        sizes = np.add.reduceat(widths * sides[1].padded[key_rows], products)
        block = np.cumsum(sizes) // cells
        is_new_block = np.append(True, (block[1:] != block[:-1]) | (widths[products][1:] != widths[products][:-1]))
        return cls(query_rows, key_rows, np.append(products, len(pairs)), np.append(np.flatnonzero(is_new_block), len(products)))


class _BlockScorer:
    """Scores blocks into `scores` (p,)."""

    def __init__(self, queries: _Side, keys: _Side, blocks: _Blocks, precision: str) -> None:
        self.queries, self.keys, self.blocks = queries, keys, blocks
        self.is_integer = precision == "int8"
        self.scores = np.zeros(len(blocks.query_rows))

    def score(self, number: int) -> None:
        """Score one block."""
        products = self.blocks.product_starts[self.blocks.starts[number] : self.blocks.starts[number + 1] + 1]
        pairs = slice(products[0], products[-1])
        queries, keys = self.blocks.query_rows[products[:-1]], self.blocks.key_rows[pairs]
        query_vectors, query_weights = self.queries.gather(queries)
        key_vectors, key_weights = self.keys.gather(keys)
        width = int(self.queries.padded[queries[0]])
        key_starts = np.append(0, np.cumsum(self.keys.padded[keys]))
        cells = self._multiply(query_vectors, key_vectors, width, key_starts[products - products[0]])
        best_queries = cells.amax(1).cpu().numpy().astype(np.int64)  # of each key token
        key_sums = np.add.reduceat(best_queries * key_weights, key_starts[:-1])
        best_keys = _segment_maxima(cells.view(-1, KEY_MULTIPLE, width).amax(1), key_starts // KEY_MULTIPLE)
        weights = np.repeat(query_weights.reshape(-1, width), np.diff(products), axis=0)
        query_sums = (best_keys.cpu().numpy().astype(np.int64) * weights).sum(axis=1)
        query_totals = np.repeat(self.queries.total_weights[queries], np.diff(products))
        similarities = query_sums / query_totals + key_sums / self.keys.total_weights[keys]
        self.scores[pairs] = similarities / (2 * SCALE**2)

    def _multiply(self, queries: Tensor, keys: Tensor, width: int, bounds: Rows) -> Tensor:
        """Tokens of b queries (b * width, dim) and of their keys (m, dim), of which `bounds` (b + 1,) -> products (m, width)."""
        dtype = torch.int32 if self.is_integer else torch.float32
        if not self.is_integer:
            queries, keys = queries.float(), keys.float()
        multiply = torch._int_mm if self.is_integer else torch.mm
        cells = torch.empty((len(keys), width), dtype=dtype, device=keys.device)
        sizes, transposed = np.diff(bounds).tolist(), queries.view(-1, width, queries.shape[1]).transpose(1, 2).unbind()
        for key, query, product in zip(torch.split(keys, sizes), transposed, torch.split(cells, sizes), strict=True):
            multiply(key, query, out=product)
        return cells


def _segment_maxima(rows: Tensor, bounds: Rows) -> Tensor:
    """Rows (m, n) and the bounds (p + 1,) of segments, none of them empty -> (p, n)."""
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")
    starts = torch.from_numpy(bounds[:-1][order]).to(rows.device)
    maxima = rows.index_select(0, starts)
    for offset in range(1, int(lengths.max())):
        count = int((lengths > offset).sum())
        torch.maximum(maxima[:count], rows.index_select(0, starts[:count] + offset), out=maxima[:count])
    return maxima.index_select(0, torch.from_numpy(np.argsort(order)).to(rows.device))

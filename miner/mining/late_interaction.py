"""Late interaction: how well each token of one sentence matches its best token of the other, in both directions.

For unit token vectors u_i of x and v_j of y, with weights w_i and w_j,

    L(x, y) = 1/2 (sum_i w_i max_j u_i.v_j / sum_i w_i  +  sum_j w_j max_i u_i.v_j / sum_j w_j)

This is MaxSim of ColBERT (Khattab and Zaharia, SIGIR 2020, equation 3), weighted and in both directions. Vectors and weights are integers
(`miner.encoders.token_vectors`), so products and sums are exact in int32 and in float32 and float64: a score depends neither on the
arithmetic, nor on the order or the batch.

One product gives the similarities of the tokens of a sentence and those of all its candidates, which share many tokens: each distinct
one is multiplied once. Sentences of similar length share a block, whose maxima are computed together. Queries are padded with their first
token at weight 0, which changes no maximum.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from miner.arrays import Floats, Ints, Ints32, concatenate_ranges, mark_run_starts, run_bounds
from miner.encoders.token_vectors import SCALE, TokenVectors
from miner.search.parallel import parallel_for
from miner.search.precision import full_precision_matmul, rank_precisions

QUERY_MULTIPLE = 8  # to which queries are padded
MAX_KEYS = 64  # of one product, which bounds its memory for a sentence with very many candidates
CPU_BLOCK_COMPONENTS = 1 << 22  # of the vectors of the keys of a block: 16 MB in float32
GPU_BLOCK_COMPONENTS = 1 << 26
MAX_GPU_TABLE_BYTES = 1 << 30  # of the vectors of a side; a larger table is in memory, or in a file, and goes to the GPU by block


@dataclass(frozen=True)
class LateOptions:
    """Where and how scores are computed. None of this changes the result."""

    device: str = "cpu"
    precision: str | None = None  # int8 or float32; None: the faster one
    block_components: int | None = None  # of the vectors of the keys of a block


DEFAULT_OPTIONS = LateOptions()


def late_similarities(
    queries: TokenVectors, keys: TokenVectors, query_rows: Ints, key_rows: Ints, options: LateOptions = DEFAULT_OPTIONS
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
    sides = _Side.of(queries, device), _Side.of(keys, device)
    padded = -(-queries.lengths // QUERY_MULTIPLE) * QUERY_MULTIPLE
    order = rows[_order_by_query(padded, query_rows[rows])]
    components = options.block_components or (CPU_BLOCK_COMPONENTS if device.type == "cpu" else GPU_BLOCK_COMPONENTS)
    blocks = _Blocks.of(padded, keys.lengths, query_rows[order], key_rows[order], components // _padded_dim(keys))
    scorer = _BlockScorer(*sides, blocks, precision)
    with full_precision_matmul():
        parallel_for(len(blocks.starts) - 1, scorer.score, device.type)
    result[order] = scorer.scores
    return result


def _order_by_query(padded: Ints, query_rows: Ints) -> Ints:
    """Return the order (p,) of pairs by the padded length (n,) of their query, then by query (p,)."""
    ranks = np.empty(len(padded), dtype=np.int64)
    ranks[np.argsort(padded, kind="stable")] = np.arange(len(padded))
    return np.argsort(ranks[query_rows])  # one key, because lexsort takes three times as long


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
    total_weights: Ints  # (n,)

    @classmethod
    def of(cls, tokens: TokenVectors, device: torch.device) -> "_Side":
        table = tokens.table
        if table.shape[1] % 8:
            table = np.pad(table, ((0, 0), (0, _padded_dim(tokens) - table.shape[1])))
        packed = torch.from_numpy(np.require(table, requirements=["C", "W"])).view(torch.int64)
        if table.nbytes <= MAX_GPU_TABLE_BYTES:
            packed = packed.to(device)
        return cls(tokens, device, packed, tokens.total_weights())

    def vectors(self, rows: npt.NDArray[np.integer]) -> Tensor:
        """Return the vectors (m, dim) int8 of these rows (m,) of the table."""
        return self.table.index_select(0, torch.from_numpy(rows).to(self.table.device)).to(self.device).view(torch.int8)

    def padded_tokens(self, texts: Ints, width: int) -> tuple[Tensor, Ints]:
        """Return the vectors (b, width, dim) int8 of the tokens of these texts (b,), none of them empty, and their weights (b, width)."""
        is_token = np.arange(width) < self.tokens.lengths[texts][:, None]
        positions = self.tokens.bounds[texts][:, None] + np.where(is_token, np.arange(width), 0)
        weights = np.where(is_token, self.tokens.weights[positions], 0).astype(np.int64)
        return self.vectors(self.tokens.rows[positions].ravel()).view(len(texts), width, -1), weights


@dataclass(frozen=True)
class _Blocks:
    """Pairs in the order of their queries, cut into products of one query and some keys, and these into blocks of equal padded length."""

    query_rows: Ints  # (p,)
    key_rows: Ints  # (p,)
    product_starts: Ints  # (products + 1,) of the pairs
    starts: Ints  # (blocks + 1,) of the products
    widths: Ints  # (blocks,): the padded lengths of the queries

    @classmethod
    def of(cls, padded: Ints, key_lengths: Ints, query_rows: Ints, key_rows: Ints, block_tokens: int) -> "_Blocks":
        """Cut pairs (p,), given the padded lengths (n,) of queries and the lengths (m,) of keys, into blocks of so many key tokens."""
        num_keys = np.diff(run_bounds(query_rows))
        key_numbers = concatenate_ranges(np.zeros_like(num_keys), num_keys)
        products = np.flatnonzero(key_numbers % MAX_KEYS == 0)
        widths = padded[query_rows[products]]
        block = np.cumsum(np.add.reduceat(key_lengths[key_rows], products)) // max(1, block_tokens)
        bounds = run_bounds(block, widths)
        return cls(query_rows, key_rows, np.append(products, len(query_rows)), bounds, widths[bounds[:-1]])


@dataclass(frozen=True)
class _DistinctTokens:
    """The tokens of the keys of b products, those of one product each once."""

    rows: Ints  # (u,) of the table of the keys
    bounds: Ints  # (b + 1,): those of each product
    numbers: Ints  # (m,): which one each token is

    @classmethod
    def of(cls, rows: Ints32, bounds: Ints) -> "_DistinctTokens":
        """Find the distinct ones of tokens (m,), by their rows, with the bounds (b + 1,) of products."""
        num_rows = int(rows.max()) + 1
        tokens = np.repeat(np.arange(len(bounds) - 1) * num_rows, np.diff(bounds)) + rows
        order = np.argsort(tokens)
        tokens = tokens[order]
        is_first = mark_run_starts(tokens)
        numbers = np.empty(len(rows), dtype=np.int64)
        numbers[order] = np.cumsum(is_first) - 1
        tokens = tokens[is_first]
        return cls(tokens % num_rows, np.searchsorted(tokens, np.arange(len(bounds)) * num_rows), numbers)


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
        query_vectors, query_weights = self.queries.padded_tokens(queries, int(self.blocks.widths[number]))
        tokens = self.keys.tokens.take(keys)
        distinct = _DistinctTokens.of(tokens.rows, tokens.bounds[products - products[0]])
        cells = self._multiply(query_vectors, self.keys.vectors(distinct.rows), distinct.bounds)
        best_queries = cells.amax(1).cpu().numpy().astype(np.int64)[distinct.numbers]  # of each key token
        key_sums = np.add.reduceat(best_queries * tokens.weights, tokens.bounds[:-1])
        best_keys = _segment_maxima(cells, distinct.numbers, tokens.bounds)
        num_keys = np.diff(products)
        query_sums = (best_keys * np.repeat(query_weights, num_keys, axis=0)).sum(axis=1)
        query_totals = np.repeat(self.queries.total_weights[queries], num_keys)
        similarities = query_sums / query_totals + key_sums / self.keys.total_weights[keys]
        self.scores[pairs] = similarities / (2 * SCALE**2)

    def _multiply(self, queries: Tensor, keys: Tensor, bounds: Ints) -> Tensor:
        """Tokens of b queries (b, width, dim) and of their keys (u, dim), of which `bounds` (b + 1,) -> products (u, width) float32."""
        if keys.device.type == "cpu" and not self.is_integer:  # one call, in which other threads do not wait for the lock of Python
            ends = torch.from_numpy(bounds[1:].astype(np.int32))
            return functional.grouped_mm(keys.float(), queries.float().transpose(1, 2), offs=ends)
        dtype = torch.int8 if self.is_integer else torch.float32
        multiply = torch._int_mm if self.is_integer else torch.mm
        cells = torch.empty((len(keys), queries.shape[1]), dtype=torch.int32 if self.is_integer else dtype, device=keys.device)
        sizes, transposed = np.diff(bounds).tolist(), queries.to(dtype).transpose(1, 2).unbind()
        for key, query, product in zip(torch.split(keys.to(dtype), sizes), transposed, torch.split(cells, sizes), strict=True):
            multiply(key, query, out=product)
        return cells.float()


def _segment_maxima(cells: Tensor, rows: Ints, bounds: Ints) -> Ints:
    """Rows (m,) of cells (u, n), and the bounds (p + 1,) of segments of these rows, none of them empty -> the maxima (p, n) of segments."""
    order, lengths = (torch.from_numpy(numbers).to(cells.device) for numbers in (rows, np.diff(bounds)))
    maxima = torch.segment_reduce(cells.index_select(0, order), "max", lengths=lengths)  # half the time of `embedding_bag`
    return maxima.cpu().numpy().astype(np.int64)

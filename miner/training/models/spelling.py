"""Subword sharing: pieces with similar spelling share n-gram vectors during training, across scripts.

A piece is transliterated to Latin letters ("Путин" and "putin" become equal) and split into character n-grams. Its vector is its own
row plus the sum of the rows of its n-grams, as in fastText (Bojanowski et al. 2017, eq. 2 and section 3.2), so rare pieces, names and
cognates learn from similar pieces. The sums are computed once at the end of training; the exported encoder does not contain n-grams.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import anyascii
import torch
from torch import Tensor

NGRAM_LENGTHS = (3, 4, 5)
MAX_PIECE_LETTERS = 24  # longer pieces are truncated


def spelling_ngrams(piece: str) -> set[str]:
    """Return the n-grams of a transliterated SentencePiece piece; `<` and `>` are its boundaries, `_` starts a word."""
    latin = anyascii.anyascii(piece.replace("▁", "_")).lower().replace(" ", "")[:MAX_PIECE_LETTERS]
    bounded = f"<{latin}>"
    grams = {bounded[start : start + length] for length in NGRAM_LENGTHS for start in range(len(bounded) - length + 1)}
    # Two features of the whole piece: with and without its position in a word.
    return grams | {f"= {bounded}", f"~ {latin.replace('_', '')}"}


def build_spelling_matrix(pieces: Sequence[str], buckets: int) -> Tensor:
    """Return a sparse COO matrix (pieces, buckets); row i holds 1 / sqrt(n) in the buckets of the n n-grams of piece i."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for row, piece in enumerate(pieces):
        grams = sorted(spelling_ngrams(piece))
        rows += [row] * len(grams)
        columns += [zlib.crc32(gram.encode()) % buckets for gram in grams]
        values += [len(grams) ** -0.5] * len(grams)
    return torch.sparse_coo_tensor(torch.tensor([rows, columns]), torch.tensor(values), (len(pieces), buckets)).coalesce()


class SparseProduct(torch.autograd.Function):
    """Product matrix @ dense with a constant sparse matrix. Its transpose is passed in CSR too, for a fast backward pass."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        product: Tensor = torch.sparse.mm(matrix, dense)
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return torch.sparse.mm(ctx.transposed, gradients[0]), None, None

"""What pieces share by their spelling: pieces of a like sound start from like vectors, whatever their script.

A piece is written in Latin letters ("Путин" and "putin" alike), cut into n-grams, and its vector is its own row plus the sum of
its n-grams' rows, as in fastText (Bojanowski et al. 2017, eq. 2 and section 3.2). Rare pieces, names and cognates then learn from
their relatives. The sum is taken once when training ends, so the encoder that ships knows nothing of it.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import anyascii
import torch
from torch import Tensor

LENGTHS = (3, 4, 5)
LONGEST = 24  # letters of a piece that count


def ngrams(piece: str) -> set[str]:
    """The n-grams of a SentencePiece piece in Latin letters; `<` and `>` bound it, `_` starts a word."""
    latin = anyascii.anyascii(piece.replace("▁", "_")).lower().replace(" ", "")[:LONGEST]
    bounded = f"<{latin}>"
    parts = {bounded[at : at + length] for length in LENGTHS for at in range(len(bounded) - length + 1)}
    # Two longer names: the piece as it is, and without regard to where in a word it stands.
    return parts | {f"= {bounded}", f"~ {latin.replace('_', '')}"}


def spelling_matrix(pieces: Sequence[str], buckets: int) -> Tensor:
    """p pieces -> (p, buckets) sparse COO; row i holds 1 / sqrt(n) at the buckets of its n n-grams."""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for row, piece in enumerate(pieces):
        parts = sorted(ngrams(piece))
        rows += [row] * len(parts)
        columns += [zlib.crc32(part.encode()) % buckets for part in parts]
        values += [len(parts) ** -0.5] * len(parts)
    return torch.sparse_coo_tensor(torch.tensor([rows, columns]), torch.tensor(values), (len(pieces), buckets)).coalesce()


class SparseProduct(torch.autograd.Function):
    """matrix @ dense with a constant sparse matrix, whose transpose is kept in CSR too: the backward pass is then as fast."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        product: Tensor = torch.sparse.mm(matrix, dense)
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return torch.sparse.mm(ctx.transposed, gradients[0]), None, None

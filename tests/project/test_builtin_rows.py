"""The fit of piece vectors to those of translations, against numpy, and which vectors keep their values."""

from pathlib import Path

import builtin_rows
import numpy as np
import pyarrow as pa
from scipy import sparse

from miner.encoders.static import StaticEncoder


def test_fit_solves_the_ridge_regression() -> None:
    random = np.random.default_rng(0)
    counts, residuals, ridge = random.poisson(0.6, (40, 7)), random.normal(size=(40, 8)), random.uniform(0.1, 3, 7)
    expected = np.linalg.solve(counts.T @ counts + np.diag(ridge), counts.T @ residuals)
    assert builtin_rows.ITERATIONS > 7  # conjugate gradients are exact after as many steps as there are unknowns
    np.testing.assert_allclose(builtin_rows.fit(sparse.csr_matrix(counts.astype(float)), residuals, ridge), expected, atol=1e-8)


def test_only_pieces_of_languages_with_little_text_change(toy_encoder: Path) -> None:
    """Nuer has the French words of the toy encoder, with others' meanings; no vector changes where it is known well."""
    meanings = {"un": "two", "deux": "three", "trois": "five", "cinq": "one"}
    texts = [(row, "eng_Latn", english) for row, english in enumerate([*meanings.values()] * 3)]
    texts += [(row, "nus_Latn", nuer) for row, nuer in enumerate([*meanings] * 3)]
    columns = dict(zip(("group", "lang", "text"), map(list, zip(*texts, strict=True)), strict=True))
    encoder, table = StaticEncoder(toy_encoder), pa.table({**columns, "source": ["train/toy"] * len(texts)})
    vectors, fitted = encoder.vectors, builtin_rows.fit_vectors(table, encoder, {})
    rows = {word: encoder.pieces.encode(word) for word in (*meanings, *meanings.values(), "dix")}
    for nuer, english in meanings.items():
        sums = [vectors[rows[nuer]].sum(axis=0), fitted[rows[nuer]].sum(axis=0), vectors[rows[english]].sum(axis=0)]
        before, after, target = (vector / np.linalg.norm(vector) for vector in sums)
        assert after @ target > before @ target + 0.2
    changed = {encoder.pieces.id_to_piece(int(row)) for row in np.flatnonzero((fitted != vectors).any(axis=1))}
    assert changed == {encoder.pieces.id_to_piece(piece) for word in meanings for piece in rows[word]}
    kept = builtin_rows.fit_vectors(table, encoder, {"nus_Latn": builtin_rows.KNOWN})
    np.testing.assert_array_equal(kept, vectors)

"""Late interaction against plain loops in float64; ties, texts without tokens, and precisions, blocks and orders that change no bit."""

import numpy as np
import pytest

from miner.encoders.token_vectors import MIN_WEIGHT, SCALE, TokenTable, TokenVectors
from miner.mining import late_scores
from miner.mining.candidates import Candidates, LateScores, late_means, score
from miner.mining.late_interaction import LateOptions, late_similarities
from miner.mining.margin import LATE_WEIGHT


def token_vectors(vectors: np.ndarray, texts: list[list[int]]) -> TokenVectors:
    bounds = np.cumsum([0, *map(len, texts)])
    return TokenVectors.of(TokenTable.of(vectors), np.array([row for text in texts for row in text], dtype=np.int32), bounds)


def random_texts(num_texts: int, num_vectors: int, seed: int, max_tokens: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, num_vectors, size=rng.integers(0, max_tokens)).tolist() for _ in range(num_texts)]


def reference(vectors: np.ndarray, x: list[int], y: list[int]) -> float:
    """Return L by its formula, with the real vectors and lengths of the tokens that are not dropped."""

    def unit_tokens(text: list[int]) -> tuple[list[np.ndarray], list[float]]:
        norms = [float(np.linalg.norm(vectors[row])) for row in text]
        kept = [(row, norm) for row, norm in zip(text, norms, strict=True) if norm > 0 and norm >= MIN_WEIGHT * max(norms)]
        return [vectors[row] / norm for row, norm in kept], [norm for _, norm in kept]

    (u, v_weights), (v, w_weights) = unit_tokens(x), unit_tokens(y)
    if not u or not v:
        return 0.0
    forward = sum(weight * max(float(a @ b) for b in v) for a, weight in zip(u, v_weights, strict=True)) / sum(v_weights)
    backward = sum(weight * max(float(a @ b) for a in u) for b, weight in zip(v, w_weights, strict=True)) / sum(w_weights)
    return (forward + backward) / 2


@pytest.mark.parametrize("dim", [1, 6, 8, 256])
def test_equals_plain_loops_up_to_the_rounding_of_the_vectors(dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.normal(size=(50, dim)) * rng.uniform(0.01, 5, size=(50, 1))
    vectors[7] = 0  # the unknown piece
    x, y = ([[], [3], [7, 7], *random_texts(17, 50, seed)] for seed in (1, 2))
    rows, columns = (grid.ravel() for grid in np.meshgrid(np.arange(20), np.arange(20)))
    similarities = late_similarities(token_vectors(vectors, x), token_vectors(vectors, y), rows, columns)
    expected = [reference(vectors, x[row], y[column]) for row, column in zip(rows, columns, strict=True)]
    np.testing.assert_allclose(similarities, expected, atol=0.02)
    assert np.count_nonzero(similarities) == np.count_nonzero(expected)


def test_by_hand() -> None:
    """Tokens (1, 0) and 3 times (0, 1) against (1, 0): 1/4 of the weight matches exactly and 3/4 not at all; backward all matches."""
    vectors = np.array([[1.0, 0.0], [0.0, 3.0]])
    x, y = token_vectors(vectors, [[0, 1]]), token_vectors(vectors, [[0]])
    zero = np.zeros(1, dtype=np.int64)
    assert late_similarities(x, y, zero, zero).tolist() == [pytest.approx((1 / 4 + 1) / 2, abs=1e-4)]
    assert late_similarities(y, y, zero, zero).tolist() == [1.0]


def test_no_bit_depends_on_precision_blocks_order_or_direction() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 64))
    x, y = (token_vectors(vectors, random_texts(80, 300, seed)) for seed in (1, 2))
    rows, columns = rng.integers(0, 80, size=(2, 900))
    rows[:200] = 5  # more candidates than one product takes
    expected = late_similarities(x, y, rows, columns, LateOptions(precision="float32"))
    for options in (
        LateOptions(precision="int8"),
        LateOptions(precision="int8", block_components=1000),
        LateOptions(block_components=1 << 24),
    ):
        np.testing.assert_array_equal(late_similarities(x, y, rows, columns, options), expected)
    order = rng.permutation(900)
    np.testing.assert_array_equal(late_similarities(x, y, rows[order], columns[order]), expected[order])
    np.testing.assert_array_equal(late_similarities(y, x, columns, rows), expected)
    for number in range(0, 900, 90):  # each pair by itself
        pair = slice(number, number + 1)
        np.testing.assert_array_equal(late_similarities(x, y, rows[pair], columns[pair]), expected[pair])


def exact_late_similarity(x: TokenVectors, y: TokenVectors, row: int, column: int) -> float:
    """Return L by its formula in float64, in which all sums of the integers are exact."""
    u, v = (tokens.table[tokens.rows[slice(*tokens.bounds[text : text + 2])]] for tokens, text in ((x, row), (y, column)))
    w, z = (tokens.weights[slice(*tokens.bounds[text : text + 2])] for tokens, text in ((x, row), (y, column)))
    if not len(u) or not len(v):
        return 0.0
    products = [[sum(float(a) * float(b) for a, b in zip(token, other, strict=True)) for other in v] for token in u]
    forward = sum(weight * max(line) for weight, line in zip(w.tolist(), products, strict=True)) / sum(w.tolist())
    backward = sum(weight * max(line) for weight, line in zip(z.tolist(), zip(*products, strict=True), strict=True)) / sum(z.tolist())
    return (forward + backward) / (2 * SCALE**2)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("block_components", [1, 500, None])
def test_equals_plain_loops_to_the_last_bit(precision: str, block_components: int | None) -> None:
    """Texts without tokens, of one token, and of one token that repeats; vectors that are equal, and that are rounded to zero."""
    rng = np.random.default_rng(11)
    vectors = rng.normal(size=(30, 12)) * rng.uniform(0.5, 1, size=(30, 1))
    vectors[3], vectors[4] = vectors[2], 0  # 4 is the unknown piece
    vectors[5, :6] = 0  # of which the dimensions that are compared are zero
    table = TokenTable.of(vectors, 6)
    x, y = (
        TokenVectors.of(table, np.array([row for text in texts for row in text], dtype=np.int32), np.cumsum([0, *map(len, texts)]))
        for texts in ([[], [4], [1], [5], [2, 3, 2], [7] * 20, *random_texts(14, 30, seed, max_tokens=19)] for seed in (1, 2))
    )
    rows, columns = rng.integers(0, 20, size=(2, 600))
    rows[:150] = 19  # more candidates than one product takes
    similarities = late_similarities(x, y, rows, columns, LateOptions(precision=precision, block_components=block_components))
    assert similarities.tolist() == [exact_late_similarity(x, y, *pair) for pair in zip(rows.tolist(), columns.tolist(), strict=True)]


@pytest.mark.parametrize("product_multiplications", [1, 50_000, late_scores.PRODUCT_MULTIPLICATIONS])
@pytest.mark.parametrize("dim", [1, 6, 256])
def test_few_pairs_have_the_same_bits(dim: int, product_multiplications: int) -> None:
    rng = np.random.default_rng(dim)
    x, y = (token_vectors(rng.normal(size=(30, dim)), [[], *random_texts(60, 30, seed), []]) for seed in (1, 2))
    rows, columns = rng.integers(0, 62, size=(2, 900))
    rows[:300] = 5
    expected = late_similarities(x, y, rows, columns, LateOptions(precision="float32"))
    np.testing.assert_array_equal(late_scores.score_few(x, y, rows, columns, product_multiplications), expected)
    np.testing.assert_array_equal(late_scores.score_few(y, x, columns, rows, product_multiplications), expected)
    for max_multiplications in (0, late_scores.MAX_MULTIPLICATIONS):  # both implementations
        similarities = late_scores.score_pairs(x, y, rows, columns, "cpu", max_multiplications)
        np.testing.assert_array_equal(similarities, expected)


def test_equal_texts_tie_exactly() -> None:
    vectors = np.random.default_rng(3).normal(size=(20, 16))
    x, y = token_vectors(vectors, [[1, 2, 3]]), token_vectors(vectors, [[4, 5], [6, 7], [5, 4], [4, 5]])
    similarities = late_similarities(x, y, np.zeros(4, np.int64), np.arange(4))
    assert similarities[0] == similarities[2] == similarities[3] != similarities[1]


def test_nothing_to_score() -> None:
    vectors = np.ones((2, 8))
    empty, text = token_vectors(vectors, []), token_vectors(vectors, [[], [0]])
    none = np.zeros(0, dtype=np.int64)
    assert late_similarities(empty, text, none, none).tolist() == []
    assert late_similarities(text, text, np.array([0, 0, 1]), np.array([0, 1, 0])).tolist() == [0, 0, 0]
    assert late_scores.score_pairs(empty, text, none, none, "cpu").tolist() == []
    assert late_scores.score_pairs(text, text, np.array([0, 0, 1]), np.array([0, 1, 0]), "cpu").tolist() == [0, 0, 0]


def test_tokens_are_integers_and_light_ones_are_dropped() -> None:
    vectors = np.array([[2.0, 0.0], [0.0, 0.2], [0.0, 0.51], [0.0, 0.0]])
    tokens = token_vectors(vectors, [[0, 1, 2, 3], [1], [3], []])
    assert tokens.rows.tolist() == [0, 2, 1]  # 0.2 is a tenth of the heaviest token of the first text, and all of the second
    assert tokens.weights.tolist() == [4096, round(0.255 * 4096), 4096]
    assert tokens.bounds.tolist() == [0, 2, 3, 3, 3]
    assert tokens.table.tolist() == [[SCALE, 0], [0, SCALE], [0, SCALE], [0, 0]]
    assert tokens.total_weights().tolist() == [4096 + 1044, 4096, 0, 0]


def test_late_means_are_those_of_the_k_largest_of_own_neighbours() -> None:
    ids = np.array([5, 2, 5, 5, 2, 5, 9])
    similarities = np.array([0.5, 0.1, 0.25, 0.75, 0.3, 1.0, 0.4])
    is_neighbour = np.array([True, True, True, True, False, False, False])
    # 5 has 0.75 and 0.5; its 1.0 is not with a neighbour of its own. 2 has one neighbour, 9 none.
    expected = [0.625, 0.1, 0.625, 0.625, 0.1, 0.625, 0.0]
    np.testing.assert_array_equal(late_means(ids, similarities, is_neighbour, 2), expected)
    np.testing.assert_array_equal(late_means(ids[:0], similarities[:0], is_neighbour[:0], 2), [])


@pytest.mark.parametrize("k", [1, 3, 50])
def test_late_means_equal_plain_loops_to_the_last_bit(k: int) -> None:
    """Random sentences, with ties and with very different numbers of neighbours."""
    rng = np.random.default_rng(k)
    ids = np.concatenate([rng.choice([-(2**63), -5, 0, 7, 2**63 - 1], size=300), np.arange(100, 120)])
    similarities = rng.integers(-8, 8, size=len(ids)) / 7
    is_neighbour = rng.random(len(ids)) < 0.6
    expected = []
    for sentence in ids:
        total, largest = 0.0, sorted(similarities[(ids == sentence) & is_neighbour].tolist(), reverse=True)[:k]
        for similarity in largest:
            total += similarity
        expected.append(total / max(1, len(largest)))
    assert late_means(ids, similarities, is_neighbour, k).tolist() == expected


@pytest.mark.parametrize(
    ("margin", "expected"),
    [("ratio", (0.8 / 0.5 + 3 * (0.6 / 0.4)) / 4), ("distance", (0.3 + 3 * 0.2) / 4), ("absolute", (0.8 + 3 * 0.6) / 4)],
)
def test_blended_margin_by_hand(margin: str, expected: float) -> None:
    late = LateScores(np.array([0.6]), np.array([0.5]), np.array([0.3]))
    one, flag = np.array([1]), np.array([True])
    candidates = Candidates(one, one, np.array([0.8]), np.array([0.6]), np.array([0.4]), flag, flag, late)
    assert LATE_WEIGHT == 3
    np.testing.assert_allclose(score(candidates, margin).margins, [expected], rtol=1e-15)

"""Centroids of an inverted file, against numpy and FAISS's own k-means."""

import sys
from pathlib import Path

import numpy as np
import pytest
from dense import unit

from miner.search import faiss_index
from miner.search.centroids import KMEANS_ITERATIONS, nearest_centroids, train_centroids


def columns(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors.T.astype(np.float32))


@pytest.mark.parametrize("torch", [True, False])
@pytest.mark.parametrize("count", [1, 5, 33])
@pytest.mark.parametrize("max_similarities", [1, 100, 1 << 24])  # one row at a time, three, and all
def test_nearest_centroids_equal_the_whole_product(count: int, max_similarities: int, torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch:
        monkeypatch.setitem(sys.modules, "torch", None)
    vectors, centroids = unit(50, 16, 0), unit(33, 16, 1)
    products = vectors.astype(np.float64) @ centroids.T.astype(np.float64)
    similarities, lists = nearest_centroids(vectors, columns(centroids), count, max_similarities)
    assert (lists == np.argsort(-products, axis=1)[:, :count]).all()
    assert np.allclose(similarities, -np.sort(-products, axis=1)[:, :count], atol=1e-6)


def test_no_vectors_have_no_lists() -> None:
    similarities, lists = nearest_centroids(np.zeros((0, 4), np.float16), columns(unit(3, 4, 0)), 2)
    assert similarities.shape == lists.shape == (0, 2)


def test_no_list_spans_two_separate_clusters() -> None:
    centres, random = np.eye(8, 32), np.random.default_rng(2)
    cluster = np.repeat(np.arange(8), 50)
    sample = centres[cluster] + random.normal(0, 0.02, (400, 32))
    sample = (sample / np.linalg.norm(sample, axis=1, keepdims=True)).astype(np.float16)
    for seed in range(5):
        centroids = train_centroids(sample, 64, seed)
        similarities, lists = nearest_centroids(sample, columns(centroids), 1)
        assert similarities.min() > 0.97
        assert all(len(set(cluster[lists[:, 0] == number])) <= 1 for number in range(64))


def test_an_empty_list_restarts_from_a_vector_far_from_its_centroid() -> None:
    points = np.eye(3, dtype=np.float16)
    sample = points[np.array([0] * 100 + [1, 2])]
    centroids = train_centroids(sample, 3, seed=0)
    assert np.allclose(sorted(centroids.tolist()), sorted(points.tolist()))


def test_centroids_are_as_near_as_those_of_faiss() -> None:
    faiss = pytest.importorskip("faiss")
    sample = np.repeat(unit(40, 24, 3), 100, axis=0) + unit(4000, 24, 4) / 2
    kmeans = faiss.Clustering(24, 64)
    kmeans.niter, kmeans.spherical = KMEANS_ITERATIONS, True
    kmeans.train(sample.astype(np.float32), faiss.IndexFlatIP(24))
    faiss_centroids = faiss.vector_to_array(kmeans.centroids).reshape(64, 24)
    ours, reference = (
        nearest_centroids(sample, columns(centroids), 1)[0].mean() for centroids in (train_centroids(sample, 64, 0), faiss_centroids)
    )
    assert ours > 0.99 * reference
    assert (train_centroids(sample, 64, 0) == train_centroids(sample, 64, 0)).all()
    assert (train_centroids(sample, 64, 0) != train_centroids(sample, 64, 1)).any()


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF16,PQ8x4", pytest.param("IVF16,PQ8", marks=pytest.mark.slow), "IVF16,SQ8"])
def test_an_index_returns_what_faiss_returns_by_itself(factory: str, tmp_path: Path) -> None:
    """FAISS assigns vectors and queries to lists itself here; only vectors between two lists may differ."""
    pytest.importorskip("faiss")
    vectors, queries = unit(2000, 32, 5), unit(100, 32, 6)
    ids = np.arange(2000) * 7 - 500
    ours = faiss_index.train_index(factory, 32, vectors, seed=0)
    theirs = faiss_index.load(faiss_index.dump(ours))
    faiss_index.add_vectors(ours, ids, vectors)
    theirs.add_with_ids(vectors.astype(np.float32), ids)
    assert (faiss_index.dump(ours) == faiss_index.dump(theirs)).all()
    (tmp_path / "index").write_bytes(faiss_index.dump(ours).tobytes())
    opened = faiss_index.open_file(str(tmp_path / "index"))
    for effort in (1, 4, 16):
        opened.index.nprobe = effort
        expected_ids = opened.index.search(queries.astype(np.float32), 10)[1]
        assert (opened.propose(queries, 10, effort) == expected_ids).mean() > 0.99

"""The lists of an inverted file, against numpy's whole products and FAISS's own k-means."""

from pathlib import Path

import numpy as np
import pytest
import torch
from dense import unit

from miner.search import centroids, faiss_index


def to_torch(vectors: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(vectors.T.astype(np.float32)).contiguous()


@pytest.mark.parametrize("count", [1, 5, 33])
@pytest.mark.parametrize("held", [1, 100, 1 << 24])  # a row at a time, three, and all
def test_the_nearest_are_those_of_the_whole_product(count: int, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centroids, "HELD", held)
    vectors, lists = unit(50, 16, 0), unit(33, 16, 1)
    products = vectors.astype(np.float64) @ lists.T.astype(np.float64)
    similarities, numbers = centroids.nearest(vectors, to_torch(lists), count)
    assert (numbers == np.argsort(-products, axis=1)[:, :count]).all()
    assert np.allclose(similarities, -np.sort(-products, axis=1)[:, :count], atol=1e-6)


def test_no_vectors_have_no_lists() -> None:
    similarities, numbers = centroids.nearest(np.zeros((0, 4), np.float16), to_torch(unit(3, 4, 0)), 2)
    assert similarities.shape == numbers.shape == (0, 2)


def test_clusters_far_apart_get_a_list_each() -> None:
    middles, chance = np.eye(8, 32), np.random.default_rng(2)
    cluster = np.repeat(np.arange(8), 50)
    sample = middles[cluster] + chance.normal(0, 0.02, (400, 32))
    sample = (sample / np.linalg.norm(sample, axis=1, keepdims=True)).astype(np.float16)
    for seed in range(5):
        found = centroids.train(sample, 64, seed)
        similarities, numbers = centroids.nearest(sample, to_torch(found), 1)
        assert similarities.min() > 0.97
        assert all(len(set(cluster[numbers[:, 0] == number])) <= 1 for number in range(64))


def test_a_list_without_vectors_takes_one_that_is_far_from_its_centroid() -> None:
    few = np.eye(3, dtype=np.float16)
    sample = few[np.array([0] * 100 + [1, 2])]
    found = centroids.train(sample, 3, seed=0)
    assert np.allclose(sorted(found.tolist()), sorted(few.tolist()))


def test_the_centroids_are_as_near_as_those_of_faiss() -> None:
    faiss = pytest.importorskip("faiss")
    sample = np.repeat(unit(40, 24, 3), 100, axis=0) + unit(4000, 24, 4) / 2
    theirs = faiss.Clustering(24, 64)
    theirs.niter, theirs.spherical = centroids.ROUNDS, True
    theirs.train(sample.astype(np.float32), faiss.IndexFlatIP(24))
    known = faiss.vector_to_array(theirs.centroids).reshape(64, 24)
    ours, reference = (centroids.nearest(sample, to_torch(each), 1)[0].mean() for each in (centroids.train(sample, 64, 0), known))
    assert ours > 0.99 * reference
    assert (centroids.train(sample, 64, 0) == centroids.train(sample, 64, 0)).all()
    assert (centroids.train(sample, 64, 0) != centroids.train(sample, 64, 1)).any()


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF16,PQ8x4", "IVF16,PQ8", "IVF16,SQ8"])
def test_an_index_answers_as_faiss_does_by_itself(factory: str, tmp_path: Path) -> None:
    """FAISS finds the lists of what it adds and is asked for; only vectors between two lists may differ."""
    pytest.importorskip("faiss")
    vectors, queries = unit(2000, 32, 5), unit(100, 32, 6)
    ids = np.arange(2000) * 7 - 500
    ours = faiss_index.train(factory, 32, vectors, seed=0)
    theirs = faiss_index.load(faiss_index.dump(ours))
    faiss_index.add(ours, ids, vectors)
    theirs.add_with_ids(vectors.astype(np.float32), ids)
    assert (faiss_index.dump(ours) == faiss_index.dump(theirs)).all()
    (tmp_path / "index").write_bytes(faiss_index.dump(ours).tobytes())
    opened = faiss_index.open_file(str(tmp_path / "index"))
    for effort in (1, 4, 16):
        opened.faiss.nprobe = effort
        known = opened.faiss.search(queries.astype(np.float32), 10)[1]
        assert (opened.propose(queries, 10, effort) == known).mean() > 0.99

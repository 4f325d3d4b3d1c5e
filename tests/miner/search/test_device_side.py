"""Merging neighbours as tensors gives what merging them as arrays gives, to the bit."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.search.device_side import DeviceNeighbours
from miner.search.neighbours import select_nearest

SIMILARITIES = st.sampled_from([-0.5, -0.0, 0.0, 0.25, 0.25 + 2**-40, 1.0, np.nan])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_merging_equals_selection_from_all_candidates(data: st.DataObject) -> None:
    rows, first, second, k = (data.draw(st.integers(1, 5)) for _ in range(4))
    cells = st.lists(SIMILARITIES, min_size=rows * (first + second), max_size=rows * (first + second))
    similarities = np.array(data.draw(cells)).reshape(rows, -1)
    every_id = np.array([np.iinfo(np.int64).min, -7, -1, 0, 3, 5, 8, 1 << 40, (1 << 40) + 1, np.iinfo(np.int64).max])
    ids = np.stack([data.draw(st.permutations(every_id.tolist()))[: first + second] for _ in range(rows)])
    expected = select_nearest(ids, similarities, k)
    before = DeviceNeighbours.upload(select_nearest(ids[:, :first], similarities[:, :first], k), torch.device("cpu"))
    merged = before.merge(torch.from_numpy(ids[:, first:].copy()), torch.from_numpy(similarities[:, first:].copy())).download()
    np.testing.assert_array_equal(merged.ids, expected.ids)
    assert merged.similarities.tobytes() == expected.similarities.tobytes()

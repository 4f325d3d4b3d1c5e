"""Products in levels above thresholds, compared with plain numpy."""

import numpy as np
import pytest
import torch

from miner.search.levels import WORD, cells_above, words_above


@pytest.mark.parametrize("shape", [(64, 64), (64, 320), (2048, 192)])
@pytest.mark.parametrize("lowest_threshold", [0, 200, 253, 255])  # from most products above to none
def test_words_and_cells_are_those_above_the_thresholds(shape, lowest_threshold):
    generator = np.random.default_rng(sum(shape) + lowest_threshold)
    products = generator.integers(0, 256, shape, dtype=np.uint8)
    of_rows, of_columns = (generator.integers(lowest_threshold, 256, size).astype(np.uint8) for size in shape)
    above_rows, above_columns = products > of_rows[:, None], products > of_columns

    thresholds = [torch.from_numpy(of_rows), torch.from_numpy(of_columns)]
    words = words_above(torch.from_numpy(products), thresholds)
    rows, columns = cells_above(torch.from_numpy(products), words, thresholds)

    expected = (above_rows | above_columns).reshape(-1, WORD).any(1)
    np.testing.assert_array_equal(words.numpy(), np.flatnonzero(expected))
    for cells, values, is_above in ((rows, products, above_rows), (columns, products.T, above_columns.T)):
        row, offset = is_above.nonzero()
        np.testing.assert_array_equal(torch.stack(cells).numpy(), np.stack([row, offset, values[row, offset]]))


def test_rows_alone():
    products = torch.zeros(64, 128, dtype=torch.uint8)
    products[3, 9], products[3, 10], products[63, 127] = 7, 8, 200
    thresholds = torch.full((64,), 7, dtype=torch.uint8)

    words = words_above(products, [thresholds])
    (cells,) = cells_above(products, words, [thresholds])

    assert words.tolist() == [(3 * 128 + 10) // WORD, 64 * 128 // WORD - 1]
    assert [part.tolist() for part in cells] == [[3, 63], [10, 127], [8, 200]]

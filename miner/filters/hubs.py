"""Sentences that are neighbours of far too many: short phrases and templates that lie close to everything."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


def crowds(source_ids: Ids, target_ids: Ids) -> npt.NDArray[np.int64]:
    """n different pairs -> (n,) in how many of them the source of each stands, or the target, whichever is more."""
    return np.maximum(_times(source_ids), _times(target_ids))


def _times(ids: Ids) -> npt.NDArray[np.int64]:
    places, counts = np.unique(ids, return_inverse=True, return_counts=True)[1:]
    times: npt.NDArray[np.int64] = counts[places]
    return times

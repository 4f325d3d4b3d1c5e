"""What a round selected that the one before did not, and the other way round."""

from typing import Any

import numpy as np

from miner import storage
from miner.loop.figures import jaccard
from miner.mining import writers
from pipelines.loop.select import PAIRS, ids_of

EXAMPLES = 5  # of the pairs gained, and of those lost


def changes(folder: str, before: str | None) -> dict[str, Any]:
    """The Jaccard index of what two rounds learnt from, and some pairs gained and lost; the index is None for the first round."""
    now, then = _pairs(folder), _pairs(before) if before else {}
    gained, lost = sorted(now.keys() - then.keys()), sorted(then.keys() - now.keys())
    return {
        "jaccard": jaccard(now.keys(), then.keys()) if before else None,
        "gained": {"pairs": len(gained), "examples": [now[pair] for pair in _some(gained)]},
        "lost": {"pairs": len(lost), "examples": [then[pair] for pair in _some(lost)]},
    }


def _some(pairs: list[Any]) -> list[Any]:
    """A few, evenly spread: ids are hashes, so their order is as good as random."""
    return [pairs[at] for at in np.unique(np.linspace(0, len(pairs) - 1, EXAMPLES).astype(int))] if pairs else []


def _pairs(folder: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Languages and ids -> the pair."""
    found = {}
    for name in storage.names_in(storage.join(folder, PAIRS)):
        bitext = storage.read_table(storage.join(folder, PAIRS, name, writers.PARQUET))
        texts = bitext.select(["margin", "source_text", "target_text"]).to_pylist()
        found |= {(name, *ids): {"languages": name, **text} for ids, text in zip(ids_of(bitext), texts, strict=True)}
    return found

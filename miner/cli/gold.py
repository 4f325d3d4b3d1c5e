"""The files of the option `--gold` of several commands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import KnownPairs


def read(output: str, uris: Sequence[str]) -> "KnownPairs | None":
    """Read gold pairs, which are lines of the corpora that `miner mine` searched into `output`, or marks. None without files."""
    from pipelines.mining import candidates, gold_pairs

    gold_file = gold_pairs.read(uris)
    if not isinstance(gold_file, gold_pairs.GoldFile):
        return gold_file
    search_result = candidates.open_search_result(output)
    return gold_pairs.resolve_lines(gold_file, search_result.source, search_result.target)

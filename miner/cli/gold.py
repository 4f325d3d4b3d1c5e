"""The file of the option `--gold` of several commands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import GoldPairs, ReviewMarks


def read(output: str, uri: str) -> "GoldPairs | ReviewMarks":
    """Read gold pairs, which are lines of the corpora that `miner mine` searched into `output`, or marks, which have a header."""
    from miner.evaluation.bitext_precision import GoldPairs, is_marks, read_marks

    if is_marks(uri):
        return read_marks(uri)
    from pipelines.mining import candidates, gold_pairs

    gold_file = gold_pairs.read(uri)
    search_result = candidates.open_search_result(output)
    return GoldPairs(*gold_pairs.resolve(gold_file, search_result.source, search_result.target))

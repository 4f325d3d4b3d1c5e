"""What is known of mined pairs, by the option `--gold` of several commands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from miner.evaluation.bitext_precision import GoldPairs, ReviewMarks


def read(candidates: str, uri: str) -> "GoldPairs | ReviewMarks":
    """Gold in lines, which the folder of the candidates knows by their ids; or marks, whose header says so."""
    from miner.evaluation.bitext_precision import GoldPairs, is_marks, read_marks

    if is_marks(uri):
        return read_marks(uri)
    from pipelines.mining import candidates as stage
    from pipelines.mining import gold_pairs as golds

    lines = golds.read(uri)
    found = stage.searched(candidates)
    return GoldPairs(*golds.resolve(lines, found.source, found.target))

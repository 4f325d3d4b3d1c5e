"""Write report.html for a directory, from everything in it that has charts."""

from miner.evaluation.bitext_precision import KnownPairs
from miner.io import storage
from miner.report import charts, pairs, rounds, runs, scores, training
from miner.report.marking import SAMPLE_PAIRS
from miner.report.page import REPORT, claim_page, page


def write(folder: str, known_pairs: KnownPairs | None = None, identify: bool = False, sample_pairs: int = SAMPLE_PAIRS) -> str | None:
    """Write FOLDER/report.html and return its path; None if there is nothing to show. The same folder gives the same bytes.

    `known_pairs` are gold or marks of mined pairs; `identify` also identifies the languages of a sample of these. `sample_pairs` are to
    be marked. Raises ConfigError if there is another file of that name.
    """
    uri = storage.join(folder, REPORT)
    claim_page(uri)
    with charts.style():
        parts = [
            pairs.read_part(folder, known_pairs, identify, sample_pairs),
            runs.read_part(folder, write),
            *(read_part(folder) for read_part in (rounds.read_part, training.read_part, scores.read_part)),
        ]
    shown = [part for part in parts if part is not None]
    if not shown:
        return None
    with storage.atomic(uri) as handle:
        handle.write(page(shown))
    return uri

"""Which sentences of a table the filters keep, and why the others go."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from miner.filters.sentences import judge_sentences
from miner.tables import DROPPED_SENTENCES


def sift(table: pa.Table, lang: str, bounds: Mapping[str, float]) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """Sentences of one language, by its canonical code -> those that are kept; the others, of the schema DROPPED_SENTENCES; and
    how many lines the others stood on, by reason."""
    if not bounds:  # as most are: the texts need not become strings
        return table, DROPPED_SENTENCES.empty_table(), {}
    verdicts = judge_sentences(table["text"].to_pylist(), lang, bounds)
    reasons, scores = verdicts.why()
    dropped = table.filter(pa.array(~verdicts.kept)).append_column(DROPPED_SENTENCES.field("reason"), pa.array(reasons, pa.string()))
    dropped = dropped.append_column(DROPPED_SENTENCES.field("score"), pa.array(scores, pa.float64()))
    counts = verdicts.counts(table["count"].to_numpy().astype(np.int64))
    return table.filter(pa.array(verdicts.kept)), dropped.cast(DROPPED_SENTENCES), counts

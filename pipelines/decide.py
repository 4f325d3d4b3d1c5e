"""What happens after candidates: which of them are pairs, with their texts, and what a manifest says of it.

One process does it: the candidates above the threshold are held in memory as numbers, 34 bytes each, and texts by the part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from miner import storage
from miner.config import DecideSettings
from miner.corpus import Sentences
from miner.mining import gold as evaluation
from miner.mining import matching, writers
from miner.mining.candidates import Scored
from miner.mining.gold import Pairs, Scores
from miner.mining.margin import THRESHOLDS
from miner.mining.thresholds import Choice
from miner.storage import Manifest, Shard
from pipelines import candidates
from pipelines.candidates import Searched
from pipelines.judge import DROPPED, Judge, judging

STAGE = "mine"
EXAMPLES = 10  # pairs in the summary

Wanted = tuple[Pairs, int]  # gold pairs, and how many more there are that cannot be found


@dataclass(frozen=True)
class Texts:
    """The sentences of some pairs."""

    sources: Sentences
    targets: Sentences

    def parts(self, pairs: Scored) -> Iterator[pa.Table]:
        """The pairs as tables of the schema BITEXT, in parts of at most `writers.ROWS`; one that is empty where there are none."""
        for start in range(0, max(1, len(pairs)), writers.ROWS):
            part = pairs.take(np.arange(start, min(start + writers.ROWS, len(pairs))))
            yield writers.bitext(part, self.sources.of(part.source_ids), self.targets.of(part.target_ids))


def texts_of(found: Searched, pairs: Scored) -> Texts:
    return Texts(found.source.find(pairs.source_ids), found.target.find(pairs.target_ids))


def pairs_above(found: Searched, settings: DecideSettings, threshold: float | None, judge: Judge | None) -> Scored:
    """The pairs above a threshold, or all where it is None, best first, by margin, retrieval and the judge of their texts.

    They are the first of those above any lower threshold.
    """
    ranked = matching.rank(candidates.read(found.folder, settings.margin, -np.inf if threshold is None else threshold))
    if judge is not None:
        ranked = sift(found, ranked, settings.retrieval, judge)
    return matching.match(ranked, settings.retrieval)


def _threshold(settings: DecideSettings, choice: Choice | None) -> float | None:
    if choice is not None:
        return choice.threshold
    if settings.threshold is not None:
        return None if settings.threshold == -np.inf else settings.threshold  # JSON has no infinity
    return None if settings.retrieval == "all" else THRESHOLDS[settings.margin]


def sift(found: Searched, ranked: Scored, retrieval: str, judge: Judge) -> Scored:
    """Candidates, best first -> those that stay.

    Only those that contend are judged; the ones that move up where others were dropped, in turn. What is matched is therefore the
    same as if all had been judged, without reading the texts of the many that no one would miss.
    """
    passed = np.zeros(len(ranked), dtype=bool)
    while (new := matching.contending(ranked, retrieval) & ~passed).any():
        rows = np.flatnonzero(new)
        judged = ranked.take(rows)
        reasons = pa.chunked_array([judge(part) for part in texts_of(found, judged).parts(judged)], pa.string())
        stays = reasons.is_null().to_numpy()
        passed[rows[stays]] = True
        keep = np.ones(len(ranked), dtype=bool)
        keep[rows[~stays]] = False
        ranked, passed = ranked.take(keep), passed[keep]
    return ranked


@dataclass(frozen=True)
class Written:
    """What came of a decision."""

    pairs: int
    threshold: float | None
    choice: Choice | None  # of the threshold, with `auto`
    dropped: Mapping[str, int]  # reason -> candidates
    scores: Scores | None  # with gold
    examples: list[tuple[float, str, str]]  # margin, source, target: from the best pair to the last


def write(found: Searched, settings: DecideSettings, output: str, wanted: Wanted | None, choice: Choice | None = None) -> Written:
    """Decide, and write the pairs and, last, the manifest. It tells no times and no places, so that a rerun gives the same bytes.

    `wanted` is gold, to compare with, and `choice` the threshold, where it was chosen.
    """
    threshold = _threshold(settings, choice)
    with judging(found, settings, output) as judge:
        pairs = pairs_above(found, settings, threshold, judge)
        storage.remove(storage.join(output, storage.MANIFEST))  # of what is written over from here on
    scores = evaluation.score_pairs(pairs, *wanted) if wanted else None
    texts = texts_of(found, pairs)
    writers.write_bitext(output, texts.parts(pairs))
    written = Written(len(pairs), threshold, choice, dict(judge.counts) if judge else {}, scores, _examples(texts, pairs))
    storage.write_json(storage.join(output, storage.MANIFEST), asdict(_manifest(found, settings, output, written)))
    return written


def _manifest(found: Searched, settings: DecideSettings, output: str, written: Written) -> Manifest:
    rows = {writers.TSV: written.pairs, writers.PARQUET: written.pairs}
    if settings.keep_dropped:
        rows[DROPPED] = sum(written.dropped.values())
    files = [Shard(name, count, storage.checksum(storage.join(output, name))) for name, count in rows.items()]
    decided = {
        "k": found.k,
        "margin": settings.margin,
        "retrieval": settings.retrieval,
        "threshold": written.threshold,
        "filters": settings.pair_filters.bounds(),
    }
    details = {
        **dict(zip(("sentences", "unique"), sizes(found), strict=True)),
        "pairs": written.pairs,
        "dropped": written.dropped,
        "languages": {"source": found.source.lang, "target": found.target.lang},
        "fingerprint": found.source.fingerprint,
        **({"choice": asdict(written.choice)} if written.choice else {}),
        **(asdict(written.scores) if written.scores else {}),
    }
    inputs = {"source": found.source.key, "target": found.target.key}
    return Manifest(STAGE, decided, inputs, files, details)


def sizes(found: Searched) -> tuple[dict[str, int], dict[str, int]]:
    """The lines kept and the unique sentences of each side."""
    corpora = {"source": found.source, "target": found.target}
    return {side: corpus.counts["kept"] for side, corpus in corpora.items()}, {side: corpus.rows for side, corpus in corpora.items()}


def _examples(texts: Texts, pairs: Scored) -> list[tuple[float, str, str]]:
    """Up to EXAMPLES pairs, evenly spread from the first to the last."""
    rows = np.unique(np.linspace(0, len(pairs) - 1, EXAMPLES).round().astype(int)) if len(pairs) else np.zeros(0, int)
    (table,) = texts.parts(pairs.take(rows))
    return [tuple(row.values()) for row in table.select(["margin", "source_text", "target_text"]).to_pylist()]

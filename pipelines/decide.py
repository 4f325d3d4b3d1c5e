"""What happens after candidates: which of them are pairs, with their texts, and what a manifest says of it.

One process does it: the candidates above the threshold are held in memory as numbers, 34 bytes each, and texts by the part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from miner import storage
from miner.config import DecideSettings
from miner.corpus import Sentences
from miner.mining import gold as evaluation
from miner.mining import matching, writers
from miner.mining.candidates import Scored
from miner.mining.gold import Scores
from miner.mining.margin import THRESHOLDS
from miner.storage import Manifest, Shard
from pipelines import candidates
from pipelines import gold as golds
from pipelines.candidates import Searched
from pipelines.gold import Gold
from pipelines.judge import DROPPED, Judge, judging

STAGE = "mine"
EXAMPLES = 10  # pairs in the summary


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


@dataclass(frozen=True)
class Decision:
    """The pairs, best first, and how they came to be."""

    pairs: Scored
    threshold: float | None  # None where there is no bound
    dropped: Mapping[str, int]  # reason -> pairs, for every filter that is on


def decide(found: Searched, settings: DecideSettings, judge: Judge | None = None) -> Decision:
    """The candidates that are pairs, by margin, retrieval, threshold and the judge of their texts."""
    threshold = _threshold(settings)
    ranked = matching.rank(candidates.read(found.folder, settings.margin, -np.inf if threshold is None else threshold))
    if judge is None:
        return Decision(matching.match(ranked, settings.retrieval), threshold, {})
    ranked = sift(found, ranked, settings.retrieval, judge)
    return Decision(matching.match(ranked, settings.retrieval), threshold, dict(judge.counts))


def _threshold(settings: DecideSettings) -> float | None:
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
    dropped: Mapping[str, int]  # reason -> candidates
    scores: Scores | None  # with gold
    examples: list[tuple[float, str, str]]  # margin, source, target: from the best pair to the last


def write(found: Searched, settings: DecideSettings, output: str, gold: Gold | None) -> Written:
    """Decide, and write the pairs and, last, the manifest. It tells no times and no places, so that a rerun gives the same bytes."""
    wanted = golds.resolve(gold, found.source, found.target) if gold else None
    with judging(found, settings, output) as judge:
        decision = decide(found, settings, judge)
        storage.remove(storage.join(output, storage.MANIFEST))  # of what is written over from here on
    pairs = decision.pairs
    scores = evaluation.score_pairs(pairs, *wanted) if wanted else None
    texts = texts_of(found, pairs)
    writers.write_bitext(output, texts.parts(pairs))
    rows = {writers.TSV: len(pairs), writers.PARQUET: len(pairs)}
    if settings.keep_dropped:
        rows[DROPPED] = sum(decision.dropped.values())
    files = [Shard(name, count, storage.checksum(storage.join(output, name))) for name, count in rows.items()]
    details = {
        **dict(zip(("sentences", "unique"), sizes(found), strict=True)),
        "pairs": len(pairs),
        "dropped": decision.dropped,
        "languages": {"source": found.source.lang, "target": found.target.lang},
        "fingerprint": found.source.fingerprint,
        **(asdict(scores) if scores else {}),
    }
    inputs = {"source": found.source.key, "target": found.target.key}
    manifest = Manifest(STAGE, _decided(found, settings, decision.threshold), inputs, files, details)
    storage.write_json(storage.join(output, storage.MANIFEST), asdict(manifest))
    return Written(len(pairs), decision.threshold, decision.dropped, scores, _examples(texts, pairs))


def _decided(found: Searched, settings: DecideSettings, threshold: float | None) -> dict[str, Any]:
    filters = settings.pair_filters.bounds()
    return {"k": found.k, "margin": settings.margin, "retrieval": settings.retrieval, "threshold": threshold, "filters": filters}


def sizes(found: Searched) -> tuple[dict[str, int], dict[str, int]]:
    """The lines kept and the unique sentences of each side."""
    corpora = {"source": found.source, "target": found.target}
    return {side: corpus.counts["kept"] for side, corpus in corpora.items()}, {side: corpus.rows for side, corpus in corpora.items()}


def _examples(texts: Texts, pairs: Scored) -> list[tuple[float, str, str]]:
    """Up to EXAMPLES pairs, evenly spread from the first to the last."""
    rows = np.unique(np.linspace(0, len(pairs) - 1, EXAMPLES).round().astype(int)) if len(pairs) else np.zeros(0, int)
    (table,) = texts.parts(pairs.take(rows))
    return [tuple(row.values()) for row in table.select(["margin", "source_text", "target_text"]).to_pylist()]

"""Which neighbours of a sentence should be rescored: accuracy of retrieval, and F1 of mining, by how they are chosen.

    OMP_NUM_THREADS=1 python benchmarks/rescored_candidates.py --data DATA [--encoder builtin]

Of its n nearest neighbours, the m with the largest ratio margin are rescored. Retrieval is of WMT news, up to 2,000 lines; mining
of planted news (`news_data.planted_news`), F1 at the best threshold. DATA is the folder that `configs/builtin_data.py` reads.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from news_data import PlantedNews, news, parse_arguments, planted_news

from miner.encoders.base import TokenEncoder
from miner.evaluation.inputs import encode
from miner.mining.candidates import Candidates, LateScores, ScoredPairs, join_neighbours, late_means, look_up, score
from miner.mining.in_memory import search_vectors
from miner.mining.late_interaction import late_similarities
from miner.mining.matching import best_of_sources, best_of_targets, match, rank
from miner.search.neighbours import Neighbours

K, MAX_NEIGHBOURS = 4, 16
CHOICES = ((8, 0), (8, 4), (8, 6), (8, 8), (16, 4), (16, 8), (16, 16))  # n, m
RETRIEVED = ("cs", "de", "et", "fi", "hu", "ja", "km", "uk")
MINED = ("cs", "de", "et", "fi", "ja", "ta")

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Cells = dict[tuple[int, int], list[list[float]]]  # choice -> figure and pairs per sentence of each language


def mark_best(ids: npt.NDArray[np.int64], margins: Floats, is_neighbour: Bools, count: int) -> Bools:
    """Mark (n,) the `count` neighbours of each sentence with the largest margin."""
    neighbours = np.flatnonzero(is_neighbour)
    order = neighbours[np.lexsort((-margins[neighbours], ids[neighbours]))]
    starts = np.searchsorted(ids[order], ids[order])
    marked = np.zeros(len(ids), dtype=bool)
    marked[order[np.arange(len(order)) - starts < count]] = True
    return marked


class LateCandidates:
    """The candidates of two sides, all of which are rescored once."""

    def __init__(self, encoder: TokenEncoder, sources: list[str], targets: list[str]) -> None:
        vectors = encode(encoder, sources + targets)
        self.rows = np.arange(len(sources)), np.arange(len(targets))
        self.neighbours = search_vectors(vectors[: len(sources)], vectors[len(sources) :], MAX_NEIGHBOURS)
        self.all = self.join(MAX_NEIGHBOURS)
        tokens = encoder.token_vectors(sources), encoder.token_vectors(targets)
        self.late = late_similarities(*tokens, self.all.source_ids, self.all.target_ids)

    def join(self, num_neighbours: int) -> Candidates:
        nearest: list[Neighbours] = [side.nearest(num_neighbours) for side in self.neighbours]
        return join_neighbours(*self.rows, nearest[0], nearest[1], K)

    def rescored(self, num_neighbours: int, count: int) -> Candidates:
        """Return the candidates of which `count` on each side are rescored; without late interaction if none are."""
        candidates = self.join(num_neighbours)
        if not count:
            return candidates
        margins = np.nan_to_num(candidates.similarities / (candidates.source_means + candidates.target_means), nan=-np.inf)
        forward = mark_best(candidates.source_ids, margins, candidates.forward, count)
        backward = mark_best(candidates.target_ids, margins, candidates.backward, count)
        chosen = replace(candidates, forward=forward, backward=backward).take(forward | backward)
        pairs, all_pairs = (chosen.source_ids, chosen.target_ids), (self.all.source_ids, self.all.target_ids)
        late = look_up(pairs, all_pairs, self.late)
        means = late_means(pairs[0], late, chosen.forward, K), late_means(pairs[1], late, chosen.backward, K)
        return replace(chosen, late=LateScores(late, *means))


def retrieval_accuracy(pairs: ScoredPairs, num_lines: int) -> float:
    ranked = rank(pairs)
    best = ranked.take(best_of_sources(ranked)), ranked.take(best_of_targets(ranked))
    return 50 * sum(int((side.source_ids == side.target_ids).sum()) for side in best) / num_lines


def best_f1(pairs: ScoredPairs, planted: PlantedNews) -> float:
    mined = match(rank(pairs), "max")
    is_true = [pair in planted.pairs for pair in zip(mined.source_ids.tolist(), mined.target_ids.tolist(), strict=True)]
    return float(100 * (2 * np.cumsum(is_true) / (np.arange(1, len(is_true) + 1) + len(planted.pairs))).max())


def measure(candidates: LateCandidates, figure: Callable[[ScoredPairs], float], cells: Cells) -> None:
    """Add to `cells` the figure of each choice and the pairs that it rescores per sentence."""
    num_sentences = sum(map(len, candidates.rows)) / 2
    for choice in CHOICES:
        chosen = candidates.rescored(*choice)
        cells[choice].append([figure(score(chosen, "ratio")), len(chosen) / num_sentences if choice[1] else 0.0])


def main() -> None:
    data, encoder = parse_arguments(__doc__)
    retrieval: Cells = defaultdict(list)
    mining: Cells = defaultdict(list)
    texts = news(data)
    for lang in RETRIEVED:
        num_lines = len(texts[lang][0])
        measure(LateCandidates(encoder, *texts[lang]), partial(retrieval_accuracy, num_lines=num_lines), retrieval)
    for lang in MINED:
        planted = planted_news(data, lang)
        candidates = LateCandidates(encoder, planted.sources, planted.targets)
        measure(candidates, partial(best_f1, planted=planted), mining)
    print("neighbours  rescored  accuracy  pairs per sentence     F1  pairs per sentence")
    for choice in CHOICES:
        (accuracy, retrieved), (f1, mined) = np.mean(retrieval[choice], axis=0), np.mean(mining[choice], axis=0)
        print(f"{choice[0]:10}  {choice[1]:8}  {accuracy:8.2f}  {retrieved:18.1f}  {f1:5.2f}  {mined:18.1f}")


if __name__ == "__main__":
    main()

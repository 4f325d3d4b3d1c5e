"""One-to-one matching: the greedy walk in memory, and rounds of mutual best pairs, on random candidates and on chains.

python benchmarks/matching.py [--walk 4194304] [--rounds 2000]

A chain is the worst case of rounds: each candidate shares its source with the previous and its target with the next one, and has a smaller
margin than the previous one, so that a round takes one pair.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from miner.mining import matching
from miner.mining.candidates import ScoredPairs

Result = tuple[int, int]  # pairs, rounds


def random_candidates(count: int) -> ScoredPairs:
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, count // 2, size=(count, 2)), axis=0)
    return candidates(pairs[:, 0], pairs[:, 1], random.random(len(pairs)))


def chain(count: int) -> ScoredPairs:
    rows = np.arange(count)
    return candidates(rows // 2, rows // 2 + rows % 2, -rows.astype(float))


def candidates(sources: np.ndarray, targets: np.ndarray, margins: np.ndarray) -> ScoredPairs:
    """Return candidates, best first, each of which may become a pair. Ids are hashes, as those of sentences are."""
    ids = np.random.default_rng(1).permutation(np.random.default_rng(2).integers(-(2**63), 2**63 - 1, size=len(margins) + 2))
    both = np.ones(len(margins), dtype=bool)
    return matching.rank(ScoredPairs(ids[sources], ids[targets], margins, margins, both, both))


def walk(ranked: ScoredPairs) -> Result:
    return len(matching.match_one_to_one(ranked)), 0


def run_rounds(ranked: ScoredPairs) -> Result:
    target_best, num_pairs, num_rounds = matching.mark_first(ranked.target_ids), 0, 0
    while len(ranked):
        matched, others = matching.take_mutual_best(ranked, target_best)
        num_pairs += int(matched.sum())
        rows = matched | others
        ranked, matched = ranked.take(rows), matched[rows]
        rows, target_best = matching.drop_matched_targets(ranked, matched)
        ranked, target_best = ranked.take(rows), target_best[rows]
        num_rounds += 1
    return num_pairs, num_rounds


def measure(name: str, algorithm: Callable[[ScoredPairs], Result], ranked: ScoredPairs) -> None:
    start = time.process_time()
    num_pairs, num_rounds = algorithm(ranked)
    seconds = time.process_time() - start
    print(f"| {name} | {len(ranked):,} | {num_pairs:,} | {num_rounds or '–'} | {seconds:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walk", type=int, default=1 << 22, help="candidates of the walk, and of rounds on random candidates")
    parser.add_argument("--rounds", type=int, default=2000, help="candidates of the chain for rounds; also run with twice as many")
    arguments = parser.parse_args()
    print("| algorithm, candidates | candidates | pairs | rounds | CPU seconds |\n|---|---|---|---|---|")
    for name, make in (("random", random_candidates), ("chain", chain)):
        measure(f"walk, {name}", walk, make(arguments.walk))
    measure("rounds, random", run_rounds, random_candidates(arguments.walk))
    for count in (arguments.rounds, 2 * arguments.rounds):
        measure("rounds, chain", run_rounds, chain(count))


if __name__ == "__main__":
    main()

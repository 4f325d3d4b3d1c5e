"""Sampling of training examples: seeded shuffling, smoothed language shares, and a state of a few numbers to resume from."""

import heapq

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

LIMIT_STREAM = 1 << 32  # separates the random numbers of `Sampler.limit` from those of languages


def smooth_shares(counts: npt.NDArray[np.integer], smoothing: float) -> npt.NDArray[np.float64]:
    """Return probabilities (n,) proportional to counts (n,) ** smoothing. 1 keeps the shares; 0 makes them equal, but for zero counts."""
    weights = np.where(counts > 0, counts.astype(np.float64), 1.0) ** smoothing * (counts > 0)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def apportion(count: int, weights: Weights) -> Ints:
    """Divide a count among n parts in proportion to weights (n,) -> counts (n,), by the method of Sainte-Lague.

    No part shrinks as the count grows, so the differences between counts are draws: over any range of draws, each part has its
    share to within about one draw. Where `count * weights / sum` are integers, they are the counts.
    """
    shares, num_parts = weights / weights.sum(), np.count_nonzero(weights)
    # Parts are rounded multiples of the weights. Their sum fixes the multiple to within half a draw per part.
    counts: Ints = np.maximum(0, np.floor((count - num_parts / 2) * shares - 0.5)).astype(np.int64)
    queue = [(-weights[part] / (2 * counts[part] + 1), part) for part in np.flatnonzero(weights).tolist()]
    heapq.heapify(queue)
    for _ in range(count - int(counts.sum())):
        part = queue[0][1]
        counts[part] += 1
        heapq.heapreplace(queue, (-weights[part] / (2 * counts[part] + 1), part))
    return counts


class Sampler:
    """Draw examples without end: each pass over a language is a new permutation of its examples.

    The permutations depend on the seed alone; `drawn`, the number of examples drawn per language, is the whole state.
    """

    def __init__(self, langs: Ints, smoothing: float, seed: int) -> None:
        """`langs` (n,) is the language of each example, or -1 for an example that is never drawn.

        With a smoothing of 1, as many draws as there are examples draw each of them once.
        """
        self.rows = [np.flatnonzero(langs == lang) for lang in range(int(langs.max()) + 1)]
        self.shares = smooth_shares(np.array([len(rows) for rows in self.rows]), smoothing)
        self.seed, self.smoothing = seed, smoothing
        self.drawn = [0] * len(self.rows)
        self._permutations: dict[int, tuple[int, Ints]] = {}  # language -> the latest epoch and its permutation

    def draw(self, size: int, random: np.random.Generator) -> Ints:
        """Draw `size` examples of all languages in proportion to their probabilities, shuffled."""
        start = sum(self.drawn)
        counts = apportion(start + size, self.shares) - apportion(start, self.shares)
        return random.permutation(np.concatenate([self.take(lang, int(count)) for lang, count in enumerate(counts) if count]))

    def limit(self, size: int) -> None:
        """Keep `size` examples, drawn at random from the seed. A larger size keeps the same examples and more."""
        order = np.random.default_rng([self.seed, LIMIT_STREAM]).permutation(sum(map(len, self.rows)))
        bounds = np.cumsum([0, *map(len, self.rows)])
        is_kept = np.zeros(len(order), dtype=bool)
        is_kept[order[:size]] = True
        self.rows = [rows[is_kept[start:stop]] for rows, start, stop in zip(self.rows, bounds, bounds[1:], strict=False)]
        if size:
            self.shares = smooth_shares(np.array([len(rows) for rows in self.rows]), self.smoothing)

    def draw_language(self, random: np.random.Generator) -> int:
        """Draw one language by its probability."""
        return int(random.choice(len(self.shares), p=self.shares))

    def take(self, lang: int, size: int) -> Ints:
        """Return the next `size` examples of a language."""
        parts = []
        while size:
            epoch, offset = divmod(self.drawn[lang], len(self.rows[lang]))
            part = self._permutation(lang, epoch)[offset : offset + size]
            self.drawn[lang] += len(part)
            size -= len(part)
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _permutation(self, lang: int, epoch: int) -> Ints:
        if self._permutations.get(lang, (-1,))[0] != epoch:
            self._permutations[lang] = epoch, np.random.default_rng([self.seed, lang, epoch]).permutation(self.rows[lang])
        return self._permutations[lang][1]

"""Sampling of training examples: seeded shuffling, smoothed language shares, and a state of a few numbers to resume from."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def smooth_shares(counts: npt.NDArray[np.integer], smoothing: float) -> npt.NDArray[np.float64]:
    """Return probabilities (n,) proportional to counts (n,) ** smoothing. 1 keeps the shares; 0 makes them equal, but for zero counts."""
    weights = np.where(counts > 0, counts.astype(np.float64), 1.0) ** smoothing * (counts > 0)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


class Sampler:
    """Draw examples without end: each pass over a language is a new permutation of its examples.

    The permutations depend on the seed alone; `drawn`, the number of examples drawn per language, is the whole state.
    """

    def __init__(self, langs: Ints, smoothing: float, seed: int) -> None:
        """`langs` (n,) is the language of each example, or -1 for an example that is never drawn."""
        self.rows = [np.flatnonzero(langs == lang) for lang in range(int(langs.max()) + 1)]
        self.shares = smooth_shares(np.array([len(rows) for rows in self.rows]), smoothing)
        self.seed = seed
        self.drawn = [0] * len(self.rows)
        self._permutations: dict[int, tuple[int, Ints]] = {}  # language -> the latest epoch and its permutation

    def draw(self, size: int, random: np.random.Generator) -> Ints:
        """Draw `size` examples of all languages by their probabilities, shuffled."""
        counts = random.multinomial(size, self.shares)
        return random.permutation(np.concatenate([self.take(lang, int(count)) for lang, count in enumerate(counts) if count]))

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

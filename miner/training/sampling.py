"""Which examples come next: shuffled by a seed, languages in the shares asked for, and resumable from a few numbers."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def smoothed(counts: npt.NDArray[np.integer], smoothing: float) -> npt.NDArray[np.float64]:
    """Counts (n,) -> probabilities (n,) proportional to count ** smoothing: 1 keeps the shares, 0 makes them equal."""
    weights = np.where(counts > 0, counts.astype(np.float64), 1.0) ** smoothing * (counts > 0)
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


class Sampler:
    """Draws examples without end; every example of a language is drawn before one of them returns.

    The order is a function of the seed, and `drawn` (how many examples of each language were drawn) is all the state there is.
    """

    def __init__(self, langs: Ints, smoothing: float, seed: int) -> None:
        """`langs` (n,) is the language of each example, or -1 where it is none to draw."""
        self.rows = [np.flatnonzero(langs == lang) for lang in range(int(langs.max()) + 1)]
        self.shares = smoothed(np.array([len(rows) for rows in self.rows]), smoothing)
        self.seed = seed
        self.drawn = [0] * len(self.rows)
        self._rounds: dict[int, tuple[int, Ints]] = {}  # language -> the last round of it and its order

    def draw(self, size: int, random: np.random.Generator) -> Ints:
        """`size` examples of any languages, drawn with their probabilities, mixed."""
        counts = random.multinomial(size, self.shares)
        return random.permutation(np.concatenate([self.take(lang, int(count)) for lang, count in enumerate(counts) if count]))

    def lang(self, random: np.random.Generator) -> int:
        """One language, drawn with its probability."""
        return int(random.choice(len(self.shares), p=self.shares))

    def take(self, lang: int, size: int) -> Ints:
        """The next `size` examples of a language."""
        parts = []
        while size:
            number, at = divmod(self.drawn[lang], len(self.rows[lang]))
            part = self._round(lang, number)[at : at + size]
            self.drawn[lang] += len(part)
            size -= len(part)
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _round(self, lang: int, number: int) -> Ints:
        if self._rounds.get(lang, (-1,))[0] != number:
            self._rounds[lang] = number, np.random.default_rng([self.seed, lang, number]).permutation(self.rows[lang])
        return self._rounds[lang][1]

"""BUCC as the score of a training run: F1 of the pairs mined from held-out sentences, at the best threshold."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.config.datasets import DatasetFiles
from miner.errors import ConfigError, DataError
from miner.mining.in_memory import mine_vectors
from miner.mining.precision_recall import curve
from miner.research.datasets.reading import read_dataset
from miner.research.datasets.registry import get_layout

NEIGHBOURS = 4  # on each side, for the ratio margin
Vectors = npt.NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class BuccDevSet:
    """The sentences of one language pair, each text once, and its gold pairs, as texts."""

    sources: Counter[str]  # text -> number of sentences with that text
    targets: Counter[str]
    gold: frozenset[tuple[str, str]]
    num_gold: int  # pairs of ids, of which several may have the same texts

    def f1(self, encode: Callable[[list[str], list[str]], tuple[Vectors, Vectors]], device: str = "cpu") -> float:
        """Mine by ratio margin with the vectors that `encode` returns for both sides, and return the best F1 of all thresholds.

        As in `miner eval bucc`, pairs of a text that several sentences share are left out.
        """
        sources, targets = list(self.sources), list(self.targets)
        pairs = mine_vectors(*encode(sources, targets), NEIGHBOURS, "ratio", device=device)
        mined = [(sources[row], targets[column]) for row, column in zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True)]
        is_kept = np.array([self.sources[source] == self.targets[target] == 1 for source, target in mined], dtype=bool)
        is_gold = np.array([pair in self.gold for pair in mined], dtype=bool)
        by_threshold = curve(pairs.margins[is_kept], is_gold[is_kept], self.num_gold)
        return float(by_threshold.f1.max(initial=0.0))


def read_bucc(files: object) -> list[BuccDevSet]:
    """Read the language pairs of the dataset `bucc`. Raise ConfigError for anything else, DataError for a pair without sentences."""
    if not isinstance(files, DatasetFiles) or files.dataset != "bucc":
        raise ConfigError(f"evaluation.files: the metric bucc reads {{dataset: bucc, path: ...}}, not {files}")
    gold: dict[tuple[str, ...], Counter[tuple[str, str]]] = {}
    for batch in read_dataset(get_layout("bucc"), files.path, files.languages, files.split):
        pairs = gold.setdefault(batch.group.languages, Counter())
        pairs.update(zip(batch.columns["source"], batch.columns["target"], strict=True))
    texts: dict[tuple[tuple[str, ...], str], Counter[str]] = {}
    for batch in read_dataset(get_layout("bucc-sentences"), files.path, files.languages, files.split):
        for text, lang in zip(batch.columns["text"], batch.columns["lang"], strict=True):
            texts.setdefault((batch.group.languages, lang), Counter())[text] += 1
    for languages in gold:
        if missing := [lang for lang in languages if (languages, lang) not in texts]:
            raise DataError(f"{files}: no sentences in {missing[0]!r}; name both languages of a pair, or none")
    return [
        BuccDevSet(texts[languages, languages[0]], texts[languages, languages[1]], frozenset(pairs), pairs.total())
        for languages, pairs in gold.items()
    ]

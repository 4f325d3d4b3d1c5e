"""Whether a text is in its language, as py3langid sees it: a maintained identifier of 140 languages with its model in its wheel."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from langcodes import Language

from miner.errors import ConfigError
from miner.filters import Floats

# Labels of the identifier that are as good as the first: what a code covers, or is written so alike that a sentence cannot tell.
LABELS = {
    "zh": ("zh", "wuu", "yue"),
    "ar": ("ar", "arz", "ary"),
    "no": ("no", "nn"),
    "nb": ("no", "nn"),
    "fil": ("tl",),
    "sh": ("sr", "hr", "bs"),
}


def likelihood(texts: Sequence[str], lang: str) -> Floats:
    """n texts -> (n,) how probable the language `lang` is by how probable the most probable one is: 1 where it is that one.

    A text that tells nothing, such as a name, gives all languages the same, so 1. NaN where the identifier does not know `lang`.
    ConfigError where the identifier is not installed.
    """
    rank, known = _identifier()
    labels = labels_of(lang) & known
    if not labels:
        return np.full(len(texts), np.nan)
    return np.fromiter((_relative(rank(text), labels) for text in texts), dtype=np.float64, count=len(texts))


def identify(texts: Sequence[str]) -> list[str]:
    """n texts -> the label of the most probable language of each. ConfigError where the identifier is not installed."""
    rank, _ = _identifier()
    return [rank(text)[0][0] for text in texts]


def labels_of(lang: str) -> set[str]:
    """The labels that stand for a language by its canonical code, such as `deu_Latn`; none for `und`."""
    if lang == "und":
        return set()
    code = Language.get(lang.partition("_")[0]).language or ""
    return set(LABELS.get(code, (code,)))


def _relative(ranked: list[tuple[str, float]], labels: set[str]) -> float:
    return max(probability for label, probability in ranked if label in labels) / ranked[0][1]


@lru_cache(maxsize=1)
def _identifier() -> tuple[Callable[[str], list[tuple[str, float]]], frozenset[str]]:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ConfigError("a filter of languages needs py3langid: pip install 'bitext-miner[langid]'") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier.rank, frozenset(identifier.labels)


def check() -> None:
    """ConfigError where the identifier is not installed."""
    _identifier()

"""Language identification with py3langid, a maintained identifier of 140 languages that ships its model in its wheel."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from langcodes import Language

from miner.errors import ConfigError
from miner.filters import Floats

# Labels of the identifier that count as the language: its members, and languages too similar to distinguish in one sentence.
LABELS = {
    "zh": ("zh", "wuu", "yue"),
    "ar": ("ar", "arz", "ary"),
    "no": ("no", "nn"),
    "nb": ("no", "nn"),
    "fil": ("tl",),
    "sh": ("sr", "hr", "bs"),
}

RankedLabels = list[tuple[str, float]]  # (label, probability), most probable first


def language_likelihood(texts: Sequence[str], lang: str) -> Floats:
    """Return (n,) the probability of `lang` divided by that of the most probable language, for n texts.

    A text without evidence, such as a name, gives all languages the same probability, hence 1. NaN if the identifier does not know
    `lang`. Raises ConfigError if the identifier is not installed.
    """
    rank, supported = load_identifier()
    labels = identifier_labels(lang) & supported
    if not labels:
        return np.full(len(texts), np.nan)
    return np.fromiter((_relative_probability(rank(text), labels) for text in texts), dtype=np.float64, count=len(texts))


def identify_languages(texts: Sequence[str]) -> list[str]:
    """Return the label of the most probable language of each text. Raises ConfigError if the identifier is not installed."""
    rank, _ = load_identifier()
    return [rank(text)[0][0] for text in texts]


def identifier_labels(lang: str) -> set[str]:
    """Return the identifier's labels for a canonical language code such as `deu_Latn`; the empty set for `und`."""
    if lang == "und":
        return set()
    code = Language.get(lang.partition("_")[0]).language or ""
    return set(LABELS.get(code, (code,)))


def _relative_probability(ranked: RankedLabels, labels: set[str]) -> float:
    return max(probability for label, probability in ranked if label in labels) / ranked[0][1]


@lru_cache(maxsize=1)
def load_identifier() -> tuple[Callable[[str], RankedLabels], frozenset[str]]:
    """Return the identifier, as a function that ranks all labels for a text, and its labels.

    Raises ConfigError if it is not installed; commands call this first to fail before any work.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ConfigError("language filters need py3langid: pip install 'bitext-miner[langid]'") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier.rank, frozenset(identifier.labels)

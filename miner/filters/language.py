"""Language identification with py3langid, a maintained identifier of 140 languages that ships its model in its wheel.

Instead, the file of a fastText classifier can be given, such as that of GlotLID, which knows more than 1,600 languages.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from langcodes import Language

from miner.arrays import Floats
from miner.config.filters import IDENTIFYING
from miner.errors import ConfigError, require
from miner.languages import UNDETERMINED, canonical

# Labels of the identifier that count as the language: its members, and languages too similar to distinguish in one sentence.
LABELS = {
    "zh": ("zh", "wuu", "yue"),
    "ar": ("ar", "arz", "ary"),
    "no": ("no", "nn"),
    "nb": ("no", "nn"),
    "fil": ("tl",),
    "sh": ("sr", "hr", "bs"),
}

logger = logging.getLogger(__name__)

RankedLabels = list[tuple[str, float]]  # (label, probability), most probable first


@dataclass(frozen=True)
class Identifier:
    """A language identifier: ranks its labels for a text, and knows which of them are a language."""

    rank: Callable[[str], RankedLabels]
    find_labels: Callable[[str], frozenset[str]]  # canonical code -> labels; none if the identifier does not know the language


def language_likelihood(texts: Sequence[str], lang: str, model: str | None = None) -> Floats:
    """Return (n,) the probability of `lang` divided by that of the most probable language, for n texts.

    A text without evidence, such as a name, gives all languages the same probability, hence 1. NaN if the identifier does not know
    `lang`. Raises ConfigError if the identifier, py3langid or the fastText `model`, cannot be loaded.
    """
    identifier = load_identifier(model)
    labels = identifier.find_labels(lang)
    if not labels:
        return np.full(len(texts), np.nan)
    return np.fromiter((_relative_probability(identifier.rank(text), labels) for text in texts), dtype=np.float64, count=len(texts))


def identify_languages(texts: Sequence[str]) -> list[str]:
    """Return the label of the most probable language of each text. Raises ConfigError if the identifier is not installed."""
    identifier = load_identifier()
    return [identifier.rank(text)[0][0] for text in texts]


def check_identifier(filters: Iterable[str], model: str | None) -> None:
    """Raise ConfigError if one of the filters identifies languages, and the identifier cannot be loaded: before any work."""
    if any(name in IDENTIFYING for name in filters):
        load_identifier(model)


def warn_if_unrated(filters: Collection[str], langs: Iterable[str], model: str | None) -> None:
    """Warn of filters that cannot rate texts of a canonical language, and so keep all of them."""
    for lang in langs:
        idle = [name for name in filters if name == "script" and "_" not in lang]
        idle += [name for name in filters if name in IDENTIFYING and not load_identifier(model).find_labels(lang)]
        if idle:
            remedy = "give the language of the text" if lang == UNDETERMINED else "they know no such language"
            logger.warning("--filter %s: cannot rate text in %s, and keeps all of it; %s", ", ".join(idle), lang, remedy)


def _relative_probability(ranked: RankedLabels, labels: Set[str]) -> float:
    return max((probability for label, probability in ranked if label in labels), default=0.0) / ranked[0][1]


@lru_cache(maxsize=4)
def load_identifier(model: str | None = None) -> Identifier:
    """Return py3langid, or the identifier in a file of a fastText model. Raises ConfigError if it cannot be loaded."""
    return _load_py3langid() if model is None else _load_fasttext(model)


def _load_py3langid() -> Identifier:
    langid = require("py3langid.langid", " for language filters")
    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    supported = frozenset(identifier.labels)
    return Identifier(identifier.rank, lambda lang: _py3langid_labels(lang) & supported)


def _py3langid_labels(lang: str) -> frozenset[str]:
    if lang == UNDETERMINED:
        return frozenset()
    code = Language.get(lang.partition("_")[0]).language or ""
    return frozenset(LABELS.get(code, (code,)))


def _load_fasttext(path: str) -> Identifier:
    """Load a classifier whose labels are languages, such as `__label__deu_Latn` of GlotLID or `__label__de` of lid.176."""
    fasttext = require("fasttext", " for --lang-id-model")
    if not Path(path).is_file():
        raise ConfigError(f"--lang-id-model {path}: no such file; download the model and give its path")
    try:
        model = fasttext.load_model(path)
        labels = list(model.get_labels())
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ConfigError(f"--lang-id-model {path}: not a fastText model ({error}); give a .bin or .ftz file of a classifier") from error
    codes = {label: _code_of_label(label) for label in labels}
    if not any(codes.values()):
        raise ConfigError(f"--lang-id-model {path}: none of its labels is a language, such as {labels[0]!r}; give a language identifier")

    def rank(text: str) -> RankedLabels:
        names, probabilities = model.predict(text.replace("\n", " "), k=-1)
        return list(zip(names, map(float, probabilities), strict=True)) or [("", 1.0)]

    return Identifier(rank, lambda lang: _matching_labels(codes, lang))


def _code_of_label(label: str) -> str | None:
    """Return the canonical code of a label, None if it is no language."""
    try:
        return canonical(label.removeprefix("__label__"))
    except ConfigError:
        return None


def _matching_labels(codes: Mapping[str, str | None], lang: str) -> frozenset[str]:
    """Return the labels of a language and its script; if there are none, those of the language in any script (zho_Hani for zho_Hans)."""
    if lang == UNDETERMINED:
        return frozenset()
    exact = frozenset(label for label, code in codes.items() if code == lang)
    name = lang.partition("_")[0]
    return exact or frozenset(label for label, code in codes.items() if code is not None and code.partition("_")[0] == name)

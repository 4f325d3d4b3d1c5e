"""Language identification with py3langid, a maintained identifier of 140 languages that ships its model in its wheel.

Instead, the file of a fastText classifier can be given, such as that of GlotLID, which knows more than 1,600 languages.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import regex
from langcodes import Language

from miner.arrays import Floats
from miner.config.filters import IDENTIFYING
from miner.errors import ConfigError, require
from miner.filters.characters import script_letters
from miner.languages import UNDETERMINED, canonical, usual_code

# Labels of the identifier that count as the language: its members, and languages too similar to distinguish in one sentence.
LABELS = {
    "zh": ("zh", "wuu", "yue"),
    "ar": ("ar", "arz", "ary"),
    "no": ("no", "nn"),
    "nb": ("no", "nn"),
    "fil": ("tl",),
    "sh": ("sr", "hr", "bs"),
}

SCRIPT_ROWS, MIN_LETTERS, MIN_SCRIPT_SHARE = 1000, 20, 0.3  # lines and letters by which a script is judged, and the least share of it
MIN_IDENTIFIED_ROWS, IDENTIFIED_ROWS = 1000, 100  # lines of a text whose language is identified, and how many of them are
OTHER_LIKELIHOOD, MAX_OTHER_SHARE = 0.01, 0.8  # of a line in another language, and of such lines

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


def warn_of_other_language(name: str, texts: Sequence[str], lang: str) -> None:
    """Warn if the texts of the input `name` are plainly not in a canonical language, or in another script than its code says."""
    usual = usual_code(lang)
    if usual is not None:
        logger.warning("%s: %s is not written in the script of the code; is it %s?", name, lang, usual)
    letters = Counter(character for text in texts[:SCRIPT_ROWS] for character in text if character.isalpha())
    script = lang.partition("_")[2]
    pattern = script_letters(script) if script else None
    if pattern is not None and letters.total() >= MIN_LETTERS:
        is_of_script = regex.compile(pattern)
        share = sum(count for character, count in letters.items() if is_of_script.match(character)) / letters.total()
        if share < MIN_SCRIPT_SHARE:
            most = unicodedata.name(letters.most_common(1)[0][0], "unknown").split()[0].capitalize()
            logger.warning(
                "%s: only %.0f%% of its letters are %s, most look %s; check the language code %s", name, 100 * share, script, most, lang
            )
            return
    if len(texts) >= MIN_IDENTIFIED_ROWS and find_spec("py3langid") is not None and load_identifier().find_labels(lang):
        sample = texts[:: len(texts) // IDENTIFIED_ROWS][:IDENTIFIED_ROWS]
        others = np.flatnonzero(language_likelihood(sample, lang) < OTHER_LIKELIHOOD)
        if len(others) > MAX_OTHER_SHARE * len(sample):
            label = Counter(identify_languages([sample[row] for row in others.tolist()])).most_common(1)[0][0]
            message = "%s: %d of %d lines do not look like %s, most of them like %s; check the language code"
            logger.warning(message, name, len(others), len(sample), lang, label)


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

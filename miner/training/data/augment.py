"""Augmentation of positives: code switching and partial translation (Qin et al. 2020; Wang et al. 2022).

Code switching translates words with bilingual lexicons; partial translation takes a span from a parallel sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pydantic
import regex

from miner.config.base import Strings
from miner.errors import DataError
from miner.research.datasets.columns import expand_globs
from miner.text import streams
from miner.text.normalise import clean
from miner.text.records import Fault, decode_lines, refuse_utf16
from miner.training.settings import TrainSettings

Lexicon = Mapping[str, Sequence[str]]  # lower-case word -> its distinct translations, in file order

# Letters with their marks. Apostrophes and hyphens between letters do not end a word: half of "don't" has another meaning.
# Letters next to a digit or underscore are skipped as part of a name.
WORD = regex.compile(r"(?<!\w)\p{L}[\p{L}\p{M}]*(?:['’-]\p{L}[\p{L}\p{M}]*)*(?!\w)")

# Words with their trailing space; in scripts without spaces, characters with their marks.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
UNIT = regex.compile(rf"(?:[{UNSPACED}]\p{{M}}*|[^\s{UNSPACED}]+)\s*")


class CodeSwitchSettings(TrainSettings):
    """Code switching: replace words of the positives by translations from lexicons."""

    lexicons: Strings = pydantic.Field(min_length=1, description="Files of `word translation` lines, one language pair per file.")
    ratio: float = pydantic.Field(0.5, ge=0, le=1, description="Probability of replacing a word that is in a lexicon.")


def read_lexicon(uri: str) -> Lexicon:
    """Read a lexicon with lines `word translation`, as in MUSE, or `word<TAB>translation`; a word may have several lines.

    With a tab, both sides may have several words. Empty lines are skipped. The file may be compressed (.gz, .zst, .xz, .bz2). Raises
    DataError with file and line if it cannot be read, a line does not have two columns, or the file is empty.
    """
    lexicon: dict[str, dict[str, None]] = {}
    for number, line in _lines(uri):
        cells = line.split("\t") if "\t" in line else line.split()
        word, *translations = (clean(cell) for cell in cells)
        if len(translations) != 1 or not word or not translations[0]:
            problem = f"{len(cells)} columns" if len(cells) != 2 else "an empty column"
            raise DataError(f"{uri}:{number}: {problem}, expected a word and its translation; fix the line or delete it")
        lexicon.setdefault(word.lower(), {})[translations[0]] = None
    if not lexicon:
        raise DataError(f"{uri}: no words; give a lexicon of lines `word translation`")
    return {word: tuple(translations) for word, translations in lexicon.items()}


def _lines(uri: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers from 1."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        for first, lines in decode_lines(refuse_utf16(handle, uri), streams.MAX_LINE_BYTES):
            for number, line in enumerate(lines, first):
                if isinstance(line, Fault):
                    raise DataError(f"{uri}:{number}: {line.reason}")
                if line.strip():
                    yield number, line


@dataclass(frozen=True)
class CodeSwitch:
    """Replace each word that is in a lexicon by one of its translations with probability `ratio`.

    The lexicon, and so the language, is drawn once per sample, among those with a word of the sample, so languages are equally likely
    whatever their number of translations. The translation takes over an initial capital or all capitals.
    """

    lexicons: Sequence[Lexicon]
    ratio: float

    def __call__(self, columns: Sequence[Sequence[str]], random: np.random.Generator) -> list[list[str]]:
        """Code-switch n samples, given as their first texts and, for pairs, their second texts.

        The result depends only on the texts and the state of `random`.
        """
        samples = [self._switch_sample(sample, random) for sample in zip(*columns, strict=True)]
        return [list(column) for column in zip(*samples, strict=True)] if samples else [[] for _ in columns]

    def _switch_sample(self, texts: Sequence[str], random: np.random.Generator) -> list[str]:
        """Code-switch the texts of one sample into one language."""
        words = {word.lower() for text in texts for word in WORD.findall(text)}
        lexicons = [lexicon for lexicon in self.lexicons if any(word in lexicon for word in words)]
        if not lexicons:
            return list(texts)
        lexicon = lexicons[int(random.integers(len(lexicons)))]

        def switch(match: "regex.Match[str]") -> str:
            word: str = match[0]
            translations = lexicon.get(word.lower())
            if translations is None or random.random() >= self.ratio:
                return word
            return _copy_case(word, translations[int(random.integers(len(translations)))])

        return [WORD.sub(switch, text) for text in texts]


def _copy_case(word: str, translation: str) -> str:
    if len(word) > 1 and word.isupper():
        return translation.upper()
    return translation[0].upper() + translation[1:] if word[0].isupper() else translation


def partial_translation(texts: Sequence[str], translations: Sequence[str], random: np.random.Generator) -> list[str]:
    """Replace in each of n texts a random span by the span at the same relative position of its translation.

    Positions are counted in words, or in characters for scripts without spaces, since no word alignment is available. Spans are neither
    empty nor the whole text; a text of one word, or with a translation of one word, is returned unchanged.
    """
    return [_replace_span(text, translation, random) for text, translation in zip(texts, translations, strict=True)]


def _replace_span(text: str, translation: str, random: np.random.Generator) -> str:
    text_units, translation_units = UNIT.findall(text), UNIT.findall(translation)
    if min(len(text_units), len(translation_units)) < 2:
        return text
    start, end = _draw_span(len(text_units), random)
    scale = len(translation_units) / len(text_units)
    translation_start = min(round(start * scale), len(translation_units) - 1)
    span = translation_units[translation_start : max(round(end * scale), translation_start + 1)]
    parts = ["".join(units).strip() for units in (text_units[:start], span, text_units[end:])]
    return " ".join(part for part in parts if part)


def _draw_span(num_units: int, random: np.random.Generator) -> tuple[int, int]:
    """Draw start and end of a span uniformly from all spans that are neither empty nor the whole."""
    while True:
        start, end = sorted(random.choice(num_units + 1, size=2, replace=False).tolist())
        if end - start < num_units:
            return start, end


def load_code_switch(settings: CodeSwitchSettings | None) -> CodeSwitch | None:
    """Return the code switching of a source, if any. Raises DataError if a lexicon cannot be read."""
    return None if settings is None else CodeSwitch([read_lexicon(uri) for uri in expand_globs(settings.lexicons)], settings.ratio)

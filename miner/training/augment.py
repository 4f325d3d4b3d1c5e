"""Other views of a text: some of its words in other languages, or a span of it in one (Qin et al. 2020; Wang et al. 2022).

Code switching takes translations of words from bilingual lexicons, partial translation those of spans from parallel data. Whole
translations need no code: they are rows of the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import regex

from miner.errors import DataError
from miner.text.normalise import clean
from miner.text.streams import MAX_LINE, extensions, line_blocks, open_bytes

Lexicon = Mapping[str, Sequence[str]]  # word in lower case -> its translations, each once, in the order of the file

# Letters with their marks; an apostrophe or a hyphen between letters does not end a word, for half of "don't" means something else.
# What touches a digit or an underscore is part of a name.
WORD = regex.compile(r"(?<!\w)\p{L}[\p{L}\p{M}]*(?:['’-]\p{L}[\p{L}\p{M}]*)*(?!\w)")

# Words with the space behind them; where a script sets none between words, characters with their marks.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
UNIT = regex.compile(rf"(?:[{UNSPACED}]\p{{M}}*|[^\s{UNSPACED}]+)\s*")


def read_lexicon(uri: str) -> Lexicon:
    """The lexicon in a file of lines `word translation`, as MUSE has them, or `word<TAB>translation`; a word may have several lines.

    With a tab, both sides may be of several words. Lines that are empty are passed over. The file may be compressed (.gz, .zst, .xz,
    .bz2). Raises DataError, with file and line, for one that cannot be read, that is not of two columns, or that is empty.
    """
    lexicon: dict[str, dict[str, None]] = {}
    for number, line in _lines(uri):
        cells = line.split("\t") if "\t" in line else line.split()
        word, *translations = (clean(cell) for cell in cells)
        if len(translations) != 1 or not word or not translations[0]:
            what = f"{len(cells)} columns" if len(cells) != 2 else "an empty column"
            raise DataError(f"{uri}:{number}: {what} where a word and its translation are wanted; mend the line or drop it")
        lexicon.setdefault(word.lower(), {})[translations[0]] = None
    if not lexicon:
        raise DataError(f"{uri}: not one word; give a lexicon of lines `word translation`")
    return {word: tuple(translations) for word, translations in lexicon.items()}


def _lines(uri: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers from 1."""
    compression = extensions(uri)[1]
    number = 1
    with open_bytes(uri, compression) as handle:
        for block in line_blocks(handle, MAX_LINE):
            if block is None:
                raise DataError(f"{uri}:{number}: longer than {MAX_LINE} bytes; this is not a lexicon")
            for line in block.removesuffix(b"\n").split(b"\n"):
                try:
                    text = line.decode()
                except UnicodeDecodeError as error:
                    raise DataError(f"{uri}:{number}: not UTF-8; convert the file") from error
                if text.strip():
                    yield number, text
                number += 1


@dataclass(frozen=True)
class CodeSwitch:
    """Replaces every word that a lexicon has with probability `ratio` by one of its translations.

    The lexicon is drawn first, of those that have the word, so every language has the same chance however many translations it
    offers. A word that begins with a capital, or is all capitals, hands that on.
    """

    lexicons: Sequence[Lexicon]
    ratio: float

    def __call__(self, texts: Sequence[str], random: np.random.Generator) -> list[str]:
        """n texts -> n texts; the same for the same texts and state of `random`."""

        def switch(match: "regex.Match[str]") -> str:
            word: str = match[0]
            having = [lexicon for lexicon in self.lexicons if word.lower() in lexicon]
            if not having or random.random() >= self.ratio:
                return word
            translations = having[int(random.integers(len(having)))][word.lower()]
            return _cased_like(word, translations[int(random.integers(len(translations)))])

        return [WORD.sub(switch, text) for text in texts]


def _cased_like(word: str, translation: str) -> str:
    if len(word) > 1 and word.isupper():
        return translation.upper()
    return translation[0].upper() + translation[1:] if word[0].isupper() else translation


def partial_translation(texts: Sequence[str], translations: Sequence[str], random: np.random.Generator) -> list[str]:
    """n texts and their translations -> n texts, a span of each being replaced by what stands in the same place of its translation.

    A place is a share of the words (characters, in scripts that set no space between words), for nothing says which translate which.
    The span is drawn from all that are neither empty nor the whole; a text of one word, or with a translation of one, stays as it is.
    """
    return [_spliced(text, other, random) for text, other in zip(texts, translations, strict=True)]


def _spliced(text: str, translation: str, random: np.random.Generator) -> str:
    first, second = UNIT.findall(text), UNIT.findall(translation)
    if min(len(first), len(second)) < 2:
        return text
    start, end = _span(len(first), random)
    scale = len(second) / len(first)
    begin = min(round(start * scale), len(second) - 1)
    middle = second[begin : max(round(end * scale), begin + 1)]
    parts = ["".join(units).strip() for units in (first[:start], middle, first[end:])]
    return " ".join(part for part in parts if part)


def _span(count: int, random: np.random.Generator) -> tuple[int, int]:
    """Start and end of a run of `count` units: not empty, not all, each equally likely."""
    while True:
        start, end = sorted(random.choice(count + 1, size=2, replace=False).tolist())
        if end - start < count:
            return start, end

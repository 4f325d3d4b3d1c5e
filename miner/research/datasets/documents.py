"""Texts of documents: Wikipedia articles with marks, JSON documents, translation memories."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from miner.errors import DataError
from miner.research.datasets.file_groups import choose_codes
from miner.research.datasets.layout import SOLE, Dropped, FileGroup, Record, RowReader
from miner.text.records import read_records
from miner.text.tmx import tmx_units

SENTENCE_END = re.compile("(?<=。)")  # written without a space behind it
START = "_START_"
PARAGRAPH = "_START_PARAGRAPH_"


@dataclass(frozen=True)
class LinesOfDocuments:
    """The lines of every document: a row each."""

    documents: RowReader

    @property
    def expected(self) -> str:
        return self.documents.expected

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        for line, cells in self.documents(group):
            if isinstance(cells, Dropped):
                yield line, cells
            else:
                for text in cells["text"].split("\n"):
                    yield line, {**cells, "text": text}


@dataclass(frozen=True)
class WikiParagraphs:
    """Wiki-40B: the paragraphs of articles without titles, cut at line ends and behind 。"""

    articles: RowReader

    @property
    def expected(self) -> str:
        return self.articles.expected

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        for number, cells in self.articles(group):
            if isinstance(cells, Dropped):
                yield number, cells
                continue
            paragraphs = list(_paragraphs(cells["text"]))
            if not paragraphs:
                yield number, Dropped("no paragraph", f"an article without {PARAGRAPH}: {cells['text'][:40]!r}")
            for paragraph in paragraphs:
                for text in SENTENCE_END.split(paragraph):
                    if text.strip():
                        yield number, {"text": text}


@dataclass(frozen=True)
class TranslationMemory:
    """TMX: units (`tu`) of a segment in each language, by `xml:lang`.

    The languages are those of the file name or, where it has none, those requested, or else those of the first unit.
    """

    expected: str = "TMX: <tu> elements with a <tuv> and a <seg> per language"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        file = group.files[SOLE]
        languages = group.languages or group.requested
        codes: tuple[str, str] | None = None
        with file.open() as handle:
            for first, units in read_records(tmx_units, handle, file.uri):
                for number, unit in enumerate(units, first):
                    segments = dict[str, str]()
                    for code, text in unit.items():
                        segments.setdefault(code.lower(), text)
                    codes = codes or _sides(segments, languages, f"{file.uri}: unit {number}")
                    yield number, _pair(segments, codes)


def _sides(segments: dict[str, str], languages: tuple[str, ...], where: str) -> tuple[str, str]:
    """The codes of source and target, as the units have them."""
    codes = tuple(segments)
    if languages:
        codes = tuple(choose_codes(languages, codes, where).values())
    if len(codes) != 2:
        raise DataError(f"{where}: a pair has two languages, here are {', '.join(codes) or 'none'}; name the two, source first")
    return codes[0], codes[1]


def _pair(segments: dict[str, str], codes: tuple[str, str]) -> dict[str, str] | Dropped:
    if not all(code in segments for code in codes):
        return Dropped("no translation", f"a unit in {', '.join(segments) or 'no language'}")
    return {"source": segments[codes[0]], "target": segments[codes[1]], "source_lang": codes[0], "target_lang": codes[1]}


def _paragraphs(article: str) -> Iterator[str]:
    """Each mark is a line, and what it marks is on the next one."""
    is_paragraph = False
    for line in article.split("\n"):
        if line.startswith(START):
            is_paragraph = line.strip() == PARAGRAPH
        elif is_paragraph:
            yield from line.split("_NEWLINE_")

"""Texts of documents: Wikipedia articles with marks, JSON documents, translation memories."""

import re
from collections.abc import Iterator

from miner.errors import DataError
from miner.research.datasets.file_groups import choose_codes
from miner.research.datasets.layout import SOLE, Cells, Dropped, FileGroup, Record
from miner.text.records import read_records
from miner.text.tmx import tmx_units

SENTENCE_END = re.compile("(?<=。)")  # written without a space behind it
START = "_START_"
PARAGRAPH = "_START_PARAGRAPH_"


def lines_of_document(cells: Cells) -> Iterator[Cells]:
    """Yield a row for each line of a document."""
    for text in cells["text"].split("\n"):
        yield {**cells, "text": text}


def wiki_paragraphs(cells: Cells) -> Iterator[Cells | Dropped]:
    """Yield the paragraphs of an article of Wiki-40B without titles, cut at line ends and behind 。: a mark precedes what it marks."""
    is_paragraph, has_paragraph = False, False
    for line in cells["text"].split("\n"):
        if line.startswith(START):
            is_paragraph = line.strip() == PARAGRAPH
        elif is_paragraph:
            has_paragraph = True
            parts = (text for part in line.split("_NEWLINE_") for text in SENTENCE_END.split(part))
            yield from ({"text": text} for text in parts if text.strip())
    if not has_paragraph:
        yield Dropped("no paragraph", f"an article without {PARAGRAPH}: {cells['text'][:40]!r}")


def translation_memory(group: FileGroup) -> Iterator[Record]:
    """Read TMX: units (`tu`) of a segment in each language, by `xml:lang`.

    The languages are those of the file name or, where it has none, those requested, or else those of the first unit.
    """
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
                source, target = codes
                if source in segments and target in segments:
                    yield number, {"source": segments[source], "target": segments[target], "source_lang": source, "target_lang": target}
                else:
                    yield number, Dropped("no translation", f"a unit in {', '.join(segments) or 'no language'}")


def _sides(segments: dict[str, str], languages: tuple[str, ...], where: str) -> tuple[str, str]:
    """The codes of source and target, as the units have them."""
    codes = tuple(segments)
    if languages:
        codes = tuple(choose_codes(languages, codes, where).values())
    if len(codes) != 2:
        raise DataError(f"{where}: a pair has two languages, here are {', '.join(codes) or 'none'}; name the two, source first")
    return codes[0], codes[1]

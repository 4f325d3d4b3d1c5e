"""Translation units of TMX, and the segments of some languages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO
from xml.parsers import expat

from miner.errors import DataError, first_line
from miner.text.records import MAX_LISTED_COLUMNS, MAX_NAME_CHARS, NumberedRecords, Rows, Value, list_columns
from miner.text.streams import BLOCK_BYTES

CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements of a segment whose content is markup of another program
MAX_DEPTH = 100  # of elements within elements

Unit = dict[str, str]  # language -> its first segment


def tmx_units(handle: BinaryIO, name: str) -> Iterator[Unit]:
    """Yield the segments of each translation unit by their language. Raises DataError for a file that is not TMX.

    Expat reads a token from its start again for every block, so the time is bounded only by `records.read_records`.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    handlers = _UnitHandlers(parser)
    num_units = 0
    try:
        while block := handle.read(BLOCK_BYTES):
            parser.Parse(block)
            yield from handlers.units
            num_units += len(handlers.units)
            handlers.units.clear()
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # of encodings that Python or Expat does not have, or of the handlers
        where, num_units = f"{name}:{parser.CurrentLineNumber}", num_units + len(handlers.units)
        raise DataError(f"{where}: not TMX after {num_units} units ({first_line(error)}); correct the file") from error


class _UnitHandlers:
    """The handlers of an XML parser; `units` are those that have ended. ValueError for what TMX does not have."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.units: list[Unit] = []
        self._path: list[str] = []  # names of the open elements
        self._unit: Unit = {}
        self._lang = ""
        self._text: list[str] | None = None  # of an open segment
        self._num_codes = 0  # open elements of CODES
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        parser.EntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_entity

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition(":")[2].lower()
        if not self._path and name != "tmx":
            raise ValueError(f"the root is <{tag:.40}>, not <tmx>")
        if len(self._path) == MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} elements within one another")
        if name == "tu":
            self._unit = {}
        elif name == "tuv":
            self._lang = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg" and self._path[-1] == "tuv":
            self._text = []
        elif name in CODES:
            self._num_codes += 1
        self._path.append(name)

    def _end(self, _: str) -> None:
        name = self._path.pop()
        if name == "tu":
            self.units.append(self._unit)
            self._unit = {}
        elif name == "seg" and self._path[-1] == "tuv" and self._text is not None:
            self._unit.setdefault(self._lang, "".join(self._text))
            self._text = None
        elif name in CODES:
            self._num_codes -= 1

    def _add_text(self, text: str) -> None:
        if self._text is not None and not self._num_codes:
            self._text.append(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise ValueError(f"the entity &{name:.40}; is not one of XML")


def select_segments(batches: Iterator[NumberedRecords], langs: Sequence[str], name: str) -> Iterator[Rows]:
    """Yield the segments of some languages, "" for a unit without it. Raises DataError for a language that no unit has."""
    missing, listed = set(langs), dict[str, None]()
    for first, units in batches:
        segments = [[_pick_segment(unit, lang) for unit in units] for lang in langs]
        missing -= {lang for lang, texts in zip(langs, segments, strict=True) if any(text is not None for text in texts)}
        if missing and len(listed) < MAX_LISTED_COLUMNS:
            listed.update(dict.fromkeys(code for unit in units for code in unit))
        columns: list[list[Value]] = [[text or "" for text in texts] for texts in segments]
        yield Rows(first, columns)
    if missing:
        codes = list_columns(sorted(listed)) or "none"
        raise DataError(f"{name}: no segment in {min(missing)[:MAX_NAME_CHARS]}; its languages are {codes}")


def _pick_segment(unit: Unit, lang: str) -> str | None:
    return next((text for code, text in unit.items() if _matches(code, lang)), None)


def _matches(code: str, lang: str) -> bool:
    """Whether a code such as `en-US` is the language `en-us` or `en`."""
    code, lang = (value.lower().replace("_", "-") for value in (code, lang))
    return code == lang or code.partition("-")[0] == lang

"""Rows of TSV and CSV files."""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from miner.errors import DataError
from miner.research.datasets.layout import SOLE, Cells, Dropped, FileGroup, Record
from miner.research.datasets.release import ReleaseFile, read_release_lines
from miner.text.records import MAX_RECORD_BYTES, csv_reader, list_columns

TOO_LONG = Dropped("line too long", "a line of more than 16 MiB")
WRONG_CELLS = "wrong number of cells"
QUOTED_CELL = r'(?:"(?:[^"]|"")*"|[^",]*)'
QUOTED_LINE = re.compile(f"{QUOTED_CELL}(?:,{QUOTED_CELL})*")  # a line that is a whole row of RFC 4180

Columns = Mapping[str, int | str]  # our column -> position from 0, or name in the header
Cut = tuple[int, list[str] | Dropped]


@dataclass(frozen=True)
class DelimitedRows:
    """One row per line, cells between delimiters.

    Quotes are plain characters unless `quoted`; then cells follow RFC 4180 and may hold line ends, except where `one_line` says
    that every line is a row. `lang_columns` has the columns of languages that share a row, by code.
    """

    columns: Columns
    header: bool = False
    delimiter: str | None = "\t"  # None: white space
    quoted: bool = False
    one_line: bool = False
    cells: tuple[int, ...] = ()  # numbers of cells a row may have; (): enough for the columns
    lang_columns: Mapping[str, Columns] = field(default_factory=dict)
    optional: tuple[str, ...] = ()  # columns that may be absent
    where: tuple[str, Mapping[str, str]] | None = None  # (column, its value -> split): reads only the rows of the split

    @property
    def expected(self) -> str:
        names = [str(name) for name in (*self.columns.values(), *next(iter(self.lang_columns.values()), {}).values())]
        kind = {"\t": "tab-separated", ",": "comma-separated", None: "space-separated"}[self.delimiter]
        if self.header:
            return f"{kind} columns {', '.join(names)}"
        required = [at for name, at in self._all("").items() if isinstance(at, int) and name not in self.optional]
        counts = " or ".join(map(str, self.cells)) if self.cells else f"at least {1 + max(required, default=0)}"
        return f"{counts} {kind} cells"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        file = group.files[SOLE]
        lines = read_release_lines(file)
        rows: Iterator[Cut] = ((line, TOO_LONG if text is None else self._cut_line(text)) for line, text in lines)
        if self.quoted and not self.one_line:
            rows = self._quoted_rows(file, lines)
        columns = self._all(group.lang)
        names: list[str] = []
        if self.header:
            names = self._read_header(file, rows, columns)
        positions = {name: names.index(at) if isinstance(at, str) else at for name, at in columns.items() if at in names or not names}
        least = 1 + max(at for name, at in positions.items() if name not in self.optional)
        where = names.index(self.where[0]) if self.where else -1
        for line, cells in rows:
            if isinstance(cells, Dropped):
                yield line, cells
            elif cells == names:
                yield line, Dropped("header again", "the header")
            elif self.where and (len(cells) <= where or self.where[1].get(cells[where].strip()) != group.split):
                continue
            else:
                yield line, self._pick(cells, positions, least)

    def _all(self, lang: str) -> Columns:
        return {**self.columns, **(self.lang_columns.get(lang) or self.lang_columns.get("", {}))}

    def _pick(self, cells: list[str], positions: Mapping[str, int], least: int) -> Cells | Dropped:
        if len(cells) >= least and (not self.cells or len(cells) in self.cells):
            return {name: cells[at] for name, at in positions.items() if at < len(cells)}
        if not any(cell.strip() for cell in cells):
            return Dropped("blank", "a blank line")
        return Dropped(WRONG_CELLS, f"{len(cells)} cell{'s' if len(cells) != 1 else ''}")

    def _read_header(self, file: ReleaseFile, rows: Iterator[Cut], columns: Columns) -> list[str]:
        _, first = next(rows, (1, []))
        names = [name.strip() for name in first] if isinstance(first, list) else []
        missing = [at for name, at in columns.items() if at not in names and name not in self.optional]
        if self.where and self.where[0] not in names:
            missing.append(self.where[0])
        if missing:
            listed = list_columns(names) or "nothing"
            raise DataError(f"{file.uri}:1: expected a header with {missing[0]!r} ({self.expected}), found {listed}; check the file")
        return names

    def _cut_line(self, text: str) -> list[str] | Dropped:
        if not self.quoted or '"' not in text:
            return text.split(self.delimiter)
        if not QUOTED_LINE.fullmatch(text):
            return Dropped("broken quotes", f"{text[:40]!r}")
        try:
            cells: list[str] = next(csv_reader([text], self.delimiter or ","))
        except csv.Error:  # a cell that is too long
            return TOO_LONG
        return cells

    def _quoted_rows(self, file: ReleaseFile, lines: Iterator[tuple[int, str | None]]) -> Iterator[Cut]:
        start, num_chars = 1, 0

        def read_bounded() -> Iterator[str]:
            nonlocal num_chars
            for _, text in lines:
                num_chars += len(text or "")
                if num_chars > MAX_RECORD_BYTES:
                    raise DataError(f"{file.uri}:{start}: a record of more than {MAX_RECORD_BYTES:,} characters; download the file again")
                yield f"{text or ''}\n"

        rows = csv_reader(read_bounded(), self.delimiter or ",")
        try:
            for cells in rows:
                yield start, cells or [""]
                start, num_chars = rows.line_num + 1, 0
        except csv.Error as error:
            raise DataError(f"{file.uri}:{start}: a quote that is not closed ({error}); download the file again") from error


def reverse_score(cells: Cells) -> Iterator[Cells | Dropped]:
    """Turn a score from 1, the same, to 4, unrelated, into a similarity: 5 - score."""
    try:
        yield {**cells, "score": f"{5 - float(cells['score']):g}"}
    except ValueError:
        yield Dropped("score is no number", f"Overall {cells['score']!r}")

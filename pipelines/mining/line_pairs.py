"""The line pairs of a bitext on disk: two files, or two columns of one file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import pyarrow as pa

from miner.config.commands import ScoreConfig, TextSettings
from miner.errors import ConfigError, DataError
from miner.text import formats, readers, streams
from miner.text.readers import Lines, read_pairs


def _check_columns(uri: str, *columns: str | None) -> None:
    """Raise ConfigError where one column of a table is a name and another a number, since a table without names has no header."""
    is_number = [column.isdecimal() for column in columns if column is not None]
    if any(is_number) and not all(is_number) and streams.split_extensions(uri)[0] not in (*formats.JSON, ".parquet", ".tmx"):
        raise ConfigError(f"{uri}: columns {' and '.join(map(str, columns))} are a name and a number; give two names, or two numbers")


@dataclass(frozen=True)
class LineBlock:
    """Consecutive line pairs."""

    first: int  # number of the first line, from 1
    sources: Lines  # n
    targets: Lines  # n
    others: pa.Table | None  # (n rows) the other columns of a table


@dataclass(frozen=True)
class LinePairs:
    """The files or columns of the two sides."""

    uris: tuple[str, str]
    settings: tuple[TextSettings, TextSettings]
    reserved: Sequence[str] = ()  # names that other columns of the table may not have

    @classmethod
    def of(cls, config: ScoreConfig, reserved: Sequence[str] = ()) -> "LinePairs":
        paths = [config.source, config.source if config.target is None else config.target]
        uris = [readers.expand([path]) for path in paths]
        for path, files in zip(paths, uris, strict=True):
            if files == [readers.STDIN]:
                raise ConfigError("standard input cannot be scored, because it is read more than once; give a file")
            if len(files) > 1:
                raise ConfigError(f"{path}: matches {len(files)} files; a bitext has one file per side")
        source, target = uris[0][0], uris[1][0]
        settings = config.side_text("source", source), config.side_text("target", target)
        if source == target:
            _check_columns(source, *[side.text_column for side in settings])
        return cls((source, target), settings, reserved)

    def read(self) -> Iterator[tuple[Lines, Lines]]:
        return read_pairs(*self.uris, self.settings)

    def blocks(self, num_lines: int) -> Iterator[LineBlock]:
        """Yield the line pairs, at least `num_lines` at a time but for the last."""
        pending: tuple[Lines, Lines] = [], []
        first, others = self._first_line(), self._other_columns()
        rest = next(others, None)
        for sources, targets in chain(self.read(), [([], [])]):
            pending[0].extend(sources)
            pending[1].extend(targets)
            size = len(pending[0])
            if (size < num_lines and sources) or not size:
                continue
            while rest is not None and len(rest) < size:
                rest = pa.concat_tables([rest, next(others)])
            yield LineBlock(first, *pending, None if rest is None else rest.slice(0, size))
            first, pending, rest = first + size, ([], []), None if rest is None else rest.slice(size)

    def _first_line(self) -> int:
        """Return the number of the line of the first pair, which follows a header."""
        block = next(readers.read_sentences(self.uris[0], self.settings[0]), None)
        return 1 if block is None else block.end - block.counts["lines"] + 1

    def _other_columns(self) -> Iterator[pa.Table]:
        """Yield the other columns of a table that has both sides, named so that they do not repeat a name of the output."""
        columns = [side.text_column for side in self.settings]
        if self.uris[0] != self.uris[1] or None in columns:
            return
        options = formats.read_options(self.settings[0])
        for table in formats.read_other_columns(self.uris[0], list(filter(None, columns)), options):
            names: list[str] = []
            for name in table.column_names:
                while name in (*self.reserved, *names):
                    name = f"input_{name}"
                names.append(name)
            if not names:
                return
            yield table.rename_columns(names)

    @cached_property
    def other_schema(self) -> pa.Schema:
        """The columns that `blocks` yields beside the texts."""
        return next((table.schema for table in self._other_columns()), pa.schema([]))

    def count_lines(self) -> int:
        """Return the number of line pairs. DataError if one side has no sentence."""
        num_lines = 0
        num_sentences = [0, 0]
        for block in self.read():
            num_lines += len(block[0])
            num_sentences = [count + sum(map(bool, side)) for count, side in zip(num_sentences, block, strict=True)]
        for uri, settings, count in zip(self.uris, self.settings, num_sentences, strict=True):
            if not count:
                column = f" of column {settings.text_column}" if settings.text_column else ""
                raise DataError(f"{uri}: no sentence in {num_lines} lines{column}; give a text with sentences")
        return num_lines

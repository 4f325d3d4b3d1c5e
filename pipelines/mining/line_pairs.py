"""The line pairs of a bitext on disk: two files, or two columns of one file."""

from collections.abc import Iterator
from dataclasses import dataclass

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
class LinePairs:
    """The files or columns of the two sides."""

    uris: tuple[str, str]
    settings: tuple[TextSettings, TextSettings]

    @classmethod
    def of(cls, config: ScoreConfig) -> "LinePairs":
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
        return cls((source, target), settings)

    def read(self) -> Iterator[tuple[Lines, Lines]]:
        return read_pairs(*self.uris, self.settings)

    def blocks(self, num_lines: int) -> Iterator[tuple[Lines, Lines]]:
        """Yield the line pairs, at least `num_lines` at a time but for the last."""
        pending: tuple[Lines, Lines] = [], []
        for sources, targets in self.read():
            pending[0].extend(sources)
            pending[1].extend(targets)
            if len(pending[0]) >= num_lines:
                yield pending
                pending = [], []
        if pending[0]:
            yield pending

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

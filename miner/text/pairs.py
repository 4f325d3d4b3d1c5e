"""Read pairs of lines: line i of one text with line i of another, or two columns of one file."""

from collections.abc import Iterator

from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text import readers

Lines = list[str | None]  # cleaned texts of consecutive lines, None for a dropped line


def read_pairs(source: str, target: str, settings: tuple[TextSettings, TextSettings]) -> Iterator[tuple[Lines, Lines]]:
    """Yield equally many lines of both sides at a time, in bounded memory.

    Raises what `readers.read_sentences` raises, and DataError if one side has fewer lines than the other.
    """
    sides = [_read_lines(uri, side_settings) for uri, side_settings in zip((source, target), settings, strict=True)]
    pending: list[Lines] = [[], []]
    num_read = 0
    while True:
        for side, lines in enumerate(sides):
            if not pending[side]:
                pending[side] = next(lines, [])
        count = min(map(len, pending))
        if not count:
            break
        yield pending[0][:count], pending[1][:count]
        pending = [lines[count:] for lines in pending]
        num_read += count
    if any(pending):
        longer, shorter = (source, target) if pending[0] else (target, source)
        raise DataError(
            f"{shorter}: ends after {num_read} lines, and {longer} continues; line i of one must be the translation of line i of the other"
        )


def _read_lines(uri: str, settings: TextSettings) -> Iterator[Lines]:
    for block in readers.read_sentences(uri, settings):
        count = block.counts["lines"]
        lines: Lines = [None] * count
        for row, text in zip((block.lines - (block.end - count + 1)).tolist(), block.texts, strict=True):
            lines[row] = text
        if lines:
            yield lines

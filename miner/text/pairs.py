"""Pairs of lines: line i of one text belongs to line i of another, or they are two columns of one file."""

from collections.abc import Iterator

from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text import readers

Lines = list[str | None]  # cleaned texts of consecutive lines, None for one that is dropped


def read_pairs(source: str, target: str, settings: tuple[TextSettings, TextSettings]) -> Iterator[tuple[Lines, Lines]]:
    """The lines of both sides, equally many at a time; memory does not grow with them.

    Raises what `readers.read` raises, and DataError where one side ends before the other.
    """
    sides = [_lines(uri, chosen) for uri, chosen in zip((source, target), settings, strict=True)]
    held: list[Lines] = [[], []]
    read = 0
    while True:
        for at, side in enumerate(sides):
            if not held[at]:
                held[at] = next(side, [])
        count = min(map(len, held))
        if not count:
            break
        yield held[0][:count], held[1][:count]
        held = [lines[count:] for lines in held]
        read += count
    if any(held):
        longer, shorter = (source, target) if held[0] else (target, source)
        raise DataError(f"{shorter}: ends after {read} lines, and {longer} goes on; line i of one must belong to line i of the other")


def _lines(uri: str, settings: TextSettings) -> Iterator[Lines]:
    for block in readers.read(uri, settings):
        count = block.counts["lines"]
        lines: Lines = [None] * count
        for row, text in zip((block.lines - (block.end - count + 1)).tolist(), block.texts, strict=True):
            lines[row] = text
        if lines:
            yield lines

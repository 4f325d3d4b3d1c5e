"""How many lines a corpus has, without reading all of it, and some of them to try things out with.

Parquet tells by its metadata, and what is small is counted. Of larger text some parts are looked at: windows of a plain file,
spread evenly, and the start of a compressed one. What was not looked at then has as many lines for a byte.
"""

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from miner import storage
from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text import readers, streams

COUNTED = 64 << 20  # bytes of text that are looked at whole
FILES = 16  # that are looked into, of a corpus that has more
WINDOWS, WINDOW = 8, 1 << 20  # parts of a plain file, and their bytes
KEPT = 1 << 17  # bytes of a part that are kept to try things out with
TEXTS = 50_000  # sentences of a corpus, for the same


@dataclass(frozen=True)
class FileEstimate:
    """What was seen of one file."""

    uri: str
    size: int  # bytes of the file
    seen: int  # bytes of it that were looked at
    lines: int  # in these
    kept: bytes  # some of the lines, the first of the file before the others; of Parquet none


@dataclass(frozen=True)
class LineCount:
    """How many lines a corpus has, and how that is known."""

    lines: float
    looks: tuple[FileEstimate, ...]
    exact: bool
    why: str  # in a few words


def count(uris: Sequence[str]) -> LineCount:
    """The lines of these inputs; DataError for one that cannot be read."""
    sizes = {uri: _size(uri) for uri in uris}
    tables = [_table(uri, size) for uri, size in sizes.items() if streams.split_extensions(uri)[0] == ".parquet"]
    packed: dict[str, dict[str, int]] = defaultdict(dict)  # compression -> its files
    for uri in sizes.keys() - {table.uri for table in tables}:
        packed[streams.split_extensions(uri)[1]][uri] = sizes[uri]
    whole = sum(sum(files.values()) for files in packed.values()) <= COUNTED
    looks, lines = list(tables), float(sum(table.lines for table in tables))
    for compression, files in packed.items():
        found = [_text(uri, files[uri], compression, whole) for uri in _some(sorted(files), whole)]
        seen = sum(look.seen for look in found)
        lines += sum(look.lines for look in found) * sum(files.values()) / max(1, seen)
        looks += found
    return LineCount(lines, tuple(looks), whole, _why(looks, lines, sum(sizes.values())) if not whole else "counted")


def _why(looks: Sequence[FileEstimate], lines: float, size: int) -> str:
    seen = sum(look.seen for look in looks)
    return f"estimated by {seen / 1e6:,.0f} of {size / 1e6:,.0f} MB, {size / max(1.0, lines):,.0f} bytes a line"


def _size(uri: str) -> int:
    fs, path = storage.filesystem(uri)
    with streams.convert_read_errors(uri, ""):
        size = fs.size(path)
    return 0 if size is None else int(size)  # a web server may not tell, and is read whole


def _some(uris: list[str], whole: bool) -> list[str]:
    """All, or FILES of them, evenly spread."""
    return uris if whole or len(uris) <= FILES else [uris[number * len(uris) // FILES] for number in range(FILES)]


def _table(uri: str, size: int) -> FileEstimate:
    with storage.open_parquet(uri) as file:
        return FileEstimate(uri, size, size, file.metadata.num_rows, b"")


def _text(uri: str, size: int, compression: str, whole: bool) -> FileEstimate:
    """Look at one file: at all of it, or as the module tells."""
    if whole or size <= (streams.HEAD_BYTES if compression else WINDOWS * WINDOW):
        parts = _all(uri, size, compression)
    else:
        parts = _head(uri, compression) if compression else _windows(uri, size)
    seen, lines, kept = 0, 0, []
    for read, part in parts:
        seen += read
        lines += part.count(b"\n") + (part[-1:] not in (b"\n", b""))
        kept.append(part[: part.rfind(b"\n", 0, KEPT) + 1])
    return FileEstimate(uri, size, seen, lines, b"".join(kept))


def _all(uri: str, size: int, compression: str) -> Iterator[tuple[int, bytes]]:
    """Bytes of the file, and lines that they hold."""
    yield size, b""
    with streams.open_bytes(uri, compression) as handle:
        for block in streams.read_line_blocks(handle, streams.MAX_LINE_BYTES):
            yield 0, b"\n" if block is None else block


def _windows(uri: str, size: int) -> Iterator[tuple[int, bytes]]:
    """The same of windows: whole lines only, and the first line of the file."""
    fs, path = storage.filesystem(uri)
    with streams.convert_read_errors(uri, ""), fs.open(path, "rb") as handle:
        for number in range(WINDOWS):
            handle.seek(number * (size - WINDOW) // (WINDOWS - 1))
            part = handle.read(WINDOW)
            part = part[(part.find(b"\n") + 1 if number else 0) : part.rfind(b"\n") + 1]
            yield len(part), part


def _head(uri: str, compression: str) -> Iterator[tuple[int, bytes]]:
    """The same of the start of a compressed file, cut off where its bytes end."""
    seen, text = streams.read_head(uri, compression, streams.HEAD_BYTES, streams.HEAD_STEP_BYTES)
    if not text:
        raise DataError(f"{uri}: truncated or not {compression}; copy or download it again")
    yield seen, text[: text.rfind(b"\n") + 1]


def sample(found: LineCount, settings: TextSettings) -> tuple[int, list[str]]:
    """Some lines: how many, and those of them, cleaned, that are sentences. Raises what `readers.read` raises."""
    most = math.ceil(TEXTS / max(1, len(found.looks)))
    lines, texts = 0, []
    with tempfile.TemporaryDirectory(prefix="miner-") as folder:
        for number, look in enumerate(found.looks):
            kind = streams.split_extensions(look.uri)[0]
            place = look.uri
            if kind != ".parquet":
                place = storage.join(folder, f"{number}{kind}")
                Path(place).write_bytes(look.kept)
            enough = most
            for block in readers.read_sentences(place, settings, look.uri):
                lines += block.counts["lines"]
                texts += block.texts
                enough -= len(block.texts)
                if enough <= 0:
                    break
    return lines, texts

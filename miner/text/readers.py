"""Text in: which inputs are meant, and the cleaned sentences of each, block by block."""

import glob
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt
import xxhash

from miner import storage
from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text.formats import Fault, Value, read_values
from miner.text.normalise import clean_all
from miner.text.streams import BLOCK

STDIN = "-"
COUNTS = ("lines", "kept", "empty", "invalid", "too_long")


@dataclass(frozen=True)
class Block:
    """The sentences of some consecutive lines."""

    texts: list[str]  # n cleaned sentences, none of them empty
    lines: npt.NDArray[np.int64]  # (n,) their line numbers, from 1 and ascending
    end: int  # number of the last line read, whatever became of it
    counts: Counter[str]  # what became of every line read: `lines` is the sum of the others in COUNTS


def read(uri: str, settings: TextSettings, name: str | None = None) -> Iterator[Block]:
    """The cleaned sentences of one input, in order; memory does not grow with it. Errors call it `name`, or else `uri`.

    Raises DataError for an input that is missing or broken and, where `settings.strict`, for the first line dropped for
    another reason than being empty.
    """
    name = name or uri
    for first, values in read_values(uri, settings, name):
        yield _block(name, first, values, settings)


def _block(name: str, first: int, values: list[Value], settings: TextSettings) -> Block:
    texts = [value for value in values if isinstance(value, str)]
    lines = np.arange(first, first + len(values), dtype=np.int64)
    faults = {index: value for index, value in enumerate(values) if isinstance(value, Fault)} if len(texts) < len(values) else {}
    if faults:
        lines = np.delete(lines, list(faults))
    texts = clean_all(texts)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    long = lengths > settings.max_chars
    if settings.strict and (faults or long.any()):
        bad = [(first + index, fault.reason) for index, fault in faults.items()]
        bad += [(int(line), f"longer than {settings.max_chars} characters; cut the line") for line in lines[long]]
        line, reason = min(bad)
        raise DataError(f"{name}:{line}: {reason}, or leave out --strict to drop such lines")
    keep = (lengths > 0) & ~long
    counts = Counter({"lines": len(values), "kept": int(keep.sum()), "empty": int((lengths == 0).sum()), "too_long": int(long.sum())})
    counts.update(fault.kind for fault in faults.values())
    if not keep.all():
        texts, lines = list(compress(texts, keep)), lines[keep]
    return Block(texts, lines, first + len(values) - 1, counts)


def expand(inputs: Sequence[str]) -> list[str]:
    """Files, globs, fsspec URIs and `-` -> the inputs they name, sorted, each once, spelled as the user did.

    Raises DataError for a folder, for what is not a regular file, and for a name or pattern that matches nothing.
    """
    if not inputs:
        raise DataError("no input; name text files, or `-` for standard input")
    found: dict[str, str] = {}  # place -> the first spelling of it
    for name in inputs:
        for uri in [STDIN] if name == STDIN else _matches(str(name)):
            if not uri.isprintable():  # bytes that are not UTF-8 included: it could not be recorded, nor shown in one line
                raise DataError(f"{uri!r}: a file name that cannot be printed; rename the file")
            place = uri if uri == STDIN else storage.filesystem(uri)[1]
            found[place] = min(uri, found.get(place, uri))
    return sorted(found.values())


def _matches(name: str) -> list[str]:
    fs, path = storage.filesystem(name)
    if fs.isfile(path):
        return [name]
    if fs.isdir(path):
        raise DataError(f"{name}: a folder; name its files, as in `{name.rstrip('/')}/*.txt`")
    if fs.exists(path):
        raise DataError(f"{name}: not a regular file; send it to standard input and give `-`")
    if not glob.has_magic(name):
        raise DataError(f"{name}: no such file; check the name")
    matches = [uri for uri in _glob(name) if storage.filesystem(uri)[0].isfile(storage.filesystem(uri)[1])]
    if not matches:
        raise DataError(f"{name}: no file matches this pattern; check it, and quote it if the shell should leave it alone")
    return matches


def _glob(pattern: str) -> list[str]:
    if "://" not in pattern and "::" not in pattern:
        return glob.glob(pattern, recursive=True)  # noqa: PTH207  # fsspec answers with absolute paths, Path drops a leading `./`
    fs, path = storage.filesystem(pattern)
    return [pattern.replace(path, str(match), 1) if path in pattern else str(fs.unstrip_protocol(match)) for match in fs.glob(path)]


def spool_stdin(path: str) -> str:
    """Stream standard input into the file `path`, which appears when it ends; returns the xxh3-128 of its bytes.

    Workers are other processes, so they read standard input from a file.
    """
    digest = xxhash.xxh3_128()
    with storage.atomic(path) as handle:
        while block := sys.stdin.buffer.read(BLOCK):
            digest.update(block)
            handle.write(block)
    return digest.hexdigest()

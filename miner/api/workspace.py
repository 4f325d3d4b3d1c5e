"""What the functions of the Python interface have in common: the encoder, the directory of a run, and the texts in it."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias

import pyarrow as pa
import xxhash

from miner import encoders
from miner.encoders import Encoder
from miner.encoders.base import check_texts
from miner.errors import ConfigError, DataError, MinerError
from miner.io import storage, table_files
from miner.io.defer_pandas import defer_pandas
from miner.text.normalise import clean_all

FilePath: TypeAlias = str | os.PathLike[str]
EncoderLike: TypeAlias = FilePath | Encoder

TEXT = "text"  # column of a file of texts
TEXTS = "_texts"  # folder of these files
LIST_FILE = re.compile(rf"\S*/{TEXTS}/([\w-]+?)(-[0-9a-f]{{32}}\.parquet|\.tsv)")


@contextlib.contextmanager
def open_workspace(output: FilePath | None, encoder: EncoderLike) -> Iterator[tuple[str, str]]:
    """Yield the directory of a run, `output` or one that is removed afterwards, and the name of its encoder."""
    defer_pandas()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(encoders.offer(check_encoder(encoder)))
        stack.enter_context(_naming_lists())
        yield (stack.enter_context(tempfile.TemporaryDirectory(prefix="miner-")) if output is None else os.fspath(output)), name


@contextlib.contextmanager
def _naming_lists() -> Iterator[None]:
    """Replace the files of lists in the message of a MinerError by the names of their arguments."""
    try:
        yield
    except MinerError as error:
        error.args = (LIST_FILE.sub(r"\1", str(error)),)
        raise


def check_encoder(encoder: EncoderLike) -> str | Encoder:
    """Return the name of an encoder, or the encoder. Raises ConfigError for anything else."""
    if isinstance(encoder, os.PathLike):
        return os.fspath(encoder)
    if isinstance(encoder, str):
        return encoder
    if callable(getattr(encoder, "encode", None)):
        missing = [name for name in ("dim", "fingerprint") if not hasattr(encoder, name)]
        if not missing:
            return encoder
        remedy = "an encoder has dim, fingerprint and encode"
        if hasattr(encoder, "save_pretrained"):  # of sentence-transformers
            remedy = "save the model, and give its folder"
        raise ConfigError(f"encoder: {type(encoder).__name__} has no {' and no '.join(missing)}; {remedy}")
    raise ConfigError(f"encoder: expected a name, or an encoder of miner.load_encoder, not {type(encoder).__name__}")


def list_texts(texts: Iterable[Any]) -> Sequence[Any]:
    """Return texts as a sequence. Raises ConfigError for what has no order, or is not iterable."""
    if isinstance(texts, pa.Array | pa.ChunkedArray):
        return list(texts.to_pylist())
    if hasattr(texts, "columns") or hasattr(texts, "column_names"):
        raise ConfigError(f"{type(texts).__name__} instead of texts; give one of its columns, such as frame['text']")
    if isinstance(texts, Set | Mapping | bytes) or not isinstance(texts, Iterable):
        raise ConfigError(f"{type(texts).__name__} instead of texts; give a list of strings")
    return texts if isinstance(texts, str | list) else list(texts)


def check_side(texts: Sequence[str], role: str) -> None:
    """Raise what `check_texts` raises, and DataError if all texts are empty."""
    check_texts(texts)
    if not any(text.strip() for text in texts):
        raise DataError(f"{role}: no sentence; give texts that are not empty")


def is_list(value: Any) -> bool:
    """Return whether a value is neither the path of a file nor a list of paths."""
    if isinstance(value, str | os.PathLike):
        return False
    return not (isinstance(value, Sequence) and all(isinstance(item, str | os.PathLike) for item in value))


def write_pairs(pairs: Iterable[Sequence[Any]], folder: str, name: str) -> str:
    """Write pairs of texts or numbers as a file of two columns, and return its path. Raises ConfigError for anything but pairs."""
    path = storage.join(folder, TEXTS, f"{name}.tsv")
    rows = [pair if isinstance(pair, str) else list(pair) for pair in pairs]
    if odd := [row for row in rows if isinstance(row, str) or len(row) != 2]:
        raise ConfigError(f"{name}: {odd[0]!r} is not a pair; give a file, or a list of pairs")
    storage.make_folder(storage.join(folder, TEXTS))
    with storage.atomic(path) as file:
        file.writelines("\t".join(clean_all([str(cell) for cell in row])).encode() + b"\n" for row in rows)
    return path


def write_texts(texts: Sequence[str], folder: str, role: str) -> str:
    """Write texts as a Parquet file with the column TEXT, and return its path.

    It is named by its content, so that a run on the same texts resumes an earlier one. Raises what `check_side` raises.
    """
    check_side(texts, role)
    column = pa.array(texts, pa.large_string())
    digest = xxhash.xxh3_128()
    for buffer in filter(None, column.buffers()):
        digest.update(buffer)
    path = storage.join(folder, TEXTS, f"{role}-{digest.hexdigest()}.parquet")
    if not storage.exists(path):
        for name in storage.names_in(storage.join(folder, TEXTS)):
            if name.startswith(f"{role}-"):
                storage.remove(storage.join(folder, TEXTS, name))
        table_files.write_table(path, pa.table({TEXT: column}))
    return path

"""Columns and texts of what a config or an option names: files of the user, or a public dataset."""

import glob
from collections.abc import Iterator, Sequence
from operator import itemgetter

from miner.config.datasets import DatasetFiles
from miner.errors import DataError
from miner.io import storage
from miner.research.datasets.file_groups import find_groups
from miner.research.datasets.reading import read_dataset
from miner.research.datasets.registry import get_layout
from miner.text.formats import TABLE, read_rows, read_strings
from miner.text.normalise import clean_all
from miner.text.records import Fault, Rows

Cells = list[list[str]]  # column by column


def expand_globs(files: Sequence[str]) -> list[str]:
    """Expand globs among paths and URIs. Raises DataError for a name without a file."""
    uris: list[str] = []
    for name in files:
        fs, path = storage.filesystem(name)
        matches = sorted(map(str, fs.glob(path))) if glob.has_magic(path) else [path] if fs.exists(path) else []
        if not matches:
            raise DataError(f"{name}: no such file; check the name")
        uris += [fs.unstrip_protocol(match) if "://" in name else match for match in matches]
    return uris


def expand_files(files: Sequence[str | DatasetFiles]) -> list[str | DatasetFiles]:
    """Expand globs as `expand_globs` does; public datasets remain as they are."""
    expanded: list[str | DatasetFiles] = []
    for file in files:
        expanded += [file] if isinstance(file, DatasetFiles) else expand_globs([file])
    return expanded


def file_fingerprints(files: Sequence[str | DatasetFiles]) -> list[tuple[str, int, str]]:
    """Return (name, size, version) of each file; the version is a modification time or ETag, if the file system has one."""
    fingerprints = []
    for uri in [uri for file in expand_files(files) for uri in (dataset_paths(file) if isinstance(file, DatasetFiles) else [file])]:
        fs, path = storage.filesystem(uri)
        info = fs.info(path)
        version = info.get("mtime") or info.get("LastModified") or info.get("ETag")
        fingerprints.append((uri, int(info.get("size") or 0), str(version)))
    return fingerprints


def dataset_paths(files: DatasetFiles) -> list[str]:
    """Return the files on disk that the rows of a dataset are read from, sorted."""
    _, groups = find_groups(get_layout(files.dataset), files.path, files.languages, files.split)
    return sorted({file.path for group in groups for file in group.files.values()})


def read_columns(file: str | DatasetFiles, columns: Sequence[str | None]) -> Iterator[Cells]:
    """Yield the cleaned cells of columns for blocks of consecutive rows: `cells[c][i]` is column c of row i. Blank lines are skipped.

    Columns are those of `text.formats.read_rows`; None, the whole line, is the column `text` of a public dataset. Raises DataError with
    file and line for a row that cannot be read or has an empty cell.
    """
    if isinstance(file, DatasetFiles):
        yield from read_dataset_columns(file, [column or "text" for column in columns])
        return
    for rows in read_rows(file, columns, TABLE):
        cells = _clean_rows(file, columns, rows)
        if cells[0]:
            yield cells


def load_columns(uri: str | DatasetFiles, *columns: str | None) -> list[list[str]]:
    """Return columns of a table; for None, a column of the constant `all`.

    Raise DataError if a column is missing, a cell is empty, or there are no rows.
    """
    names = list(dict.fromkeys(column for column in columns if column is not None))
    batches = list(read_columns(uri, names))
    if not batches:
        raise DataError(f"{uri}: no rows; check the file name")
    cells = {name: [cell for batch in batches for cell in batch[index]] for index, name in enumerate(names)}
    num_rows = len(cells[names[0]])
    return [cells[column] if column is not None else ["all"] * num_rows for column in columns]


def _clean_rows(uri: str, columns: Sequence[str | None], rows: Rows) -> Cells:
    """Return the cleaned cells of rows that are not blank."""
    faults = [(row, value.reason) for values in rows.columns for row, value in enumerate(values) if isinstance(value, Fault)]
    if faults:
        row, reason = min(faults, key=itemgetter(0))
        raise DataError(f"{uri}:{rows.first + row}: {reason}")
    cells = [clean_all([value for value in values if isinstance(value, str)]) for values in rows.columns]
    blank = set(rows.blank)
    if list(columns) == [None]:
        blank.update(row for row, cell in enumerate(cells[0]) if not cell)
    for name, column in zip(columns, cells, strict=True):
        empty = [row for row, cell in enumerate(column) if not cell and row not in blank] if "" in column else []
        if empty:
            raise DataError(f"{uri}: row {rows.first + empty[0]} has nothing in column {name!r}; drop such rows, or fill them")
    return [[cell for row, cell in enumerate(column) if row not in blank] for column in cells] if blank else cells


def read_dataset_columns(files: DatasetFiles, columns: Sequence[str]) -> Iterator[Cells]:
    """Yield columns of the rows of a dataset in batches: `cells[c][i]` is column c of row i.

    Raises DataError for a column that the dataset does not have, and for a split without labels where they are read.
    """
    for batch in read_dataset(get_layout(files.dataset), files.path, files.languages, files.split):
        missing = [column for column in columns if column not in batch.columns]
        if missing:
            raise DataError(f"{files}: no column {missing[0]!r} ({', '.join(batch.columns)}); name one of them")
        cells = [batch.columns[column] for column in columns]
        empty = [column for column, values in zip(columns, cells, strict=True) if "" in values]
        if empty:
            raise DataError(f"{files}: no {empty[0]} in {batch.group.title}; choose another split or column")
        if len(batch):
            yield cells


def read_texts(file: str | DatasetFiles) -> Iterator[str]:
    """Yield every text of a file or dataset that contains a letter or digit, whatever its columns, so that none becomes training data.

    Raises DataError if there is none, and as `text.formats.read_strings` does.
    """
    is_empty = True
    for text in _read_dataset_texts(file) if isinstance(file, DatasetFiles) else read_strings(file):
        if any(map(str.isalnum, text)):
            is_empty = False
            yield text
    if is_empty:
        raise DataError(f"{file}: no sentences to exclude from training; check the file")


def _read_dataset_texts(files: DatasetFiles) -> Iterator[str]:
    """Yield every text of a dataset, without labels, scores, languages and ids."""
    layout = get_layout(files.dataset)
    for batch in read_dataset(layout, files.path, files.languages, files.split):
        for name in layout.kind.texts or batch.columns:
            yield from batch.columns[name]

"""Columns of a public dataset that a config names in place of a file."""

from collections.abc import Iterator, Sequence

from miner.config.datasets import DatasetFiles
from miner.datasets.file_groups import find_groups
from miner.datasets.layout import Request
from miner.datasets.reading import read_dataset
from miner.datasets.registry import get_layout
from miner.errors import DataError


def read_dataset_columns(files: DatasetFiles, columns: Sequence[str]) -> Iterator[list[list[str]]]:
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


def read_dataset_texts(files: DatasetFiles) -> Iterator[str]:
    """Yield every text of a dataset, without labels, scores, languages and ids."""
    layout = get_layout(files.dataset)
    for batch in read_dataset(layout, files.path, files.languages, files.split):
        for name in layout.kind.texts or batch.columns:
            yield from batch.columns[name]


def dataset_paths(files: DatasetFiles) -> list[str]:
    """Return the files on disk that the rows of a dataset are read from, sorted."""
    request = Request(files.languages, files.split)
    _, groups = find_groups(get_layout(files.dataset), files.path, request)
    return sorted({file.path for group in groups for file in group.files.values()})

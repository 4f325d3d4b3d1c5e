"""A dataset as published -> batches of rows in our columns: cleaned, languages and labels compared, dropped rows counted by reason."""

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, islice

from miner.errors import DataError
from miner.languages import canonical
from miner.research.datasets.delimited import WRONG_CELLS
from miner.research.datasets.file_groups import comparable, find_groups
from miner.research.datasets.layout import Cells, DatasetForm, DatasetLayout, Dropped, FileGroup, Record
from miner.text.normalise import clean_all

BATCH_ROWS = 4096
Columns = dict[str, list[str]]  # our column -> n cells
UNREADABLE = {WRONG_CELLS, "broken quotes", "not JSON", "missing key", "value is not text", "line too long"}  # reasons of damaged files
MAX_UNREADABLE = 0.1  # share of the rows of a file of at least MIN_ROWS
MIN_ROWS = 100
ELSEWHERE = "dropped in another language"


@dataclass(frozen=True)
class RowBatch:
    """Rows of consecutive lines of a group of files."""

    group: FileGroup
    columns: Columns
    num_read: int  # rows read for these, dropped ones included
    dropped: Counter[str]  # by reason

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_dataset(layout: DatasetLayout, path: str, languages: Sequence[str] = (), split: str | None = None) -> Iterator[RowBatch]:
    """Yield the rows of a dataset at PATH, a file, an archive or the folder of the unpacked release.

    `languages` are codes in any form (see `miner.languages`); without them, all. A pair of languages is read if one of them is
    requested or, if there are several, both. `split` is needed where there are several; `all` reads each.

    Raises DataError for files that are missing or in another layout, and for a language or split that is not there.
    """
    return _read_groups(layout, *find_groups(layout, path, languages, split))


def check_dataset(layout: DatasetLayout, path: str, languages: Sequence[str] = (), split: str | None = None) -> None:
    """Read the first rows of each file. Raises DataError as `read_dataset` does, for what they show."""
    form, groups = find_groups(layout, path, languages, split)
    for group in groups:
        next(_batches(layout, form, group))


def _read_groups(layout: DatasetLayout, form: DatasetForm, groups: list[FileGroup]) -> Iterator[RowBatch]:
    seen: set[str] = set()
    for split in dict.fromkeys(group.split for group in groups):
        together = [group for group in groups if group.split == split]
        shared = _shared_ids(layout, form, together) if layout.parallel_by else None
        for group in together:
            for batch in _batches(layout, form, group):
                seen.update(batch.columns.get("lang", ()))
                yield batch if shared is None else _keep_ids(batch, shared)
    for language in groups[0].requested:
        if "lang" in layout.kind.columns and not any(_is_language(code, (language,)) for code in seen):
            raise DataError(f"{groups[0].title}: no rows in {language!r}; of those requested there are {', '.join(sorted(seen)) or 'none'}")


def _batches(layout: DatasetLayout, form: DatasetForm, group: FileGroup) -> Iterator[RowBatch]:
    """The batches of a group. DataError for a file without rows, and where no row of the first batch is as expected."""
    records = form.read(group)
    if group.requested:
        records = (
            (line, cells)
            for line, cells in records
            if isinstance(cells, Dropped) or "lang" not in cells or _is_language(cells["lang"], group.requested)
        )
    num_read = num_unreadable = 0
    while chunk := list(islice(records, BATCH_ROWS)):
        columns, drops = _usable(layout, form, group, chunk, num_read)
        if num_read == 0 and len(drops) == len(chunk):
            line, drop = next(((line, drop) for line, drop in drops if drop.reason != "blank"), drops[0])
            raise DataError(
                f"{group.title}:{line}: expected {form.read.expected}, found {drop.actual} ({drop.reason}); check that it is"
                f" {layout.title} as published, see docs/datasets.md"
            )
        num_read += len(chunk)
        num_unreadable += sum(drop.reason in UNREADABLE for _, drop in drops)
        yield RowBatch(group, columns, len(chunk), Counter(drop.reason for _, drop in drops))
    if num_read >= MIN_ROWS and num_unreadable > MAX_UNREADABLE * num_read:
        raise DataError(
            f"{group.title}: {num_unreadable:,} of {num_read:,} rows cannot be read; expected {form.read.expected}; download the file again"
        )
    if num_read == 0:
        of_languages = f" in {' or '.join(group.requested)}" if group.requested else ""
        raise DataError(f"{group.title}: no rows{of_languages}; expected {form.read.expected}; download the file again")


@lru_cache(maxsize=4096)
def _is_language(code: str, languages: tuple[str, ...]) -> bool:
    return code in languages or comparable(code) in {canonical(language) for language in languages}


def _usable(
    layout: DatasetLayout, form: DatasetForm, group: FileGroup, records: list[Record], rows_before: int
) -> tuple[Columns, list[tuple[int, Dropped]]]:
    """The columns of the rows that can be used, and the others with their lines."""
    drops = [(line, cells) for line, cells in records if isinstance(cells, Dropped)]
    rows = [(number, cells) for number, (_, cells) in enumerate(records, rows_before + 1) if not isinstance(cells, Dropped)]
    lines = [line for line, cells in records if not isinstance(cells, Dropped)]
    columns = _clean(layout, form, group, rows)
    faults = _faults(layout, form, group, columns)
    if faults:
        drops = sorted([*drops, *((lines[row], fault) for row, fault in faults.items())], key=lambda drop: drop[0])
        keep = [row not in faults for row in range(len(rows))]
        columns = {name: list(compress(cells, keep)) for name, cells in columns.items()}
    return columns, drops


def _clean(layout: DatasetLayout, form: DatasetForm, group: FileGroup, rows: list[tuple[int, Cells]]) -> Columns:
    """Numbered rows -> our columns: texts cleaned as for mining, what the file name says added."""
    texts = layout.kind.texts or (tuple(rows[0][1]) if rows else ())
    columns: Columns = {}
    for name in texts:
        cells = [row.get(name, "") for _, row in rows]
        if form.clean is not None:
            cells = [form.clean(cell, row.get("lang", group.lang)) for cell, (_, row) in zip(cells, rows, strict=True)]
        columns[name] = clean_all(cells)
    # The name of a file says the others; an id that nothing says is the number of the row.
    source, target = group.languages if len(group.languages) == 2 else (group.lang, group.lang)
    from_name = {"lang": group.lang, "source_lang": source, "target_lang": target, "lang1": source, "lang2": target}
    from_name |= {"track": group.track, "label": "", "score": ""}
    for name in layout.kind.extras:
        columns[name] = [row[name].strip() if name in row else from_name.get(name, str(number)) for number, row in rows]
    return columns


def _faults(layout: DatasetLayout, form: DatasetForm, group: FileGroup, columns: Columns) -> dict[int, Dropped]:
    """Row -> why it cannot be used. Labels become ours."""
    faults: dict[int, Dropped] = {}
    texts = [columns[name] for name in layout.kind.texts or columns]
    if layout.placeholder:
        _add_faults(faults, texts, layout.placeholder, Dropped(f"cell is {layout.placeholder}", layout.placeholder))
    _add_faults(faults, texts, "", Dropped("blank", "an empty cell"))
    if "label" in columns and not (group.split in form.unlabelled and not any(columns["label"])):
        labels = columns["label"]
        ours = {label: label if layout.labels is None else layout.labels.get(label, "") for label in set(labels)}
        for row, label in enumerate(labels):
            if not ours[label]:
                reason = "no label" if label in ("", "-") else "unknown label"
                faults.setdefault(row, Dropped(reason, f"label {label!r}"))
        columns["label"] = [ours[label] for label in labels]
    for row, score in enumerate(columns.get("score", ())):
        if not math.isfinite(parse_number(score)):
            faults.setdefault(row, Dropped("score is no number" if score else "no score", f"score {score!r}"))
    return faults


def _add_faults(faults: dict[int, Dropped], columns: list[list[str]], cell: str, fault: Dropped) -> None:
    """Mark the rows that have this cell in one of the columns."""
    for cells in columns:
        if cell in cells:
            for row, value in enumerate(cells):
                if value == cell:
                    faults.setdefault(row, fault)


def parse_number(cell: str) -> float:
    """Return the number in a cell, NaN if there is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _shared_ids(layout: DatasetLayout, form: DatasetForm, groups: list[FileGroup]) -> set[str]:
    """The ids that have a row in every language read, by a first reading of the files.

    Raises DataError where rows are translations by their number and the files have different numbers of rows.
    """
    shared: set[str] | None = None
    first_rows = 0
    for group in groups:
        by_language: dict[str, set[str]] = {}
        num_rows = 0
        for batch in _batches(layout, form, group):
            num_rows += batch.num_read
            for lang, key in zip(batch.columns["lang"], batch.columns["id"], strict=True):
                by_language.setdefault(lang, set()).add(key)
        for ids in by_language.values():
            shared = ids if shared is None else shared & ids
        first_rows = first_rows or num_rows
        if layout.parallel_by == "row" and num_rows != first_rows:
            raise DataError(
                f"{group.title}: {num_rows} rows, but {groups[0].title} has {first_rows}; row i must be the same example in every language,"
                " so download both again, or read them one by one"
            )
    return shared or set()


def _keep_ids(batch: RowBatch, ids: Container[str]) -> RowBatch:
    keep = [key in ids for key in batch.columns["id"]]
    if all(keep):
        return batch
    columns = {name: [cell for cell, kept in zip(cells, keep, strict=True) if kept] for name, cells in batch.columns.items()}
    return RowBatch(batch.group, columns, batch.num_read, batch.dropped + Counter({ELSEWHERE: keep.count(False)}))

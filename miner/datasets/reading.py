"""A dataset as published -> batches of rows in our columns: cleaned, languages and labels compared, dropped rows counted by reason."""

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from miner.datasets.file_groups import comparable, find_groups
from miner.datasets.layout import Cells, DatasetForm, DatasetLayout, Dropped, FileGroup, Record, Request
from miner.errors import DataError
from miner.languages import canonical
from miner.text.normalise import clean_all

BATCH_ROWS = 4096
ELSEWHERE = "dropped in another language"


@dataclass(frozen=True)
class RowBatch:
    """Rows of consecutive lines of a group of files."""

    group: FileGroup
    columns: dict[str, list[str]]  # our column -> n cells
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
    request = Request(tuple(languages), split)
    form, groups = find_groups(layout, path, request)
    return _read_groups(layout, form, groups, request)


def _read_groups(layout: DatasetLayout, form: DatasetForm, groups: list[FileGroup], request: Request) -> Iterator[RowBatch]:
    seen: set[str] = set()
    for split in dict.fromkeys(group.split for group in groups):
        together = [group for group in groups if group.split == split]
        shared = _shared_ids(layout, form, together, request) if layout.parallel_by else None
        for group in together:
            for batch in _batches(layout, form, group, request):
                seen.update(batch.columns.get("lang", ()))
                yield batch if shared is None else _keep_ids(batch, shared)
    for language in request.languages:
        if "lang" in layout.kind.columns and not any(_is_language(code, (language,)) for code in seen):
            raise DataError(f"{groups[0].title}: no rows in {language!r}; of those requested there are {', '.join(sorted(seen)) or 'none'}")


def _batches(layout: DatasetLayout, form: DatasetForm, group: FileGroup, request: Request) -> Iterator[RowBatch]:
    """The batches of a group. DataError for a file without rows, and where no row of the first batch is as expected."""
    records = _of_languages(form.read(group, request), request.languages)
    num_read = 0
    while chunk := list(islice(records, BATCH_ROWS)):
        kept, drops = _usable(layout, form, group, chunk, num_read)
        if num_read == 0 and not kept:
            _refuse(layout, form, group, drops)
        num_read += len(chunk)
        columns = _columns(layout, kept)
        yield RowBatch(group, columns, len(chunk), Counter(drop.reason for _, drop in drops))
    if num_read == 0:
        wanted = f" in {' or '.join(request.languages)}" if request.languages else ""
        raise DataError(f"{group.title}: no rows{wanted}; expected {form.read.expected}; download the file again")


def _of_languages(records: Iterator[Record], languages: tuple[str, ...]) -> Iterator[Record]:
    """Without the rows whose own language is not requested."""
    for line, cells in records:
        if not languages or isinstance(cells, Dropped) or "lang" not in cells or _is_language(cells["lang"], languages):
            yield line, cells


@lru_cache(maxsize=4096)
def _is_language(code: str, languages: tuple[str, ...]) -> bool:
    return code in languages or comparable(code) in {canonical(language) for language in languages}


def _refuse(layout: DatasetLayout, form: DatasetForm, group: FileGroup, drops: list[tuple[int, Dropped]]) -> None:
    """Raise DataError for rows none of which can be used: the file is something else."""
    line, drop = next(((line, drop) for line, drop in drops if drop.reason != "blank"), drops[0])
    raise DataError(
        f"{group.title}:{line}: expected {form.read.expected}, found {drop.actual} ({drop.reason}); check that it is {layout.title} as"
        " published, see docs/datasets.md"
    )


def _usable(
    layout: DatasetLayout, form: DatasetForm, group: FileGroup, records: list[Record], rows_before: int
) -> tuple[list[Cells], list[tuple[int, Dropped]]]:
    """Cleaned rows, and those that are dropped with their lines."""
    drops = [(line, cells) for line, cells in records if isinstance(cells, Dropped)]
    rows = [(number, cells) for number, (_, cells) in enumerate(records, rows_before + 1) if not isinstance(cells, Dropped)]
    lines = [line for line, cells in records if not isinstance(cells, Dropped)]
    kept: list[Cells] = []
    for line, cells in zip(lines, _clean(layout, form, group, rows), strict=True):
        drop = _fault(layout, form, group, cells)
        if drop is None:
            kept.append(cells)
        else:
            drops.append((line, drop))
    return kept, sorted(drops, key=lambda drop: drop[0])


def _clean(layout: DatasetLayout, form: DatasetForm, group: FileGroup, rows: list[tuple[int, Cells]]) -> list[Cells]:
    """Numbered rows -> the cells of our columns: texts cleaned as for mining, what the file name says added."""
    if not rows:
        return []
    texts = layout.kind.texts or tuple(rows[0][1])
    columns: dict[str, list[str]] = {}
    for name in texts:
        cells = [row.get(name, "") for _, row in rows]
        if form.clean is not None:
            cells = [form.clean(cell, row.get("lang", group.lang)) for cell, (_, row) in zip(cells, rows, strict=True)]
        columns[name] = clean_all(cells)
    known = _known(group)
    for name in layout.kind.extras:
        columns[name] = [row[name].strip() if name in row else known.get(name, str(number)) for number, row in rows]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _known(group: FileGroup) -> dict[str, str]:
    """The columns that the name of a file says. An id that nothing says is the number of the row."""
    source, target = group.languages if len(group.languages) == 2 else (group.lang, group.lang)
    return {
        "lang": group.lang,
        "source_lang": source,
        "target_lang": target,
        "lang1": source,
        "lang2": target,
        "track": group.track,
        "label": "",
        "score": "",
    }


def _fault(layout: DatasetLayout, form: DatasetForm, group: FileGroup, cells: Cells) -> Dropped | None:
    """Why a row cannot be used. Its label becomes ours."""
    texts = [cells[name] for name in layout.kind.texts or cells]
    if layout.placeholder and layout.placeholder in texts:
        return Dropped(f"cell is {layout.placeholder}", layout.placeholder)
    if "" in texts:
        return Dropped("blank", "an empty cell")
    if "label" in cells and not (cells["label"] == "" and group.split in form.unlabelled):
        label = cells["label"] if layout.labels is None else layout.labels.get(cells["label"])
        if not label:
            return Dropped("unknown label" if cells["label"] not in ("", "-") else "no label", f"label {cells['label']!r}")
        cells["label"] = label
    if "score" in cells and not _is_number(cells["score"]):
        return Dropped("score is no number" if cells["score"] else "no score", f"score {cells['score']!r}")
    return None


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _columns(layout: DatasetLayout, rows: list[Cells]) -> dict[str, list[str]]:
    names = layout.kind.columns or (tuple(rows[0]) if rows else ())
    return {name: [row[name] for row in rows] for name in names}


def _shared_ids(layout: DatasetLayout, form: DatasetForm, groups: list[FileGroup], request: Request) -> set[str]:
    """The ids that have a row in every language read, by a first reading of the files.

    Raises DataError where rows are translations by their number and the files have different numbers of rows.
    """
    shared: set[str] | None = None
    first_rows = 0
    for group in groups:
        by_language: dict[str, set[str]] = {}
        num_rows = 0
        for batch in _batches(layout, form, group, request):
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

"""Files of which line i belongs to line i of the others: translations, or sentences and their labels or scores."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import zip_longest

from miner.errors import DataError
from miner.research.datasets.delimited import TOO_LONG, WRONG_CELLS
from miner.research.datasets.file_groups import choose_codes
from miner.research.datasets.layout import SOLE, Cells, Dropped, FileGroup, Record
from miner.research.datasets.release import read_release_lines

HEADER = "a header of language codes, and one tab-separated cell per language in every row"


def translations(group: FileGroup) -> Iterator[Record]:
    """Read a source and a target file, in the order of the languages of the group."""
    source, target = group.languages
    yield from aligned(group, {"source": source, "target": target})


def aligned_text(group: FileGroup) -> Iterator[Record]:
    """Read one file per language, which becomes the column of that name."""
    yield from aligned(group, {code: code for code in group.languages})


@dataclass(frozen=True)
class ColumnFiles:
    """One file for each of our columns, by role."""

    roles: Mapping[str, str]  # column -> role
    expected: str = "one cell per line in files of equally many lines"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        yield from aligned(group, self.roles)


@dataclass(frozen=True)
class PairsAndScores:
    """A file of two sentences per line (`input`) and a file of scores (`gs`), as in SemEval's STS."""

    limits: Mapping[str, int] = field(default_factory=dict)  # track -> lines of its input that have a score

    @property
    def expected(self) -> str:
        return "two tab-separated sentences per line in the input, one score per line in the gs file"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        for line, cells in aligned(group, {"input": "input", "score": "gs"}, self.limits.get(group.track)):
            if isinstance(cells, Dropped):
                yield line, cells
                continue
            sentences = cells["input"].split("\t")
            if len(sentences) < 2:
                yield line, Dropped(WRONG_CELLS, f"{len(sentences)} cell in the input")
            else:
                yield line, {"sentence1": sentences[0], "sentence2": sentences[1], "score": cells["score"]}


def plain_lines(group: FileGroup) -> Iterator[Record]:
    """Read a file with a text on every line."""
    for line, text in read_release_lines(group.files[SOLE]):
        yield line, TOO_LONG if text is None else {"text": text}


def header_of_languages(group: FileGroup) -> Iterator[Record]:
    """Read a TSV file with one column per language, whose header has the codes."""
    file = group.files[SOLE]
    lines = read_release_lines(file)
    codes = [code.strip() for code in (next(lines, (1, ""))[1] or "").split("\t")]
    if len(codes) < 2 or not all(0 < len(code) < 12 for code in codes):
        raise DataError(f"{file.uri}:1: expected {HEADER}, found {len(codes)} cells in the header; check the file")
    chosen = choose_codes(group.requested, codes, file.uri) if group.requested else {code: code for code in codes}
    for line, text in lines:
        cells = [] if text is None else text.split("\t")
        if len(cells) != len(codes):
            yield line, Dropped(WRONG_CELLS, f"{len(cells)} cells") if text else Dropped("blank", "a blank line")
        else:
            yield line, {language: cells[codes.index(code)] for language, code in chosen.items()}


def aligned(group: FileGroup, roles: Mapping[str, str], limit: int | None = None) -> Iterator[Record]:
    """Line i of the files of some roles as row i, column by column; with a limit, of the longer files only that many lines.

    Raises DataError where the files differ in length.
    """
    files = [group.files[role] for role in roles.values()]
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(read_release_lines(file))) for file in files]
        for number, lines in enumerate(zip_longest(*readers), start=1):
            ended = [line is None for line in lines]
            if any(ended):
                if limit is not None and number > limit:
                    return
                longer, shorter = files[ended.index(False)], files[ended.index(True)]
                raise DataError(
                    f"{longer.uri}:{number}: more lines than {shorter.uri}, which has {number - 1}; line i of one must belong to line i of"
                    " the other, so download both again"
                )
            texts = [line[1] for line in lines]
            if any(text is None for text in texts):
                yield number, TOO_LONG
            else:
                cells: Cells = {column: text or "" for column, text in zip(roles, texts, strict=True)}
                yield number, cells

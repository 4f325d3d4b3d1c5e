"""What a layout of a public dataset is made of: the names of its files, how their rows are read, and our columns for them.

A `DatasetLayout` has one or more forms: the releases and copies in which the same data is published. A form names its files by
regular expressions and reads a group of files that belong together (a text and its translation, sentences and their scores).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from miner.research.datasets.release import ReleaseFile

SOLE = ""  # the role of a file that is read by itself


@dataclass(frozen=True)
class TaskKind:
    """What rows are for, and the columns that all layouts of this kind have."""

    name: str
    texts: tuple[str, ...]  # never empty in a row
    extras: tuple[str, ...] = ()  # labels, scores, languages and ids

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.texts, *self.extras)


KINDS = {
    kind.name: kind
    for kind in (
        TaskKind("pairs", ("source", "target"), ("source_lang", "target_lang")),
        TaskKind("scored pairs", ("source", "target"), ("source_lang", "target_lang", "score")),
        TaskKind("nli", ("premise", "hypothesis"), ("label", "lang", "id")),
        TaskKind("triplets", ("anchor", "positive", "negative")),
        TaskKind("sts", ("sentence1", "sentence2"), ("score", "lang1", "lang2", "track")),
        TaskKind("labelled text", ("text",), ("label", "lang", "id")),
        TaskKind("labelled pairs", ("sentence1", "sentence2"), ("label", "lang", "id")),
        TaskKind("monolingual", ("text",), ("lang",)),
        TaskKind("sentences with ids", ("text",), ("lang", "id")),
        TaskKind("aligned", ()),  # one column per language
        TaskKind("lexicon", ("source", "target"), ("source_lang", "target_lang")),
        TaskKind("scored links", ("link1", "link2"), ("score", "lang1", "lang2", "id")),
    )
}


@dataclass(frozen=True)
class Dropped:
    """A row that cannot be used: the reason it is counted under, and what the row has instead."""

    reason: str
    actual: str


Cells = dict[str, str]  # our column -> cell, not cleaned yet
Record = tuple[int, Cells | Dropped]  # line number from 1, and the row


@dataclass(frozen=True)
class FileGroup:
    """Files of a release that are read together."""

    files: Mapping[str, ReleaseFile]  # by role
    split: str = ""  # "" for a release without splits
    languages: tuple[str, ...] = ()  # codes of the release: one, or those of source and target, or one per column of an aligned text
    track: str = ""
    part: str = ""  # distinguishes the parts of a split that is in several files
    requested: tuple[str, ...] = ()  # languages that the user asked for, in any form; empty: all

    @property
    def lang(self) -> str:
        return self.languages[0] if self.languages else ""

    @property
    def title(self) -> str:
        """The file that errors and reports name."""
        return self.files[min(self.files)].uri if self.files else ""


class RowReader(Protocol):
    """How the rows of a group of files are read."""

    @property
    def expected(self) -> str:
        """What a row looks like, for errors."""

    def __call__(self, group: FileGroup) -> Iterator[Record]: ...


@dataclass(frozen=True)
class PlainReader:
    """A reader without options."""

    read: Callable[[FileGroup], Iterator[Record]]
    expected: str

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        return self.read(group)


@dataclass(frozen=True)
class ChangedRows:
    """The rows of another reader, each as one or more rows or as a dropped one."""

    rows: RowReader
    change: Callable[[Cells], Iterable[Cells | Dropped]]

    @property
    def expected(self) -> str:
        return self.rows.expected

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        for line, cells in self.rows(group):
            if isinstance(cells, Dropped):
                yield line, cells
            else:
                yield from ((line, changed) for changed in self.change(cells))


@dataclass(frozen=True)
class FilePattern:
    """Names of files: a regular expression for the end of the path, without the extension of a compression.

    Its groups `split`, `lang`, `l1`, `l2`, `track`, `part` and `role` say what a file holds; `fixed` says it where the name does
    not. Files that differ in their role alone are read together.
    """

    regex: str
    fixed: Mapping[str, str] = field(default_factory=dict)
    only_first: bool = False  # all files that match hold the same; the first is enough


@dataclass(frozen=True)
class DatasetForm:
    """One form in which a dataset is published."""

    example: str  # name of a file, for errors
    patterns: tuple[FilePattern, ...]
    read: RowReader
    roles: tuple[str, ...] = (SOLE,)  # that every group must have; () where they are the languages of the group
    any_name: bool = False  # whether a file that is named by the user is read whatever its name
    clean: Callable[[str, str], str] | None = None  # (text, language) -> text as people write it
    unlabelled: tuple[str, ...] = ()  # splits that are published without labels


@dataclass(frozen=True)
class DatasetLayout:
    """A public dataset as published."""

    name: str
    title: str
    kind: TaskKind
    download: str  # what to download
    forms: tuple[DatasetForm, ...]
    labels: Mapping[str, str] | None = None  # spelling of the release -> ours; None takes any label as it is
    splits: Mapping[str, str] = field(default_factory=dict)  # name in the release -> train, dev or test
    aliases: Mapping[str, str] = field(default_factory=dict)  # language code of the release -> a registered code
    parallel_by: Literal["", "id", "row"] = ""  # what translations share; a row dropped in one language is dropped in all
    placeholder: str = ""  # a text that stands for a missing one
    licence: str = ""
    notes: str = ""

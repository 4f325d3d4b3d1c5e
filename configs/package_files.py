"""Files of packages of Debian, PyPI and npm, and groups of translations."""

import gettext
import gzip
import io
import pickle
import re
import subprocess
import sys
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import miner.languages
from miner.errors import ConfigError

Texts = list[tuple[str, str]]  # (language, text)
Message = tuple[str, str, str]  # (language as the package has it, English, translation)

ENGLISH = "en"
NOTE = re.compile(r"/+[^/]*/+|\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>|\{[^{}]*\}")
GAMES = ("wesnoth-1.16-*.deb", "freeciv-data_*.deb", "widelands-data_*.deb", "cataclysm-dda-data_*.deb")

canonical = cache(miner.languages.canonical)


def find(packages: Path, pattern: str) -> list[Path]:
    """Return the files of a package, at least one, in the order of their names."""
    paths = sorted(packages.glob(pattern))
    return paths or sys.exit(f"{packages}: no {pattern}; download the packages that builtin_packages.py lists")


def read_deb(package: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files of a Debian package that end in one of `suffixes`."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, tarfile.open(fileobj=process.stdout, mode="r|") as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(suffixes):
                yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]


class CatalogMessage(NamedTuple):
    """A message of a gettext catalog and its translation."""

    catalog: str
    lang: str
    context: str
    english: str
    text: str


def read_catalogs(package: Path) -> Iterator[CatalogMessage]:
    """Yield the messages of a Debian package's gettext catalogs, of several plural forms the first. Unreadable catalogs are skipped."""
    for name, content in read_deb(package, (".mo",)):
        *_, code, _, file = name.split("/")
        lang = other_language(code)
        if lang is None:
            continue
        try:
            catalog = gettext.GNUTranslations(io.BytesIO(content))._catalog  # type: ignore[attr-defined]
        except ValueError:  # its encoding, or its plural forms
            continue
        for key, text in catalog.items():
            message, form = key if isinstance(key, tuple) else (key, 0)
            *context, english = message.split("\x04")
            if form == 0 and english and text:
                yield CatalogMessage(file, lang, "".join(context), english, text)


def read_games(packages: Path) -> Iterator[CatalogMessage]:
    """Yield the messages of the games."""
    for package in (package for pattern in GAMES for package in find(packages, pattern)):
        yield from read_catalogs(package)


def read_po_files(package: Path, path: re.Pattern[str]) -> Iterator[Message]:
    """Yield the messages of a source package's files with this path, whose first group is the language."""
    with tarfile.open(package, "r|xz") as archive:
        for member in archive:
            match = path.search(member.name)
            if member.isfile() and match:
                content = archive.extractfile(member).read().decode(errors="replace")  # type: ignore[union-attr]
                yield from ((match[1], *message) for message in read_po(content))


def read_po(content: str) -> Iterator[tuple[str, str]]:
    """Yield (message, translation) of a gettext file, without the fuzzy ones."""
    for block in re.split(r"\n\s*\n", content):
        if "#, fuzzy" not in block and not block.startswith("#~"):
            fields = re.split(r"^(msgid|msgstr) ", block, flags=re.MULTILINE)
            message, translation = ("".join(re.findall(r'^"(.*)"\s*$', part, re.MULTILINE)) for part in (*fields[2::2], "", "")[:2])
            if message and translation:
                unescape = re.compile(r"\\(.)")
                yield tuple(unescape.sub(lambda m: " " if m[1] in "nt" else m[1], cell) for cell in (message, translation))  # type: ignore[misc]


def clean_word(text: str) -> str:
    """Remove notes, pronunciations and, from Cyrillic, the marks of stress."""
    if any(unicodedata.name(letter, "").startswith("CYRILLIC") for letter in text):
        text = text.replace("\u0301", "")
    return " ".join(NOTE.sub(" ", text).replace("~", "").split()).strip(" ,;.:!?-–")


class PlainUnpickler(pickle.Unpickler):
    """Unpickles lists and dictionaries of strings and bytes, and nothing that would run code."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"unexpected {module}.{name}")


@cache
def other_language(code: str) -> str | None:
    """Return the canonical language of a code, None for English and for what is no language."""
    try:
        lang = canonical(code)
    except ConfigError:
        return None
    return None if lang == canonical(ENGLISH) else lang


def write_groups(path: Path, groups: Iterable[Texts]) -> int:
    """Write the groups with a number as id; return it."""
    number = 0
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write("id\tlang\ttext\n")
        for number, group in enumerate(groups, start=1):
            file.writelines(f"{number}\t{lang}\t{' '.join(text.split())}\n" for lang, text in group if text.strip())
    return number

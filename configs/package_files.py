"""Files of packages of Debian, PyPI and npm, and groups of translations."""

import gzip
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

Texts = list[tuple[str, str]]  # (language, text)

ENGLISH = "en"


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


def write_groups(path: Path, groups: Iterable[Texts]) -> int:
    """Write the groups with a number as id; return it."""
    number = 0
    with gzip.open(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write("id\tlang\ttext\n")
        for number, group in enumerate(groups, start=1):
            file.writelines(f"{number}\t{lang}\t{' '.join(text.split())}\n" for lang, text in group if text.strip())
    return number

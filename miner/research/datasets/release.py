"""The files of a downloaded release, wherever they are: a file, a folder, or the members of a zip or tar archive."""

import contextlib
import posixpath
import tarfile
import zipfile
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import BinaryIO, cast

from miner.errors import DataError, first_line
from miner.io import storage
from miner.text import streams
from miner.text.records import NOT_UTF8, decode_lines, refuse_utf16

TARS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
MAX_LINE_BYTES = 1 << 24  # length of a line; a document of mC4 is one line
ENCRYPTED = 1  # flag of a member of a zip
JUNK = ("__MACOSX", "Icon\r")  # what macOS leaves in archives


@dataclass(frozen=True)
class ReleaseFile:
    """One file of a release."""

    path: str  # the file, or the archive it is in
    member: str = ""  # its name in the archive

    @property
    def uri(self) -> str:
        return posixpath.join(self.path, self.member) if self.member else self.path

    @property
    def stem(self) -> str:
        """The URI without the extension of a compression."""
        extension = posixpath.splitext(self.uri)[1]
        return self.uri.removesuffix(extension) if extension.lower() in streams.COMPRESSIONS else self.uri

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The decompressed bytes; a missing or broken file is a DataError, also while it is read."""
        compression = streams.split_extensions(self.uri)[1]
        if not self.member:
            with streams.open_bytes(self.path, compression) as handle:
                yield handle
            return
        with _open_member(self) as member:
            if compression:
                with streams.convert_read_errors(self.uri, compression), streams.COMPRESSIONS[compression](member) as handle:
                    yield cast(BinaryIO, handle)
            else:
                yield member


def list_files(path: str) -> list[ReleaseFile]:
    """The files of a release by name; DataError where there is nothing at PATH.

    Archives in a folder are listed as files, see `expand_archives`.
    """
    if storage.is_folder(path):
        names = storage.files_below(path)
        return [ReleaseFile(storage.join(path, name)) for name in names if not _is_junk(name)]
    if not storage.exists(path):
        raise DataError(f"{path}: no such file or folder; name a file of the release, its archive, or the folder it is unpacked in")
    return _members(path) if is_archive(path) else [ReleaseFile(path)]


def expand_archives(files: list[ReleaseFile]) -> list[ReleaseFile]:
    """The members of the archives among these files."""
    return [member for file in files if not file.member and is_archive(file.path) for member in _members(file.path)]


def is_archive(path: str) -> bool:
    return path.lower().endswith((".zip", *TARS))


def read_release_lines(file: ReleaseFile) -> Generator[tuple[int, str | None]]:
    r"""Lines with their numbers from 1, cut at "\n" alone and without a "\r" at their end; None for one of MAX_LINE_BYTES or more."""
    with file.open() as handle:
        for first, values in decode_lines(refuse_utf16(handle, file.uri), MAX_LINE_BYTES):
            for number, text in enumerate(values, first):
                if text is NOT_UTF8:
                    raise DataError(f"{file.uri}:{number}: not UTF-8; download the file again, or convert it")
                yield number, text.removesuffix("\r") if isinstance(text, str) else None


def _is_junk(name: str) -> bool:
    parts = name.split("/")
    return parts[-1].startswith("._") or any(part in JUNK for part in parts)


def _members(path: str) -> list[ReleaseFile]:
    """List the files of an archive, which is read to its end: there is the checksum of a compressed tar, without which no row counts.

    The members of a zip have a checksum each.
    """
    with _clear_archive_errors(path), _open_archive(path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if any(info.flag_bits & ENCRYPTED for info in infos):
                raise DataError(f"{path}: encrypted; unpack it, and name the folder")
            names = [info.filename for info in infos]
        else:
            names = [info.name for info in archive if info.isfile()]
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass
    names = [name.removeprefix("./") for name in names if not _is_junk(name)]
    name, count = max(Counter(names).items(), key=itemgetter(1), default=("", 0))
    if count > 1:
        raise DataError(f"{path}: {count} files named {name}; unpack it, and name the folder with the one that you want")
    return [ReleaseFile(path, name) for name in sorted(names)]


@contextlib.contextmanager
def _open_archive(path: str) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    compression = streams.split_extensions(path)[1]
    with streams.open_bytes(path, compression) as handle:
        if path.lower().endswith(".zip"):
            with zipfile.ZipFile(handle) as zip_archive:
                yield zip_archive
        else:
            with tarfile.open(fileobj=handle, mode="r|" if compression else "r:*") as tar_archive:
                yield tar_archive


@contextlib.contextmanager
def _open_member(file: ReleaseFile) -> Iterator[BinaryIO]:
    with _clear_archive_errors(file.path), _open_archive(file.path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            names = archive.namelist()
            with archive.open(file.member if file.member in names else f"./{file.member}") as handle:
                yield cast(BinaryIO, handle)
        else:
            info = next(info for info in archive if info.name.removeprefix("./") == file.member)
            member = archive.extractfile(info)
            assert member is not None, "only regular files are listed"
            with member:
                yield cast(BinaryIO, member)


@contextlib.contextmanager
def _clear_archive_errors(path: str) -> Iterator[None]:
    try:
        with streams.convert_read_errors(path, "an archive"):
            yield
    except NotImplementedError as error:
        raise DataError(f"{path}: {first_line(error)}; unpack it, and name the folder") from error
    except (zipfile.BadZipFile, tarfile.TarError, RuntimeError) as error:
        raise DataError(f"{path}: truncated or not an archive ({first_line(error)}); download it again") from error

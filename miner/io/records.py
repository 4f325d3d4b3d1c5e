"""Small JSON files that the program writes and reads again. They carry a checksum of themselves and are read against a schema."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from miner.errors import DamagedError, StorageError
from miner.io import storage

CHECKSUM = "xxh3"  # key of the hash of everything else

Schema = TypeVar("Schema")


def write(uri: str, values: Mapping[str, Any]) -> None:
    """Write a record with its checksum."""
    storage.write_json(uri, {**values, CHECKSUM: _hash(values)})


def read(uri: str, schema: type[Schema], remedy: str = storage.MAKE_AGAIN) -> Schema:
    """Read a record as an instance of `schema`, such as a dataclass.

    Raises StorageError if it is missing, has changed since it was written, has no checksum, or does not fit the schema.
    """
    return _parse_record(storage.read_json(uri, remedy), schema, uri, remedy)


def find(uri: str, schema: type[Schema], remedy: str = storage.MAKE_AGAIN) -> Schema | None:
    """Read a record as `read` does; None if it is missing. On an object store it takes one request."""
    data = storage.find_bytes(uri)
    return None if data is None else _parse_record(storage.parse_json(data, uri, remedy), schema, uri, remedy)


class RecordFolder(Generic[Schema]):
    """The records in a directory, of which each version is read once. Of object stores they are read side by side."""

    def __init__(self, folder: str, schema: type[Schema]) -> None:
        self.folder = folder
        self.schema = schema
        self._records: dict[str, tuple[str, Schema | None]] = {}  # file name -> its version, and the record if it is valid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.schema)  # without what was read

    def names(self) -> set[str]:
        """Return the names of the files, valid or not."""
        return {name for name in storage.names_in(self.folder) if not name.startswith(".")}

    def read(self) -> dict[str, Schema]:
        """Return the valid records by file name."""
        versions = {name: version for name, version in storage.versions(self.folder).items() if not name.startswith(".")}
        new = [name for name, version in versions.items() if name not in self._records or self._records[name][0] != version]
        contents = storage.read_files(self.folder, new)
        read = {name: (versions[name], self._parse(name, contents.get(name))) for name in new}
        self._records = {name: read.get(name) or self._records[name] for name in versions}
        return {name: record for name, (_, record) in self._records.items() if record is not None}

    def _parse(self, name: str, data: bytes | None) -> Schema | None:
        uri = storage.join(self.folder, name)
        try:
            return None if data is None else _parse_record(storage.parse_json(data, uri), self.schema, uri, storage.MAKE_AGAIN)
        except StorageError:
            return None


def _parse_record(values: Any, schema: type[Schema], uri: str, remedy: str) -> Schema:
    if not isinstance(values, dict) or CHECKSUM not in values:
        raise DamagedError(f"{uri}: not valid (no checksum `{CHECKSUM}`); {remedy}")
    expected = values.pop(CHECKSUM)
    if expected != _hash(values):
        raise DamagedError(f"{uri}: changed since it was written; {remedy}")
    record: Schema = parse(values, schema, uri, remedy)
    return record


def has_checksum(uri: str) -> bool:
    """Whether a file is a record that carries its checksum, judged without parsing it."""
    return f'"{CHECKSUM}"'.encode() in storage.read_bytes(uri)


def parse(values: Any, schema: Any, uri: str, remedy: str = storage.MAKE_AGAIN) -> Any:
    """Return JSON values as an instance of `schema`. Raises StorageError that names the file and the key at fault."""
    try:
        return _adapter(schema).validate_python(values)
    except (ValidationError, RecursionError) as error:
        raise DamagedError(f"{uri}: not valid ({_describe(error)}); {remedy}") from error


@cache
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _describe(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _hash(values: Mapping[str, Any]) -> str:
    return storage.key(json.loads(json.dumps(values)))  # as they are read: keys of JSON are strings, tuples are lists

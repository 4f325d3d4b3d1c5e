"""Small JSON files that the program writes and reads again. They carry a checksum of themselves and are read against a schema."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from miner import storage
from miner.errors import StorageError

CHECKSUM = "xxh3"  # key of the hash of everything else
RUN_AGAIN = "delete it and run the command that made it again"

Schema = TypeVar("Schema")


def write(uri: str, values: Mapping[str, Any]) -> None:
    """Write a record with its checksum."""
    storage.write_json(uri, {**values, CHECKSUM: _hash(values)})


def read(uri: str, schema: type[Schema], remedy: str = RUN_AGAIN) -> Schema:
    """Read a record as an instance of `schema`, such as a dataclass. Records of earlier versions have no checksum.

    Raises StorageError if it is missing, has changed since it was written, or does not fit the schema.
    """
    values = storage.read_json(uri)
    if isinstance(values, dict):
        expected = values.pop(CHECKSUM, None)
        if expected is not None and expected != _hash(values):
            raise StorageError(f"{uri}: changed since it was written; {remedy}")
    record: Schema = parse(values, schema, uri, remedy)
    return record


def has_checksum(uri: str) -> bool:
    """Whether a file is a record that carries its checksum, judged without parsing it."""
    return f'"{CHECKSUM}"'.encode() in storage.read_bytes(uri)


def parse(values: Any, schema: Any, uri: str, remedy: str = RUN_AGAIN) -> Any:
    """Return JSON values as an instance of `schema`. Raises StorageError that names the file and the key at fault."""
    try:
        return _adapter(schema).validate_python(values)
    except (ValidationError, RecursionError) as error:
        raise StorageError(f"{uri}: not valid ({_describe(error)}); {remedy}") from error


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

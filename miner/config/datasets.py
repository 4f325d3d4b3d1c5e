"""How a config names a public dataset in place of a file: `{dataset: xnli-mt, path: XNLI-MT-1.0, languages: [de, fr]}`."""

import posixpath
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
import yaml

from miner.config.base import OneOrMore, Settings, Strings
from miner.errors import ConfigError


class DatasetFiles(Settings):
    """A public dataset as it was downloaded. Its columns are those of its kind, see docs/datasets.md."""

    dataset: str = pydantic.Field(description="A name of `miner data list`.")
    path: str = pydantic.Field(description="A file of the release, its archive, or the folder that it is unpacked in.")
    languages: Strings = pydantic.Field((), description="Languages to read; empty: all.")
    split: str | None = pydantic.Field(None, description="Split to read; needed if the release has several.")

    def __str__(self) -> str:
        return f"{self.dataset} in {self.path}"

    def below(self, folder: str) -> "DatasetFiles":
        """Return the same dataset with its path relative to a folder."""
        return self.model_copy(update={"path": posixpath.join(folder, self.path)})


def _kind(value: Any) -> str:
    """Return the tag of a value, none of which is a key: the path of an error would be ambiguous."""
    return "public dataset" if isinstance(value, Mapping | DatasetFiles) else "file"


def parse_table_file(value: str) -> str | dict[str, Any]:
    """Return what an option names: a file, or a public dataset as YAML has it. Raise ConfigError for what is neither."""
    if not value.startswith("{"):
        return value
    try:
        dataset = yaml.safe_load(value)
    except yaml.YAMLError:
        dataset = None
    if not isinstance(dataset, dict):
        raise ConfigError(f"{value}: not a public dataset; write it as '{{dataset: sts17, path: STS2017}}', in quotes")
    return dataset


# A file of columns: its name, or a public dataset.
TableFile = Annotated[
    Annotated[str, pydantic.Tag("file")] | Annotated[DatasetFiles, pydantic.Tag("public dataset")],
    pydantic.Discriminator(_kind),
    "PATH",
]
TableFiles = Annotated[tuple[TableFile, ...], OneOrMore()]

"""The settings of `miner export`."""

from typing import Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.commands import Probability, Threshold, TopSettings

Format = Literal["moses", "tmx", "jsonl", "tsv", "huggingface", "parquet"]


class ExportConfig(TopSettings):
    """`miner export`: a mined bitext -> a directory in the format of another tool."""

    bitext: str  # a directory of `miner mine`, or its bitext.parquet
    output: str
    format: Format = "huggingface"
    threshold: Threshold | None = None  # keep pairs with a larger margin
    min_probability: Probability | None = None  # keep pairs with at least this probability
    max_chars: int | None = pydantic.Field(None, ge=1)  # drop pairs with a longer sentence
    dev: int = pydantic.Field(0, ge=0)  # pairs of a dev split
    test: int = pydantic.Field(0, ge=0)  # pairs of a test split
    seed: int = pydantic.Field(0, ge=0, lt=1 << 63)  # of the random split
    escape_formulas: bool = False  # of TSV: cells that a spreadsheet would run begin with an apostrophe
    source_lang: str | None = None  # default: the language in the manifest
    target_lang: str | None = None

    def bounds(self) -> dict[str, float]:
        """Return what limits the pairs that are exported, by setting."""
        bounds = {name: getattr(self, name) for name in ("threshold", "min_probability", "top", "max_chars")}
        return {name: value for name, value in bounds.items() if value is not None}

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.bitext.rstrip("/") == self.output.rstrip("/"):
            raise PydanticCustomError("output", "the output is the bitext itself; choose another --output")
        if self.escape_formulas and self.format != "tsv":
            raise PydanticCustomError("escape_formulas", "--escape-formulas has no effect on this format; remove it, or use --format tsv")
        return self

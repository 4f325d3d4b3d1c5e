"""The settings of `miner export`."""

from typing import Literal, Self

import pydantic
from pydantic import Field
from pydantic_core import PydanticCustomError

from miner.config.commands import Code, Directory, Probability, Threshold, TopSettings

Format = Literal["moses", "tmx", "jsonl", "tsv", "huggingface", "parquet"]


class ExportConfig(TopSettings):
    """`miner export`: a mined bitext -> a directory in the format of another tool."""

    ARGUMENTS = ("bitext",)

    bitext: str = Field(description="A directory of `miner mine`, its bitext.parquet or bitext.tsv.gz, or an output of `miner score`.")
    output: Directory = Field(description="Output directory.")
    format: Format = Field("huggingface", description="Format to write.")
    threshold: Threshold | None = Field(None, description="Keep pairs with a larger margin.")
    min_probability: Probability | None = Field(None, description="Keep pairs with at least this probability.")
    max_chars: int | None = Field(None, ge=1, description="Drop pairs with a longer sentence.")
    dev: int = Field(0, ge=0, description="Pairs of a dev split.")
    test: int = Field(0, ge=0, description="Pairs of a test split.")
    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of the random split.")
    escape_formulas: bool = Field(False, description="In TSV, put an apostrophe before cells that a spreadsheet would run as a formula.")
    source_lang: Code | None = Field(None, description="Language of the source side; by default, as recorded.")
    target_lang: Code | None = Field(None, description="Language of the target side; by default, as recorded.")

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

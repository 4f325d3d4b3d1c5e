"""The settings of `miner plan`: machines, prices, and corpus sizes that the files do not show yet."""

from typing import Any

import pydantic
from pydantic import Field

from miner.config.base import Settings
from miner.errors import ConfigError

HERE = "here"  # the machine on which `miner plan` runs


class Hardware(Settings):
    """One machine, which runs one worker. Measured speeds override those estimated from its hardware."""

    cores: int = Field(ge=1, description="Physical cores, not hardware threads.")
    memory: float = Field(gt=0, description="GB of main memory.")
    flops: float | None = Field(
        None, gt=0, description="Peak FLOP/s of its accelerator, dense 16-bit floats; by default, it has no accelerator."
    )
    bandwidth: float | None = Field(None, gt=0, description="Bytes per second of the accelerator's memory.")
    efficiency: float = Field(0.4, gt=0, le=1, description="Share of both peaks that is reached.")
    vector_bytes_per_second: float = Field(2e9, gt=0, description="Speed of vectors from files to the accelerator.")
    lines_per_second: float | None = Field(None, gt=0, description="Measured: lines that are cleaned and deduplicated.")
    sentences_per_second: float | None = Field(None, gt=0, description="Measured: sentences that are embedded.")
    pairs_per_second: float | None = Field(None, gt=0, description="Measured: pairs of sentences that exact search compares.")
    price: float | None = Field(None, ge=0, description="Price of an hour.")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _parse_numbers(cls, value: Any) -> Any:
        """Parse numbers such as 9.9e14, which YAML reads as text because the exponent has no sign."""
        return {name: _parse_number(item) for name, item in value.items()} if isinstance(value, dict) else value


def _parse_number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


class PlanSettings(Settings):
    """`miner plan`; `miner run` ignores them."""

    hardware: str | None = Field(
        None,
        description="Plan for cpu8, cpu32, l4, l40s, a100, h100, h200, one of --rates, or this machine: here. By default, the only one in"
        " --rates, else here.",
    )
    workers: int = Field(1, ge=1, description="Number of machines that work in parallel, each with one worker process.")
    price: float | None = Field(None, ge=0, description="Price of one machine for an hour; by default, as in --rates.")
    sentences: dict[str, pydantic.PositiveInt] = Field({}, description="Final sizes of corpora whose files are a sample, by name.")
    rates: dict[str, Hardware] = Field({}, description="More machines, by name.")

    @pydantic.field_validator("sentences", mode="before")
    @classmethod
    def _parse_sizes(cls, value: Any) -> Any:
        """Parse sizes such as `en: 1e9`."""
        return {name: _parse_number(item) for name, item in value.items()} if isinstance(value, dict) else value

    def over(self, other: "PlanSettings") -> "PlanSettings":
        """Return these settings, with those of `other` where unset; `rates` and `sentences` are merged."""
        overrides = {name: getattr(self, name) for name in self.model_fields_set}
        merged = {"rates": {**other.rates, **self.rates}, "sentences": {**other.sentences, **self.sentences}}
        return other.model_copy(update={**overrides, **merged})

    @property
    def machine(self) -> str | None:
        """The name of the planned machine; None for this one. Raises ConfigError if `rates` has several and none is chosen."""
        if self.hardware is not None or not self.rates:
            return None if self.hardware == HERE else self.hardware
        if len(self.rates) > 1:
            raise ConfigError(f"rates of {', '.join(self.rates)}: choose one of them by --hardware, or {HERE}")
        return next(iter(self.rates))

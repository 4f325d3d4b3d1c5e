"""What a plan is told besides the run it is of: the machines, what they cost, and sizes that no file has yet."""

from typing import Any

import pydantic

from miner.config.base import Settings
from miner.errors import ConfigError

HERE = "here"  # the machine that plans


class Hardware(Settings):
    """One machine, which is one worker. Speeds that were measured on it go before those that are expected of it."""

    cores: int = pydantic.Field(ge=1)  # not hardware threads
    memory: float = pydantic.Field(gt=0)  # GB, of the machine
    flops: float | None = pydantic.Field(None, gt=0)  # peak of its accelerator with 16-bit floats, dense; None: it has none
    bandwidth: float | None = pydantic.Field(None, gt=0)  # bytes a second of the accelerator's memory
    efficiency: float = pydantic.Field(0.4, gt=0, le=1)  # share of both peaks that is reached
    reading: float = pydantic.Field(2e9, gt=0)  # bytes of vectors a second that come to the accelerator from files
    read: float | None = pydantic.Field(None, gt=0)  # measured: lines a second that become sentences
    embed: float | None = pydantic.Field(None, gt=0)  # measured: sentences a second that are encoded
    search: float | None = pydantic.Field(None, gt=0)  # measured: pairs of sentences a second that exact search compares
    price: float | None = pydantic.Field(None, ge=0)  # of an hour

    @pydantic.model_validator(mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        """YAML takes 9.9e14 for text, as it wants a sign in the exponent."""
        return {name: _number(each) for name, each in value.items()} if isinstance(value, dict) else value


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


class PlanSettings(Settings):
    """`miner plan`; a run itself does without."""

    hardware: str | None = None  # a name of `rates`, of a machine that is known, or `here`; None: the one of `rates`, or here
    workers: int = pydantic.Field(1, ge=1)  # such machines, each with one process at work
    price: float | None = pydantic.Field(None, ge=0)  # of an hour of one; None: as the machine's own
    sentences: dict[str, pydantic.PositiveInt] = pydantic.Field({})  # corpus -> how many there will be; its files are a sample then
    rates: dict[str, Hardware] = pydantic.Field({})  # machines by name, besides those that are known

    @pydantic.field_validator("sentences", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        """`en: 1e9` is easier to read than nine zeros."""
        return {name: _number(each) for name, each in value.items()} if isinstance(value, dict) else value

    def over(self, other: "PlanSettings") -> "PlanSettings":
        """What is said here, and else what `other` says; the machines and the sentences of both."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        both = {"rates": {**other.rates, **self.rates}, "sentences": {**other.sentences, **self.sentences}}
        return other.model_copy(update={**said, **both})

    @property
    def machine(self) -> str | None:
        """The name of the machine that is planned for; None for this one. ConfigError where there are several to choose from."""
        if self.hardware is not None or not self.rates:
            return None if self.hardware == HERE else self.hardware
        if len(self.rates) > 1:
            raise ConfigError(f"rates of {', '.join(self.rates)}: say by --hardware for which of them, or for {HERE}")
        return next(iter(self.rates))

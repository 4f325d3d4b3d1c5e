"""How fast a machine is: as it was measured here, carried over to another one by what both have, or as that one's owner measured it."""

from dataclasses import dataclass, replace

from miner.config.planning import Hardware
from miner.plan import hardware


@dataclass(frozen=True)
class Speeds:
    """Of one machine, with one process at work."""

    read: float | None  # lines a second that are cleaned, counted once, sorted and written
    embed: float | None  # sentences a second that are encoded and written; None for both where there is nothing to embed
    search: float  # pairs of sentences a second that exact search compares
    faster: float  # times as fast as `miner.search.cost_model` expects of its cores: what FAISS then is
    start: float  # seconds that it takes to start a stage


@dataclass(frozen=True)
class EncodingCost:
    """What is encoded, and what that takes."""

    dim: int
    operations: float | None  # of floating point, for a sentence; None for an encoder that needs hardly any
    stretch: int  # vectors that exact search holds at a time


def elsewhere(here: Speeds, cores: int, machine: Hardware, encoding: EncodingCost) -> Speeds:
    """The speeds of `machine`, by those of this one, which has so many cores.

    Encoding and search are done by all cores, which are taken to be like those here, or by the accelerator. A text is read by one core.
    What was measured on the machine goes before all this.
    """
    times = machine.cores / cores
    found = replace(here, embed=here.embed and here.embed * times, search=here.search * times)
    if machine.flops is not None:
        found = replace(found, search=hardware.exact_search(machine, encoding.dim, encoding.stretch))
        if encoding.operations is not None:
            found = replace(found, embed=hardware.transformer(machine, encoding.operations))
    measured = {name: value for name in ("read", "embed", "search") if (value := getattr(machine, name)) is not None}
    return replace(found, **measured)

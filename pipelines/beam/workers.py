"""What the workers of a run have, which may be another machine than the driver's: the driver plans for them.

On a cluster the driver does not see the workers, so the options describe them: `--hardware`, or an accelerator in `--resource_hint`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from miner.config.planning import Hardware
from miner.devices import CPU, CUDA, available_cores, choose_device, device_type, parse_device


@dataclass(frozen=True)
class Workers:
    """The workers of a run."""

    is_here: bool  # whether they are on this machine
    hardware: Hardware | None = None  # of one machine, where the options name it
    requests_accelerator: bool = False  # whether the options do, for the stages that benefit from one

    @property
    def cores(self) -> int:
        """The cores of one machine; those of this one where the options name none."""
        return available_cores() if self.hardware is None else self.hardware.cores

    def device_type(self, device: str) -> str:
        """Return the type, cpu or cuda, of the device that a setting means on a worker. Raises ConfigError for an unknown device."""
        if self.is_here:
            return device_type(choose_device(device))
        stated = parse_device(device)
        if stated is not None:
            return device_type(stated)
        has_accelerator = self.requests_accelerator or (self.hardware is not None and self.hardware.flops is not None)
        return CUDA if has_accelerator else CPU


def describe(options: Sequence[str]) -> Workers:
    """Return the workers that Beam's options select. Raises ConfigError for invalid options."""
    if not options:
        return Workers(is_here=True)
    from apache_beam.options.pipeline_options import StandardOptions

    from miner.plan.hardware import find_hardware
    from pipelines.beam.options import IN_PROCESS_RUNNERS, WorkerOptions, parse_beam_options, runner_of

    parsed = parse_beam_options(options)
    if runner_of(parsed) in (None, *IN_PROCESS_RUNNERS):
        return Workers(is_here=True)
    name, hints = parsed.view_as(WorkerOptions).hardware, parsed.view_as(StandardOptions).resource_hints or []
    return Workers(False, None if name is None else find_hardware(name, {}), any(hint.startswith("accelerator=") for hint in hints))

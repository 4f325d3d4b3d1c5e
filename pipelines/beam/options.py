"""The options of a Beam pipeline: parsed, checked, and completed for Dask."""

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions

from miner.config.messages import find_similar
from miner.errors import ConfigError, require
from pipelines.beam import started_jobs

IN_PROCESS_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner")
DASK, DASK_CLASS = "DaskRunner", "apache_beam.runners.dask.dask_runner.DaskRunner"
DASK_PARTITIONS = ("--dask_npartitions", "--dask_partition_size")
LOCAL_RUNNERS = (*IN_PROCESS_RUNNERS, DASK)  # run() does the work


class CachedPipelineOptions(PipelineOptions):  # type: ignore[misc]
    """Options that cache their views.

    Beam requests fifty views per pipeline and parses the command line for each, a fifth of the time of a small stage.
    """

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views = self.__dict__.setdefault("_views", {})  # setting an attribute would set an option
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def parse_beam_options(options: Sequence[str]) -> PipelineOptions:
    """Parse Beam's options. Raises ConfigError for invalid values."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):  # argparse prints its full usage
            parsed = CachedPipelineOptions(list(options))
            if is_dask(parsed):
                parsed = CachedPipelineOptions(_complete_dask_options(options))
            _check_names(parsed)
            _check_is_run(parsed)
    except SystemExit as error:
        lines = stderr.getvalue().strip().splitlines()[-1:] or ["invalid"]
        raise ConfigError(f"Beam options {' '.join(options)!r}: {lines[0].partition('error: ')[2] or lines[0]}") from error
    return parsed


class WorkerOptions(PipelineOptions):  # type: ignore[misc]
    """Options of this package: what the workers of a cluster have."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--hardware", help="a machine of `miner plan`, such as l4 or cpu32; by default, like the driver's")
        parser.add_argument("--workers", type=int, help="number of machines, for `miner plan`")
        parser.add_argument("--flink_rest", help="http://host:8081, Flink's REST interface, where jobs are looked up and cancelled")
        parser.add_argument("--job_attempts", type=int, default=3, help="how often a job is submitted that the cluster does not finish")
        parser.add_argument("--detach", action="store_true", help="on Ctrl-C, leave the job running; the next run waits for it")


def _check_names(options: PipelineOptions) -> None:
    """Raise ConfigError for an option that neither Beam nor the job server at --job_endpoint reads, and if that server does not answer."""
    names = {*options.get_all_options(), *started_jobs.option_names(options.view_as(PortableOptions).job_endpoint)}
    for name in sorted(set(options.get_all_options(retain_unknown_options=True)) - names):
        similar = find_similar(name, names)
        hint = f"did you mean --{similar}?" if similar else "check its name; those of a job server need its --job_endpoint"
        raise ConfigError(f"--{name}: Beam has no such option; {hint}")


def _check_is_run(options: PipelineOptions) -> None:
    """Raise ConfigError for an option by which a job server writes a jar instead of running the job."""
    if options.view_as(PortableOptions).output_executable_path is not None:
        message = "a run is several jobs, and what a job does depends on the one before, so it cannot be written to a jar"
        raise ConfigError(f"--output_executable_path: {message}; start a job server for the cluster, and give its --job_endpoint")


def runner_of(options: PipelineOptions) -> str | None:
    """Return the name of the selected runner without its module; None for the default."""
    runner = options.view_as(StandardOptions).runner
    return None if runner is None else str(runner).rpartition(".")[2]


def is_dask(options: PipelineOptions) -> bool:
    return runner_of(options) == DASK


def _complete_dask_options(options: Sequence[str]) -> list[str]:
    """Add the runner's class and, unless the user sets one, a partition size of one shard. ConfigError without Dask, or an address.

    By default the runner puts 128 elements into a partition, so one worker would write up to 128 shards.
    """
    require("distributed", f" for --runner={DASK}")
    import apache_beam.runners.dask.dask_runner  # noqa: F401  # registers its options
    import dask

    if not any(option.startswith("--dask_client_address") for option in options) and dask.config.get("scheduler-address", None) is None:
        remedy = "give --dask_client_address=tcp://HOST:8786, or leave --runner out to use the cores of this machine"
        raise ConfigError(f"--runner={DASK}: no address of a scheduler; {remedy}")

    has_partitions = any(option.startswith(DASK_PARTITIONS) for option in options)
    return [*options, f"--runner={DASK_CLASS}", *([] if has_partitions else ["--dask_partition_size=1"])]

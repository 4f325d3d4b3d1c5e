"""Options for Beam's Dask runner, so that it distributes shards one by one."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineResult

from miner.errors import require

RUNNER, RUNNER_CLASS = "DaskRunner", "apache_beam.runners.dask.dask_runner.DaskRunner"
PARTITION_OPTIONS = ("--dask_npartitions", "--dask_partition_size")


def is_selected(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner in (RUNNER, RUNNER_CLASS)


def complete_options(options: Sequence[str]) -> list[str]:
    """Add the runner's class and, unless the user sets one, a partition size of one shard. Raises ConfigError without Dask.

    By default the runner puts 128 elements into a partition, so one worker would write up to 128 shards.
    """
    require("distributed", f" for --runner={RUNNER}")
    import apache_beam.runners.dask.dask_runner  # noqa: F401  # registers its options

    has_partitions = any(option.startswith(PARTITION_OPTIONS) for option in options)
    return [*options, f"--runner={RUNNER_CLASS}", *([] if has_partitions else ["--dask_partition_size=1"])]


def close_client(result: PipelineResult) -> None:
    """Close the connection to the cluster: the runner opens one per pipeline and leaves it open."""
    client = getattr(result, "client", None)
    if client is not None:
        client.close()

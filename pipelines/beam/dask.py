"""Beam's runner for a Dask cluster, told to make a partition of each shard."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineResult

from miner.errors import ConfigError

SHORT, FULL = "DaskRunner", "apache_beam.runners.dask.dask_runner.DaskRunner"
PARTITIONS = ("--dask_npartitions", "--dask_partition_size")


def is_asked_for(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner in (SHORT, FULL)


def complete(options: Sequence[str]) -> list[str]:
    """Beam's options for a Dask cluster, with what the user left open. ConfigError where Dask is not installed.

    Unless it is told otherwise the runner puts 128 elements into a partition: with shards for elements, all would be one worker's.
    """
    try:
        import apache_beam.runners.dask.dask_runner  # noqa: F401  # only then are its options known
        import distributed  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"--runner={SHORT}: Dask is not installed; pip install 'bitext-miner[dask]'") from error
    told = any(option.startswith(PARTITIONS) for option in options)
    return [*options, f"--runner={FULL}", *([] if told else ["--dask_partition_size=1"])]


def close(result: PipelineResult) -> None:
    """Leave the cluster: the runner connects anew for each pipeline, and stays."""
    client = getattr(result, "client", None)
    if client is not None:
        client.close()

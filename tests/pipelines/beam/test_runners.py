"""The same bitext whatever runs the pipeline: this process, worker processes, or a Dask cluster of two workers over TCP."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import miner
from distributed import LocalCluster
from test_runner import EXPECTED, Squares, processes_in, squares_in, stage_of

from miner.errors import DataError
from pipelines.beam.runner import run_stage

EXAMPLES = Path(__file__).parents[3] / "examples"
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two worker processes, which can import this project and its tests."""
    here = Path(__file__).parent
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [here, here.parents[1] / "support", here.parents[2]]))
    try:
        with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, protocol="tcp://", dashboard_address=None) as started:
            yield started.scheduler_address
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def dask(address: str) -> list[str]:
    return ["--runner=DaskRunner", f"--dask_client_address={address}"]


def test_shards_spread_over_the_workers_of_a_cluster(cluster: str, tmp_path: Path) -> None:
    """By itself the runner would give 128 shards at a time to one worker."""
    stage, made_from = stage_of(tmp_path)
    run_stage(stage, made_from, Squares(tmp_path), dask(cluster))  # which asserts that each work is set up once
    assert squares_in(tmp_path) == EXPECTED
    assert len(processes_in(tmp_path) - {os.getpid()}) == 2


def test_partitions_that_the_user_asks_for_stay(cluster: str, tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    run_stage(stage, made_from, Squares(tmp_path), [*dask(cluster), "--dask_npartitions=1"])
    assert len(processes_in(tmp_path)) == 1


def test_an_error_of_a_worker_of_a_cluster_arrives(cluster: str, tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    failing = list(made_from)[5]
    with pytest.raises(DataError) as caught:
        run_stage(stage, made_from, Squares(tmp_path, failing, "error"), dask(cluster))
    assert str(caught.value) == f"{failing}: broken [sic]; mend it"
    run_stage(stage, made_from, Squares(tmp_path), dask(cluster))
    assert squares_in(tmp_path) == EXPECTED


def mined(output: Path, sides: list[Path], options: list[str]) -> dict[str, bytes]:
    settings = ("--shards", 2, "--engine", "exact", "--threshold", 1.05, "--source-lang", "en", "--target-lang", "de")
    result = miner("mine", *sides, "--output", output, *settings, "--", *options)
    assert result.exit_code == 0, result.output
    return {name: (output / name).read_bytes() for name in OUTPUTS}


@pytest.mark.slow
def test_the_bitext_is_the_same_to_the_byte(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of real sentences, in two shards a side; the cluster embeds them, too."""
    texts = [tmp_path / f"{lang}.txt" for lang in ("en", "de")]
    for path in texts:
        path.write_text("\n".join((EXAMPLES / path.name).read_text(encoding="utf-8").splitlines()[:200]), encoding="utf-8")
    here = mined(tmp_path / "here", texts, [])
    assert mined(tmp_path / "cluster", texts, dask(cluster)) == here
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    embedded = [tmp_path / "here" / side for side in ("source", "target")]
    assert mined(tmp_path / "processes", embedded, ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]) == here

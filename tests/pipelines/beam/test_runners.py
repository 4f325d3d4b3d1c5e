"""The bitext is the same on every runner: in this process, in worker processes, or on a Dask cluster of two workers over TCP."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import output_of
from distributed import LocalCluster
from square_stage import EXPECTED_SQUARES, PYTHONPATH, SquareTask, read_processes, read_squares, square_stage

from miner.errors import ConfigError, DataError, StorageError
from pipelines.beam.beam_job import PendingFile, WorkingFolder
from pipelines.beam.runner import run_pipeline, run_stage

EXAMPLES = Path(__file__).parents[3] / "examples"
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two worker processes that can import the project and tests/support."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)
        with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, protocol="tcp://", dashboard_address=None) as started:
            yield started.scheduler_address


def dask_options(address: str) -> list[str]:
    return ["--runner=DaskRunner", f"--dask_client_address={address}"]


def test_shards_are_spread_over_the_workers_of_a_cluster(cluster: str, tmp_path: Path) -> None:
    """By default the runner puts 128 shards into the partition of one worker."""
    stage, keys = square_stage(tmp_path)
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)), dask_options(cluster))  # SquareTask asserts that it is set up once
    assert read_squares(tmp_path) == EXPECTED_SQUARES
    assert len(read_processes(tmp_path) - {os.getpid()}) == 2


def test_partition_options_of_the_user_are_kept(cluster: str, tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)), [*dask_options(cluster), "--dask_npartitions=1"])
    assert len(read_processes(tmp_path)) == 1


def test_relative_paths_are_resolved_in_the_directory_of_the_driver(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the workers were started in another one
    Path("out").mkdir()
    stage, keys = square_stage(Path("out"))
    run_pipeline(run_stage(stage, keys, SquareTask(Path("out"))), dask_options(cluster))
    assert read_squares(tmp_path / "out") == EXPECTED_SQUARES


def test_a_worker_that_lacks_a_file_names_its_host_and_the_remedy(cluster: str, tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    host = f"for the worker on {socket.gethostname()}; use a path that every machine has, such as of NFS, or a URI"
    with pytest.raises(StorageError, match=rf"missing.txt: no such file or folder {host}"):
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, list(keys)[2], "no file")), dask_options(cluster))
    unseen = PendingFile("/nowhere/_pending.pickle", "", "/nowhere", is_remote=True)
    with pytest.raises(StorageError, match=rf"^/nowhere/_pending.pickle: no such file {host}"):
        unseen.open_writer()


def test_runs_of_two_directories_cannot_share_a_worker_at_the_same_time(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    previous, working_folder = Path.cwd(), WorkingFolder()
    with working_folder.of(str(folders[0])), working_folder.of(str(folders[0])):
        assert Path.cwd() == folders[0]
        with pytest.raises(ConfigError, match="start them in one directory"), working_folder.of(str(folders[1])):
            pass
    with working_folder.of(str(folders[1])), working_folder.of("/nowhere"):
        assert Path.cwd() == folders[1]
    assert Path.cwd() == previous


@pytest.mark.slow
def test_errors_of_cluster_workers_arrive(cluster: str, tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    failing_shard = list(keys)[5]
    with pytest.raises(DataError) as caught:
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, failing_shard, "error")), dask_options(cluster))
    assert str(caught.value) == f"{failing_shard}: broken [sic]; fix it"
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)), dask_options(cluster))
    assert read_squares(tmp_path) == EXPECTED_SQUARES


def mine_outputs(output: Path, sides: list[Path], options: list[str]) -> dict[str, bytes]:
    """Run `miner mine` and return the contents of its output files."""
    shards = () if sides[0].is_dir() else ("--shards", 2)
    settings = (*shards, "--engine", "exact", "--threshold", 1.05, "--source-lang", "en", "--target-lang", "de")
    output_of("mine", *sides, "--output", output, *settings, "--", *options)
    return {name: (output / name).read_bytes() for name in OUTPUTS}


@pytest.mark.slow
def test_outputs_are_byte_identical_on_every_runner(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real sentences in two shards per side. The cluster also embeds them; the worker processes read the embeddings."""
    texts = [tmp_path / f"{lang}.txt" for lang in ("en", "de")]
    for path in texts:
        path.write_text("\n".join((EXAMPLES / path.name).read_text(encoding="utf-8").splitlines()[:200]), encoding="utf-8")
    expected = mine_outputs(tmp_path / "one-process", texts, [])
    assert mine_outputs(tmp_path / "cluster", texts, dask_options(cluster)) == expected
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    embedded = [tmp_path / "one-process" / side for side in ("source", "target")]
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]
    assert mine_outputs(tmp_path / "processes", embedded, processes) == expected

"""Worker processes are reached through 127.0.0.1 only, and nobody can fetch files through them."""

import subprocess
import sys
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_artifact_api_pb2, beam_artifact_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.portability.common_urns import artifact_types

TYPES = {
    artifact_types.FILE.urn: beam_runner_api_pb2.ArtifactFilePayload,
    artifact_types.URL.urn: beam_runner_api_pb2.ArtifactUrlPayload,
}


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    """The addresses on which a process and its children listen."""
    connections = []
    for member in [process, *process.children(recursive=True)]:
        try:
            connections += member.net_connections("inet")
        except psutil.Error:
            continue
    return {(connection.laddr.ip, connection.laddr.port) for connection in connections if connection.status == psutil.CONN_LISTEN}


def fetch(port: int, path: Path) -> bytes:
    """What the artifact service at a port returns for a file, as a file or as a URL."""
    data = b""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        service = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        for urn, payload in TYPES.items():
            value = payload(path=str(path)) if urn == artifact_types.FILE.urn else payload(url=f"file://{path}")
            artifact = beam_runner_api_pb2.ArtifactInformation(type_urn=urn, type_payload=value.SerializeToString())
            try:
                data += b"".join(
                    part.data for part in service.GetArtifact(beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact), timeout=5)
                )
            except grpc.RpcError:
                continue
    return data


@pytest.mark.slow
def test_servers_listen_on_loopback_and_return_no_files(tmp_path: Path, toy_encoder: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"one two {number}\n" for number in range(20_000)))
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    command = ["embed", tmp_path / "text.txt", "--lang", "en", "--encoder", toy_encoder, "--shards", 8, "--output", tmp_path / "out"]
    options = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    arguments = [sys.executable, "-m", "miner.cli.main", *map(str, command), *options]
    addresses: set[tuple[str, int]] = set()
    fetched = b""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        new = listening(psutil.Process(process.pid)) - addresses
        addresses |= new
        for _, port in new:
            fetched += fetch(port, tmp_path / "secret")
    assert process.returncode == 0
    assert len(addresses) >= 5, "control, data, state and logging, and the log of each worker"
    assert {host.removeprefix("::ffff:") for host, _ in addresses} == {"127.0.0.1"}
    assert fetched == b""

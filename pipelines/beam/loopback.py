"""Keep Beam's local servers to this machine.

The servers of an FnApiRunner with worker processes listen on all interfaces without authentication, and one of them returns any file and
any URL that a client names. Here they listen on 127.0.0.1, and return no files: the workers of this machine need none.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from apache_beam.runners.portability import artifact_service, local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers

LOOPBACK = "127.0.0.1"


class _LoopbackServer:
    """A gRPC server whose ports are open on the loopback interface only."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_insecure_port(self, address: str) -> Any:
        return self._server.add_insecure_port(f"{LOOPBACK}:{address.rpartition(':')[2]}")


class _LoopbackGrpc:
    """The module grpc, except for its servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*args: Any, **options: Any) -> _LoopbackServer:
        return _LoopbackServer(grpc.server(*args, **options))


class _NoArtifacts(artifact_service.ArtifactRetrievalService):  # type: ignore[misc]
    def GetArtifact(self, request: Any, context: Any = None) -> NoReturn:  # noqa: ARG002, N802 - the name of the RPC
        raise PermissionError("this runner stages no files")


class _ArtifactServices:
    """The module artifact_service, as far as the runner uses it."""

    ArtifactRetrievalService: Callable[..., Any] = _NoArtifacts


def confine_servers() -> None:
    """Replace the servers that Beam starts in this process from now on."""
    worker_handlers.grpc = local_job_service.grpc = _LoopbackGrpc()
    worker_handlers.artifact_service = _ArtifactServices

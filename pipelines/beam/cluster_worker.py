"""`miner-worker`: the worker that a cluster starts as a process on its own machines, where the package is installed; no Docker is needed.

    --environment_type=PROCESS --environment_config='{"command": "/path/to/.venv/bin/miner-worker"}'

It follows Beam's contract of containers: the runner names its services by options, and the provision service has Beam's options. Files
that the driver stages are not fetched: the package has all that its pipelines need.
"""

import argparse
import os
import sys

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

START_SECONDS = 60  # to reach the provision service


def main() -> None:
    """Run a worker until its runner ends it."""
    parser = argparse.ArgumentParser(description="A worker of Beam, started by a cluster: see deploy/README.md.")
    for name in ("id", "provision_endpoint", "control_endpoint", "logging_endpoint"):
        parser.add_argument(f"--{name}", required=name in ("id", "provision_endpoint"))
    arguments, _ = parser.parse_known_args()
    channel = grpc.intercept_channel(grpc.insecure_channel(arguments.provision_endpoint), _WorkerId(arguments.id))
    service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
    info = service.GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest(), timeout=START_SECONDS, wait_for_ready=True).info
    os.environ["WORKER_ID"] = arguments.id
    os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
    os.environ["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    services = [
        ("CONTROL", info.control_endpoint.url or arguments.control_endpoint),
        ("LOGGING", info.logging_endpoint.url or arguments.logging_endpoint),
        ("STATUS", info.status_endpoint.url),
    ]
    for name, url in services:
        if url:
            os.environ[f"{name}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))
    sdk_worker_main.main(sys.argv)


class _WorkerId(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Sends the id of this worker with every call, as runners expect."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id

    def intercept_unary_unary(self, continuation, details, request):  # type: ignore[no-untyped-def]  # as of grpc
        metadata = [*(details.metadata or ()), ("worker_id", self.worker_id)]
        return continuation(details._replace(metadata=metadata), request)


if __name__ == "__main__":
    main()

"""Servers of S3 (moto) and GCS (an emulator) on this machine, which record the requests that they receive."""

import contextlib
import functools
import io
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

OPERATIONS = ("GET", "PUT", "HEAD", "LIST", "COPY", "DELETE", "POST")
LOCK = "_lock-"
METADATA_BYTES = 1000  # with which an upload of one request starts: the name of the object
WITHOUT_GRPC = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # by which gcsfs asks for the type of a bucket; the emulator does not answer
CREDENTIALS = {"s3": {"key": "key", "secret": "secret"}, "gs": {"token": "anon"}}


class Request(NamedTuple):
    role: str  # of the client: the driver, or a worker
    operation: str  # one of OPERATIONS
    path: str  # BUCKET/OBJECT; of a LIST, the bucket


@dataclass
class RequestLog:
    """The requests of servers while they have a role, except those of locks, which are per second."""

    requests: list[Request] = field(default_factory=list)
    role: str = ""  # of servers that have none of their own

    def add(self, role: str, operation: str, path: str) -> None:
        if (role or self.role) and LOCK not in path:
            self.requests.append(Request(role or self.role, operation, path))

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        previous, self.role = self.role, role
        try:
            yield
        finally:
            self.role = previous

    def count(self, role: str) -> int:
        return sum(request.role == role for request in self.requests)

    def paths(self, *operations: str) -> set[str]:
        """Return the objects that were read or written."""
        return {request.path for request in self.requests if request.operation in operations}

    def take(self) -> list[Request]:
        """Return the requests, and start again."""
        requests, self.requests = self.requests, []
        return requests


class ObjectServer(NamedTuple):
    protocol: str
    url: str
    stop: Callable[[], None]

    @property
    def options(self) -> dict[str, str]:
        """The options of fsspec by which this process uses the server."""
        return {**CREDENTIALS[self.protocol], "endpoint_url": self.url}

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which other processes use it."""
        variables = {f"FSSPEC_{self.protocol.upper()}_{name.upper()}": value for name, value in self.options.items()}
        return variables | (WITHOUT_GRPC if self.protocol == "gs" else {})


def serve(protocol: str, log: RequestLog, role: str = "") -> ObjectServer:
    """Start a server whose requests are those of a role, by default that of the log. All servers of a protocol have the same objects."""
    server = {"s3": _s3_server, "gs": _gcs_server}[protocol](log, role)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return ObjectServer(protocol, f"http://127.0.0.1:{server.server_port}", server.shutdown)


def _s3_server(log: RequestLog, role: str) -> Any:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        log.add(role, s3_operation(environ), environ["PATH_INFO"].strip("/"))
        return app(environ, start_response)

    return make_server("127.0.0.1", 0, answer, threaded=True)


def s3_operation(environ: dict[str, Any]) -> str:
    """Return which of the OPERATIONS a request to S3 is."""
    method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
    if method == "GET" and "list-type" in query:
        return "LIST"
    if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
        return "COPY"
    return "DELETE" if method == "POST" and "delete" in query else str(method)


def _gcs_server(log: RequestLog, role: str) -> Any:
    from gcp_storage_emulator.server import RequestHandler

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)

    class LoggingHandler(RequestHandler):  # type: ignore[misc]
        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.rfile = io.BytesIO(body)
            log.add(role, gcs_operation(self.command, self.path), gcs_object(self.path, body[:METADATA_BYTES]))
            return True

        def do_DELETE(self) -> None:  # noqa: N802
            """Cancel an upload as GCS does, by the status 499; the emulator answers with 501, which gcsfs tries again for half a minute."""
            if self.path.startswith("/upload/"):
                self.send_response(499, "Client Closed Request")
                self.end_headers()
            else:
                super().do_DELETE()

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(LoggingHandler, _gcs_objects()))
    server.handle_error = lambda *_: None  # gcsfs closes connections whose answer it does not need
    return server


@functools.cache
def _gcs_objects() -> Any:
    from gcp_storage_emulator.storage import Storage

    _create_once()
    return Storage(use_memory_fs=True)


def _create_once() -> None:
    """Let the emulator refuse to create an object that exists, as GCS does."""
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    upload, creating = objects._multipart_upload, threading.Lock()

    def upload_once(request: Any, response: Any, storage: Any) -> None:
        if request.query.get("ifGenerationMatch") != ["0"]:
            upload(request, response, storage)
            return
        with creating:
            with contextlib.suppress(NotFound):
                storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
                response.status = HTTPStatus.PRECONDITION_FAILED
                return
            upload(request, response, storage)

    objects._multipart_upload = upload_once


def gcs_operation(method: str, url: str) -> str:
    """Return which of the OPERATIONS a request to GCS is. A PUT is a request of an upload."""
    path = urlsplit(url).path
    if method == "GET":
        return "LIST" if path.endswith("/o") else "GET" if path.startswith("/download/") else "HEAD"
    if method in ("POST", "PUT") and path.startswith("/upload/"):
        return "PUT"
    return "COPY" if "/rewriteTo/" in path or "/copyTo/" in path else method


def gcs_object(url: str, metadata: bytes) -> str:
    """Return the object of a request to GCS, by its address or, of an upload of one request, by the metadata that the body starts with."""
    address = re.search(r"/b/([^/]+)(?:/o/(.*))?", urlsplit(url).path)
    name = re.search(rb'"name": ("(?:[^"\\]|\\.)*")', metadata)
    bucket, path = address.groups() if address else ("", None)
    return "/".join(filter(None, [bucket, unquote(path) if path else json.loads(name[1]) if name else None]))

"""Count the requests that `miner embed` sends to GCS, as `s3_requests.py` does those to S3.

Both talk to an emulator of GCS on this machine, each at a port of its own: `pip install gcsfs gcp-storage-emulator`.
"""

import io
import logging
import os
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from s3_requests import Counts

METADATA_BYTES = 500  # with which an upload of one request starts: the name of the object
WITHOUT_GRPC = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # which the emulator does not answer


def operation(method: str, url: str) -> str:
    """Return which of `s3_requests.OPERATIONS` a request is. A PUT is a request of an upload."""
    path = urlsplit(url).path
    if method == "GET":
        return "LIST" if path.endswith("/o") else "GET" if path.startswith("/download/") else "HEAD"
    if method in ("POST", "PUT") and path.startswith("/upload/"):
        return "PUT"
    return "COPY" if "/rewriteTo/" in path or "/copyTo/" in path else method


def serve(role: str, counts: Counts, objects: Any) -> str:
    """Start a server that counts the requests of a role, and return its address."""
    from gcp_storage_emulator.server import RequestHandler

    class CountingHandler(RequestHandler):  # type: ignore[misc]
        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.rfile = io.BytesIO(body)
            if "_lock-" not in self.path and b"_lock-" not in body[:METADATA_BYTES]:
                counts[role, operation(self.command, self.path)] += 1
            return True

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(CountingHandler, objects))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def connect(counts: Counts) -> None:
    """Let this process use the server of the driver, and the processes that it starts use that of the worker."""
    import fsspec
    from gcp_storage_emulator.storage import Storage

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    objects = Storage(use_memory_fs=True)
    os.environ.update(WITHOUT_GRPC, FSSPEC_GS_TOKEN="anon", FSSPEC_GS_ENDPOINT_URL=serve("worker", counts, objects))
    fsspec.config.conf["gs"] = {"token": "anon", "endpoint_url": serve("driver", counts, objects)}
    fsspec.filesystem("gs").mkdir("bucket")

"""Log records as JSON, one object a line, for programs that collect logs."""

import json
import logging
import time
import traceback
from typing import Any

FIELDS = ("stage", "shard", "figures")  # what a record may carry besides its message


def as_json(record: logging.LogRecord, **more: Any) -> str:
    """`time` (UTC), `level`, `logger` and `message`; `stage`, `shard`, and how far it is, where the record tells them."""
    progress: dict[str, Any] = getattr(record, "progress", {})
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    told = {"time": f"{when}.{int(record.msecs):03d}Z", "level": record.levelname, "logger": record.name, "message": record.getMessage()}
    told |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
    told |= {name: value for name, value in progress.items() if value != ""}
    if record.exc_info:
        told["trace"] = "".join(traceback.format_exception(*record.exc_info))
    return json.dumps({**told, **more}, ensure_ascii=False, default=str)

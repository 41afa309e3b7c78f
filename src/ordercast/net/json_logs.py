"""Logs as JSON lines: one object a record, the facts of an event beside its name."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

import msgspec


class JsonLines(logging.Formatter):
    """Formats `extra={"facts": {...}}` as fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info is not None:
            line["error"] = "".join(traceback.format_exception(*record.exc_info))
        return msgspec.json.encode(line).decode()


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send this package's records to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("ordercast")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False

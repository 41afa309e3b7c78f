"""Writes down who published and delivered what, as a trace that `ordercast verify` reads: one JSON object a line.

A node's rows are numbered in the order in which things happened to it, which is all that the judge trusts.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

TOPIC = "board"


class Recorder:
    """The rows of all nodes of this process; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[dict[str, object]] = []
        self._next: dict[str, int] = {}

    def row(self, node: str, kind: str, message: str) -> None:
        """Before a message leaves, and as soon as one has come."""
        with self._lock:
            seq = self._next[node] = self._next.get(node, -1) + 1
            row: dict[str, object] = {"node": node, "seq": seq, "kind": kind, "msg": message, "topic": TOPIC}
            if kind == "publish":
                row |= {"guarantee": "total", "keys": [TOPIC]}  # What we want to know, not what is promised.
            self._rows.append(row | {"time_ns": time.monotonic_ns()})

    def delivered(self, node: str) -> int:
        with self._lock:
            return sum(1 for row in self._rows if row["node"] == node and row["kind"] == "deliver")

    def published(self) -> int:
        with self._lock:
            return sum(1 for row in self._rows if row["kind"] == "publish")

    def write(self, path: Path) -> None:
        with self._lock, path.open("w") as file:
            for row in self._rows:
                file.write(json.dumps(row) + "\n")


def answers(message: str, node: str) -> bool:
    """Whether this node answers the message: few do, and nobody answers an answer, so that it comes to an end."""
    return not message.startswith("re:") and sum(map(ord, message + node)) % 11 == 0

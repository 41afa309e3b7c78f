"""Traces written by hand, a line an event, for tests that know every answer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ordercast.trace.schema import COLUMNS
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


class Trace:
    """Collects events in any order of nodes; numbers each node's own history."""

    def __init__(self, run: str = "run") -> None:
        self.run = run
        self.rows: list[tuple[Any, ...]] = []
        self._next: Counter[str] = Counter()

    def add(self, at_ms: float | None, node: str, kind: str, msg: str | None = None, **more: Any) -> Trace:
        row = {"run": self.run, "node": node, "seq": self._next[node], "kind": kind, "msg": msg, **more}
        row["time_ns"] = None if at_ms is None else int(at_ms * MS)
        self._next[node] += 1
        self.rows.append(tuple(row.get(name) for name, _, _ in COLUMNS))
        return self

    def write(self, path: Path, **manifest: Any) -> Path:
        stated = {"run_id": self.run, "protocol": "hand", "guarantee": "mixed", "clock": "global", **manifest}
        writer = RunWriter(path)
        writer.write(self.rows)
        return writer.finish(Manifest(**stated))


def answered_question() -> Trace:
    """ann asks (fifo), bob answers (causal), cho is slow, crashes and comes back; ann and bob repair around it."""
    trace = Trace("question")
    trace.add(0, "ann", "publish", "m1", guarantee="fifo").add(0, "ann", "deliver", "m1")
    trace.add(0, "ann", "send", "m1", peer="bob", payload_bytes=5, header_bytes=10)
    trace.add(0, "ann", "send", "m1", peer="cho", payload_bytes=5, header_bytes=30)
    trace.add(10, "bob", "receive", "m1", peer="ann").add(10, "bob", "deliver", "m1")
    trace.add(20, "cho", "receive", "m1", peer="ann").add(50, "cho", "deliver", "m1")
    trace.add(100, "bob", "publish", "m2", guarantee="causal").add(100, "bob", "deliver", "m2")
    trace.add(100, "bob", "send", "m2", peer="ann", payload_bytes=7, header_bytes=20)
    trace.add(100, "bob", "send", "m2", peer="cho", payload_bytes=7, header_bytes=40)
    trace.add(100, "bob", "send", None, peer="ann", payload_bytes=0, header_bytes=8, info=[("packet", "Ack")])
    trace.add(110, "ann", "receive", "m2", peer="bob").add(110, "ann", "deliver", "m2")
    trace.add(115, "ann", "receive", "m1", peer="bob")
    trace.add(120, "cho", "receive", "m2", peer="bob").add(120, "cho", "deliver", "m2")
    trace.add(200, "cho", "crash").add(210, "ann", "drop", None, peer="cho")
    trace.add(250, "bob", "suspect", peer="cho").add(250, "bob", "repair_start", peer="cho")
    trace.add(260, "ann", "suspect", peer="cho").add(260, "ann", "repair_start", peer="cho")
    trace.add(265, "ann", "repair_start", peer="cho").add(270, "bob", "repair_end", peer="cho")
    trace.add(300, "ann", "repair_end", peer="cho").add(600, "cho", "recover", info=[("state", "lost")])
    return trace

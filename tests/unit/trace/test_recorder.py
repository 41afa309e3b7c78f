"""From what machines did to rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.trace import recorder as recorder_module
from ordercast.trace.describe import trace_format_page
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import COLUMNS, KINDS
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

NAMES = [name for name, _, _ in COLUMNS]


class MemoryWriter(RunWriter):
    """Keeps batches instead of writing them."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Any, ...]]] = []

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        self.batches.append(rows)

    def finish(self, manifest: Manifest) -> Path:
        return Path()


def _recorded(*batches: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=True)) for batch in batches for row in batch]


def _finish(recorder: Recorder) -> None:
    recorder.finish(Manifest(run_id="r", protocol="p", guarantee="fifo"))


def test_events_are_numbered_per_node_without_gaps() -> None:
    writer = MemoryWriter()
    recorder = Recorder(writer, "r", packets=True)
    for node in ("a", "b", "a", "a", "b"):
        recorder.event("join", node, 1)
    _finish(recorder)
    assert [(row["node"], row["seq"]) for row in _recorded(*writer.batches)] == [
        ("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)
    ]  # fmt: skip


def test_rows_leave_in_batches_so_that_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_BATCH", 4)
    writer = MemoryWriter()
    recorder = Recorder(writer, "r", packets=True)
    for i in range(10):
        recorder.event("join", "a", i)
        assert sum(map(len, writer.batches)) >= i - 3
    _finish(recorder)
    assert [len(batch) for batch in writer.batches] == [4, 4, 2]


def test_a_publication_carries_what_the_judge_needs_and_a_delivery_refers_to_it() -> None:
    writer = MemoryWriter()
    recorder = Recorder(writer, "r", packets=True)
    message = Message(Origin("a~1"), 3, Topic("t"), b"four", Guarantee.CAUSAL, ("k",), (NodeId("b"),))
    recorder.publish("a", 7, message)
    recorder.deliver("b", 9, message)
    _finish(recorder)
    published, delivered = _recorded(*writer.batches)
    assert published == {
        "run": "r", "node": "a", "seq": 0, "kind": "publish", "time_ns": 7, "msg": "a~1#3", "topic": "t",
        "keys": ("k",), "guarantee": "causal", "dst": ("b",), "peer": None, "payload_bytes": 4,
        "header_bytes": None, "info": None,
    }  # fmt: skip
    assert (delivered["kind"], delivered["msg"], delivered["keys"], delivered["dst"]) == (
        "deliver",
        "a~1#3",
        None,
        None,
    )


def test_topic_and_peer_of_an_event_go_to_their_columns() -> None:
    writer = MemoryWriter()
    recorder = Recorder(writer, "r", packets=True)
    recorder.event("suspect", "a", 1, {"peer": "b", "why": "silence"})
    recorder.event("subscribe", "a", 2, {"topic": "news"})
    _finish(recorder)
    suspect, subscribe = _recorded(*writer.batches)
    assert (suspect["peer"], suspect["info"]) == ("b", [("why", "silence")])
    assert (subscribe["topic"], subscribe["info"]) == ("news", None)


def test_an_event_that_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="'explode' is not a kind of event"):
        Recorder(MemoryWriter(), "r", packets=True).event("explode", "a", 1)


def test_the_page_about_the_format_names_every_column_kind_and_field() -> None:
    page = trace_format_page()
    for name in [*NAMES, *KINDS, *Manifest.__struct_fields__]:
        assert f"| `{name}` |" in page

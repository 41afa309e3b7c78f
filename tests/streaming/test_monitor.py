"""The monitor finds, in the journals of a real cluster, what a broker that mixes up its messages does to a client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from ordercast.api import connect
from ordercast.client.deliveries import Deliveries
from ordercast.pubsub.client_packets import Entries
from ordercast.streaming import observers as observing
from ordercast.streaming.journals import JournalsReader, ends_of, rows_of
from ordercast.streaming.monitor import by_node
from ordercast.streaming.observers import Observers
from ordercast.streaming.options import Connection
from ordercast.testing import cluster
from ordercast.trace.store import TraceError
from ordercast.verify.online import Alarm, OrderWatch
from tests.support.loop import run_async


async def talk(run: Path) -> None:
    """Two who publish, and two who read, all of whom keep journals."""
    async with (
        cluster(2) as brokers,
        connect(brokers.addresses, "ann", trace=run) as ann,
        connect(brokers.addresses, "bob", trace=run) as bob,
        connect(brokers.addresses, "victim", trace=run) as victim,
    ):
        inboxes = [await client.subscribe("t") for client in (bob, victim)]
        for number in range(200):
            ann.publish_soon("t", b"%d" % number, guarantee=("fifo", "causal", "total")[number % 3], key="k")
            bob.publish_soon("t", b"%d" % number, guarantee="causal")
            if number % 20 == 19:
                await ann.flush()
                await bob.flush()
        for inbox in inboxes:
            async with asyncio.timeout(20):
                for _ in range(400):
                    await inbox.get()


def mixed_up(self: Deliveries, packet: Entries, whole: Any = Deliveries.entries) -> None:
    """As if the broker had sent the entries in the opposite order."""
    if self.session.origin.startswith("victim"):
        packet = msgspec.structs.replace(packet, entries=tuple(reversed(packet.entries)))
    whole(self, packet)


def _fed(watch: OrderWatch, run: Path) -> list[Alarm]:
    """The journals, as they are read, in one piece."""
    directory = run / "journals"
    pieces = [rows_of(directory / name, 0, end) for name, end in ends_of(directory, {}, most=1 << 30).items()]
    return watch.feed(by_node(pa.Table.from_batches(pieces)))


def test_it_is_silent_about_a_cluster_that_does_right(tmp_path: Path) -> None:
    run_async(lambda: talk(tmp_path))
    watch = OrderWatch()
    assert _fed(watch, tmp_path) == []
    assert (watch.counts["delivered"], watch.counts["unknown"], watch.waiting) == (800, 0, 0)


def test_it_raises_what_a_mutant_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deliveries, "entries", mixed_up)
    run_async(lambda: talk(tmp_path))
    watch = OrderWatch()
    found = _fed(watch, tmp_path)

    assert watch.counts["delivered"] == 800
    assert {alarm.node for alarm in found} == {"victim"}
    assert {alarm.order for alarm in found} >= {"fifo"}


def test_only_whole_lines_of_a_journal_are_read_and_damage_is_named(tmp_path: Path) -> None:
    journal = tmp_path / "journals" / "ann.7.jsonl"
    journal.parent.mkdir()
    line = b'{"kind":"deliver","time_ns":5,"msg":"bob~1/t#1","topic":"t"}\n'
    journal.write_bytes(line * 3 + line[:20])

    ends = ends_of(journal.parent, {}, most=1 << 30)
    assert ends == {"ann.7.jsonl": 3 * len(line)}
    assert ends_of(journal.parent, {"ann.7.jsonl": len(line)}, most=len(line) + 5) == {"ann.7.jsonl": 2 * len(line)}
    rows = by_node(pa.Table.from_batches([rows_of(journal, len(line), 3 * len(line))]))
    assert [row.msg for row in rows["ann"]] == ["bob~1/t#1"] * 2

    journal.write_bytes(line + b"nonsense\n")
    with pytest.raises(TraceError, match=f"ann.7.jsonl: byte {len(line)}: "):
        rows_of(journal, 0, len(line) + 9)


def test_a_life_is_read_to_its_end_before_the_next_one_begins(tmp_path: Path) -> None:
    line = b'{"kind":"deliver","time_ns":5,"msg":"bob~1/t#1","topic":"t"}\n'
    for life in (9, 10):
        (tmp_path / f"ann.{life}.jsonl").write_bytes(line * 3)

    first = ends_of(tmp_path, {}, most=2 * len(line))
    assert first == {"ann.9.jsonl": 2 * len(line)}
    assert ends_of(tmp_path, first, most=2 * len(line)) == {"ann.9.jsonl": 3 * len(line), "ann.10.jsonl": 2 * len(line)}


async def _looked_on(run: Path, count: int) -> None:
    """Two observers at two brokers, while somebody who keeps no journal publishes."""
    async with cluster(2) as brokers, connect(brokers.addresses, "ann") as ann:
        observers = Observers(run, Connection(tuple(brokers.addresses)), [">"])
        await asyncio.to_thread(observers.start)
        for number in range(count):
            ann.publish_soon("a.t", b"%d" % number, guarantee="total", key="k")
            if number % 20 == 19:
                await ann.flush()
        await ann.publish("a.t", b"", ack="delivered")
        observers.check()
        await asyncio.to_thread(observers.stop)


def test_observers_at_brokers_see_what_is_delivered_there(tmp_path: Path) -> None:
    run_async(lambda: _looked_on(tmp_path, 100))
    watch = OrderWatch(patience=0)
    assert _fed(watch, tmp_path) == []
    assert watch.counts["delivered"] == 202


def test_observers_raise_what_a_mutant_does_to_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victims: list[str] = []

    def misled(self: Deliveries, packet: Entries, whole: Any = Deliveries.entries) -> None:
        victims.append(self.session.origin)
        if self.session.origin == victims[0]:
            packet = msgspec.structs.replace(packet, entries=tuple(reversed(packet.entries)))
        whole(self, packet)

    monkeypatch.setattr(Deliveries, "entries", misled)
    run_async(lambda: _looked_on(tmp_path, 100))
    found = _fed(OrderWatch(patience=0), tmp_path)

    assert "total" in {alarm.order for alarm in found}
    assert len({alarm.node for alarm in found if alarm.order == "fifo"}) <= 1


def test_pages_of_an_observer_that_were_read_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "_PAGE_BYTES", 2000)
    run_async(lambda: _looked_on(tmp_path, 100))
    directory = tmp_path / "journals"
    before = sorted(path.name for path in directory.iterdir())
    ends = ends_of(directory, {}, most=1 << 30)

    JournalsReader(directory).commit(ends)
    assert sorted(path.name for path in directory.iterdir()) == before
    JournalsReader(directory, remove=True).commit({name: end - 1 for name, end in ends.items()})
    assert sorted(path.name for path in directory.iterdir()) == before
    JournalsReader(directory, remove=True).commit(ends)

    left = sorted(path.name for path in directory.iterdir())
    assert len(before) > 2
    assert len(left) == 2
    assert sorted(ends_of(directory, ends, most=1 << 30)) == left


def test_observers_that_find_no_broker_say_so(tmp_path: Path) -> None:
    observers = Observers(tmp_path, Connection(("127.0.0.1:1",), timeout_s=0.2), [">"])
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
        observers.start()
    observers.stop()

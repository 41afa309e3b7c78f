"""Nodes over TCP that die at any instant and go on from what their disk has."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.net.log.files import Disk
from ordercast.net.nodes.node import NodeHost, NodePlace
from ordercast.net.nodes.replay import ToldEvents, told_by
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.nodes.state_log import StateLog, belongs_to
from ordercast.net.supervise.process import ProcessLayout
from ordercast.protocols import lookup
from ordercast.scenario.model import LineGraph, OpenLoad, Scenario
from ordercast.trace.journal import Journal, read_journal
from tests.support.loop import run_async, until
from tests.support.net import CLUSTER, TOKEN, Inbox, closing

PATIENT = NodeSettings(heartbeat_ms=500, suspect_ms=20_000, reconnect_ms=2, reconnect_max_ms=50)
TOPIC = "t0"
A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")


class Nodes:
    """Nodes of a line, each with a journal and a log under one directory."""

    def __init__(self, directory: Path, count: int, protocol: str = "locamu", settings: NodeSettings = PATIENT) -> None:
        scenario = Scenario(
            name="line",
            overlay=LineGraph(nodes=count),
            protocol=protocol,
            duration_ms=1,
            workload=[OpenLoad(rate_per_s=1)],
        )
        self.info = lookup(protocol)
        self.layout = ProcessLayout(scenario, self.info, 0)
        self.settings = settings
        self.directory = directory

    def state(self, node: NodeId) -> Path:
        return self.directory / "states" / node

    def journals(self, node: NodeId) -> list[Path]:
        return sorted((self.directory / "journals").glob(f"{node}.*"))

    def host(
        self, node: NodeId, life: int = 0, *, state: Path | None = None, told: ToldEvents | None = None,
        disk: Camera | None = None,
    ) -> NodeHost:  # fmt: skip
        place, options = self.layout.place(node, 0), self.layout.options
        log = StateLog(
            state or self.state(node), belongs_to(place, self.info, options), disk=disk,
            fsync=self.settings.state_fsync, least_bytes=self.settings.snapshot_bytes,
        )  # fmt: skip
        told = told or told_by(self.journals(node))
        (self.directory / "journals").mkdir(exist_ok=True)
        journal = FilmedJournal(self.directory / "journals" / f"{node}.{life}", packets=False)
        journal.camera = disk
        net = NodePlace(CLUSTER, TOKEN, life, since=0 if life else None)
        return NodeHost(place, self.info, options, net, settings=self.settings, journal=journal, log=log, told=told)

    async def start(self, *hosts: NodeHost) -> None:
        """Every one of them dials those after it."""
        addresses = {host.node: await host.listen() for host in hosts}
        order = list(addresses)
        for i, host in enumerate(hosts):
            await host.start({peer: addresses[peer] for peer in order[i + 1 :] if peer in host.place.neighbours})


def told_events(journals: Iterable[Path]) -> list[tuple[str, str | None]]:
    rows = [row for path in journals for row in read_journal(path)]
    return [(row.kind, row.msg) for row in rows if row.kind in ("publish", "deliver")]


class Camera(Disk):
    """Keeps what the disk had right after each write to the log or the journal, as a process that dies leaves it."""

    def __init__(self, source: Path, pictures: Path) -> None:
        self.count = 0
        self._source = source
        self._pictures = pictures

    def write(self, file: int, data: bytes) -> None:
        super().write(file, data)
        self.take()

    def take(self) -> None:
        self.count += 1
        shutil.copytree(self._source, self._pictures / f"{self.count:04d}")


class FilmedJournal(Journal):
    camera: Camera | None = None

    def flush(self) -> None:
        super().flush()
        if self.camera is not None:
            self.camera.take()


@pytest.mark.parametrize("snapshot_bytes", [1 << 22, 400])
@pytest.mark.parametrize("protocol", ["locamu", "fifo", "causal-barriers"])
def test_whenever_a_node_dies_every_event_is_told_once(protocol: str, snapshot_bytes: int, tmp_path: Path) -> None:
    """Killed right after any write: the log knows, and neither the journal nor the application nor anybody else."""
    settings = NodeSettings(suspect_ms=20_000, snapshot_bytes=snapshot_bytes)
    count = 3 if protocol == "locamu" else 2  # It needs a path of two hops; nobody need be at its end.
    nodes = Nodes(tmp_path / "live", count, protocol, settings)
    pictures = tmp_path / "pictures"
    pictures.mkdir()

    async def live() -> list[str]:
        nodes.directory.mkdir()
        a = nodes.host(A, disk=Camera(nodes.directory, pictures))
        b = nodes.host(B)
        heard = Inbox(a)
        async with closing(a, b):
            await nodes.start(a, b)
            for i in range(6):
                await asyncio.gather(a.publish(TOPIC, b"a%d" % i), b.publish(TOPIC, b"b%d" % i))
            await until(lambda: len(heard.messages) == 12)
        return [message.id for message in heard.messages]

    everything = run_async(live)
    full = told_events(nodes.journals(A))
    taken = sorted(pictures.iterdir())
    assert len(taken) > 10

    async def again(picture: Path) -> None:
        before = told_events(sorted((picture / "journals").glob("n0.*")))
        later = Nodes(picture, count, protocol, settings)
        host = later.host(A, 1)
        heard = Inbox(host)
        indices: list[int] = []
        host.delivery_watchers.append(lambda host, _: indices.append(host.handed_over))
        async with closing(host):
            await later.start(host)
            await asyncio.sleep(0)
        after = told_events(later.journals(A))
        assert after == full[: len(after)], "each once, in the order in which it happened"
        assert len(after) >= len(before)
        assert host.published == sum(kind == "publish" for kind, _ in after)
        deliveries = sum(kind == "deliver" for kind, _ in before)
        assert [message.id for message in heard.messages] == everything[deliveries : deliveries + len(heard.messages)]
        assert indices == list(range(deliveries + 1, host.delivered + 1))

    for picture in taken:
        run_async(lambda picture=picture: again(picture))  # type: ignore[misc]


def test_nothing_is_heard_of_before_it_is_written(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)

    def written(payload: bytes) -> bool:
        return any(payload in path.read_bytes() for path in nodes.state(A).glob("*.log"))

    async def main() -> None:
        a, b = nodes.host(A), nodes.host(B)
        checks: list[bool] = []
        a.delivery_watchers.append(lambda _, message: checks.append(written(message.payload)))
        b.delivery_watchers.append(lambda _, message: checks.append(written(message.payload)))
        async with closing(a, b):
            await nodes.start(a, b)
            for i in range(20):
                message = await a.publish(TOPIC, b"unmistakable %d" % i)
                assert written(message.payload)
            await until(lambda: len(checks) == 40)
        assert all(checks)

    run_async(main)


def test_a_watcher_never_hears_of_what_a_crash_could_undo(tmp_path: Path) -> None:
    """Much happens between the end of a turn and the moment when the application hears of it."""
    nodes = Nodes(tmp_path, 3)

    async def main() -> None:
        a, b = nodes.host(A), nodes.host(B)
        early: list[str] = []

        def check(_: NodeHost, message: Message) -> None:
            if not any(message.payload in path.read_bytes() for path in nodes.state(A).glob("*.log")):
                early.append(message.id)

        async def publish(host: NodeHost, name: str) -> None:
            for i in range(40):
                await host.publish(TOPIC, b"unmistakable %s %d;" % (name.encode(), i))

        a.delivery_watchers.append(check)
        inbox = Inbox(a)
        async with closing(a, b):
            await nodes.start(a, b)
            await asyncio.gather(*(publish(host, f"{host.node}.{i}") for host in (a, b) for i in range(4)))
            await until(lambda: len(inbox.messages) == 320)
        assert early == []

    run_async(main)


class FullDisk(Camera):
    """Full in the middle of the next write, once; then there is room again."""

    def __init__(self) -> None:
        self.is_full = False

    def write(self, file: int, data: bytes) -> None:
        if self.is_full:
            self.is_full = False
            Disk.write(self, file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Disk.write(self, file, data)

    def take(self) -> None:
        """No pictures."""


def test_a_node_whose_disk_is_full_stops_and_nobody_hears_of_what_it_could_not_write(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)

    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        disk = FullDisk()
        a, b = nodes.host(A, disk=disk), nodes.host(B)
        own, others = Inbox(a), Inbox(b)
        async with closing(a, b):
            await nodes.start(a, b)
            await a.publish(TOPIC, b"one")
            await until(lambda: others.payloads == [b"one"])
            disk.is_full = True
            with pytest.raises(ConnectionError, match=r"n0 was stopped: .*No space left on device"):
                await a.publish(TOPIC, b"two")
            assert str(a.failure) in str(reported[0]["exception"])
            with pytest.raises(ConnectionError, match="n0 is stopped"):
                await a.publish(TOPIC, b"three")
            with pytest.raises(ConnectionError, match="n0 is stopped"):
                await a.submit(TOPIC, b"four")
            await until(lambda: not b.neighbours.channels[A].connected)
            await asyncio.sleep(0.05)
        assert len(reported) == 1, "said once"
        assert own.payloads == others.payloads == [b"one"]
        again = nodes.host(A, 1)
        async with closing(again):
            await nodes.start(again)
            assert (await again.publish(TOPIC, b"two again")).id == "n0#2"

    run_async(main)


def test_a_state_that_could_not_be_read_back_never_replaces_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A protocol of a user's own may keep anything."""
    (tmp_path / "mine.py").write_text(UNREADABLE)
    nodes = Nodes(tmp_path, 1, f"{tmp_path / 'mine.py'}:MINE", NodeSettings(snapshot_bytes=2_000))

    async def main() -> None:
        host = nodes.host(A)
        async with closing(host):
            await nodes.start(host)
            for _ in range(40):
                await host.publish(TOPIC, bytes(100))
        assert [path.name for path in nodes.state(A).glob("*.log")] == ["00000001.log"]
        again = nodes.host(A, 1)
        async with closing(again):
            assert (again.published, again.delivered) == (40, 40)

    run_async(main)
    said = [record for record in caplog.records if "cannot be read back" in record.getMessage()]
    assert 1 <= len(said) <= 3, "not once a turn"
    assert "http.HTTPStatus is no part of a machine" in said[0].facts["reason"]  # type: ignore[attr-defined]


UNREADABLE = """
from http import HTTPStatus
import msgspec
from ordercast.core.machine import Machine
from ordercast.protocols import CATALOGUE

class Mine(Machine):
    durable = ("status",)

    def __init__(self, place, options):
        self.status = HTTPStatus.CONTINUE

    def on_publish(self, message, out):
        self.status = HTTPStatus.OK
        out.deliver(message)

MINE = msgspec.structs.replace(CATALOGUE["unordered"], name="mine", build=Mine)
"""


def test_a_node_moves_with_a_copy_of_its_state(tmp_path: Path) -> None:
    """Another directory, another port: the logical node is its state."""
    nodes = Nodes(tmp_path, 3)

    async def main() -> None:
        a, b, c = (nodes.host(node) for node in (A, B, C))
        inboxes = [Inbox(host) for host in (a, b, c)]
        await nodes.start(a, b, c)
        for host in (a, b, c):
            await host.publish(TOPIC, b"before")
        await until(lambda: all(len(inbox.messages) == 3 for inbox in inboxes))
        port = b.address[1]
        await b.close()
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(nodes.state(B), elsewhere)
        shutil.rmtree(nodes.state(B))
        while_away = a.submit(TOPIC, b"while away")
        log = StateLog(elsewhere, belongs_to(b.place, nodes.info, nodes.layout.options))
        log.close()
        assert log.lives == 1, "the state itself knows what the next life is called"
        moved = nodes.host(B, log.lives, state=elsewhere)
        arrived = Inbox(moved)
        async with closing(a, c, moved):
            address = await moved.listen()
            assert address[1] != port
            await moved.start({C: c.address})
            a.neighbours.dial(B, address)
            await while_away
            own = await moved.publish(TOPIC, b"after")
            assert own.id == "n1#2"
            await until(lambda: len(arrived.messages) == 2 and len(inboxes[2].messages) == 5)
        assert sorted(arrived.payloads) == [b"after", b"while away"]
        for inbox in (inboxes[0], inboxes[2]):
            assert len({message.id for message in inbox.messages}) == len(inbox.messages) == 5
        for node in (A, C):
            kinds = [row.kind for path in nodes.journals(node) for row in read_journal(path)]
            assert "suspect" not in kinds, "who is back with its state was never a stranger"

    run_async(main)


def test_a_log_stays_small_however_long_a_node_lives(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1, settings=NodeSettings(snapshot_bytes=5_000, state_fsync="always"))

    async def main() -> None:
        host = nodes.host(A)
        async with closing(host):
            await nodes.start(host)
            for _ in range(300):
                await host.publish(TOPIC, bytes(100))
        size = sum(path.stat().st_size for path in nodes.state(A).iterdir())
        assert size < 20_000
        again = nodes.host(A, 1)
        async with closing(again):
            await nodes.start(again)
            assert (await again.publish(TOPIC, b"")).id == "n0#301"
            assert again.delivered == 301

    run_async(main)


def test_deliveries_that_the_application_lacks_come_again_and_others_do_not(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)

    async def life(
        number: int, told: ToldEvents | None, work: Callable[[NodeHost], object] | None = None
    ) -> list[bytes]:
        host = nodes.host(A, number, told=told)
        inbox = Inbox(host)
        async with closing(host):
            await nodes.start(host)
            if work is not None:
                work(host)
            await asyncio.sleep(0.01)
        return inbox.payloads

    def publish(host: NodeHost) -> None:
        for i in range(5):
            host.submit(TOPIC, b"%d" % i)

    assert len(run_async(lambda: life(0, None, publish))) == 5
    assert run_async(lambda: life(1, ToldEvents(events=10, deliveries=3))) == [b"3", b"4"]
    assert run_async(lambda: life(2, ToldEvents(events=10, deliveries=5))) == []
    assert len(run_async(lambda: life(3, ToldEvents(events=10, deliveries=0)))) == 5
    with pytest.raises(UsageError, match="has taken over 6 deliveries, and the state knows of 5 only"):
        run_async(lambda: life(4, ToldEvents(events=10, deliveries=6)))


def test_the_state_of_another_node_is_refused_before_anything_happens(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)

    async def main() -> None:
        a = nodes.host(A)
        await nodes.start(a)
        await a.close()
        with pytest.raises(UsageError, match="node is n0 there and n1 here"):
            nodes.host(B, state=nodes.state(A))

    run_async(main)

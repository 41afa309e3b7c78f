"""A million short sessions on one topic, at a broker without sockets: memory, time, log and restart.

    python benchmarks/pubsub_million.py [--sessions 1000000] [--kept] [--topics 0]

The broker is the class that `ordercast broker` runs, with its log on disk (without fsync). Connections, clients and
time are played by this script, which says what `ordercast pub` says: attach, join the topic to publish, one message of
16 bytes, goodbye. One member receives along and reports what it has. A thousand sessions come a second, as the broker
sees it. `pubsub_sessions.py` does the same with real clients and processes; the bytes a session of both must agree.

`--kept`: the topic is kept, without a limit; the lines have the characters of `str(position)` and the bytes of the
archive's manifest too, and the restart opens the archive.

`--topics N`: instead one client publishes once on each of N topics and stays; memory and a restart with all of them,
then what is left when it has said goodbye.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import msgspec
from pubsub_memory import resident_bytes

from ordercast.api import Position
from ordercast.broker.node import Broker
from ordercast.broker.place import BrokerPlace
from ordercast.core.ids import NodeId, Origin, Topic, ticketed
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.pubsub.client_packets import (
    WANTED,
    Attach,
    Entries,
    Goodbye,
    Live,
    Resume,
    StableReport,
    Subscribe,
    Ticket,
    TopicState,
)
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings

TOPIC = Topic("news")
PAYLOAD = bytes(16)
STEP_NS = 1_000_000
REPORT_EVERY = 100
READER: Connection = 1
TENTHS = 10


class PlayedWires:
    """Time, timers and connections of one broker. What it sends is looked at once and forgotten."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.timers: dict[Hashable, int] = {}
        self.said: dict[type[Packet], Packet] = {}
        """The last packet of each kind to the session that is there."""
        self.taken: dict[Origin, int] = {}
        """What the reader was given since its last report."""
        self.counts: dict[str, int] = {}

    def open(self, address: str) -> Connection:
        raise AssertionError(f"a broker alone dials nobody, not {address}")

    def send(self, connection: Connection, packet: Packet) -> None:
        if connection == READER:
            if isinstance(packet, Entries):
                self.taken.update({entry.origin: entry.number for entry in packet.entries})
        else:
            self.said[type(packet)] = packet

    def send_all(self, connections: Iterable[Connection], packet: Packet, but: Connection = 0) -> None:
        for connection in connections:
            if connection != but:
                self.send(connection, packet)

    def close(self, connection: Connection, reason: str = "") -> None:
        raise AssertionError(f"connection {connection} closed: {reason}")

    def cast(self, address: str, packet: Packet) -> None:
        raise AssertionError(f"a broker casts nothing, not {packet} to {address}")

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.timers[name] = self.now_ns + delay_ns

    def cancel_timer(self, name: Hashable) -> None:
        self.timers.pop(name, None)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        pass

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by


class Stage:
    """One broker with a data directory, its reader, and the sessions that come and go."""

    def __init__(self, data: Path, life: int, topics: int = 10_000, *, kept: bool = False) -> None:
        self.wires = PlayedWires()
        self.files = ArchiveFiles(data, fsync="never") if kept else None
        keep = (KeepRule(TOPIC, copies=1),) if kept else ()
        self.ledger = DiskBrokerLedger(data, fsync="never")
        place = BrokerPlace(NodeId("b0"), "127.0.0.1:1", {NodeId("b0"): "127.0.0.1:1"}, None, life, keep=keep)
        settings = BrokerSettings(topics_per_client=topics, topics_limit=2 * topics)
        self.broker = Broker(place, settings, self.wires, self.ledger, self.ledger.saved(), self.files)
        self.sessions = 0
        self.broker.on_start()
        self._end_turn()

    def _end_turn(self) -> None:
        self.broker.on_turn_end()
        if self.files is not None:
            self.files.flush()
        self.ledger.flush()

    def _say(self, connection: Connection, *packets: Packet) -> None:
        self.broker.on_packets(connection, packets)
        self._end_turn()

    def pass_time(self, ns: int) -> None:
        """Fires what is due on the way."""
        until = self.wires.now_ns + ns
        while True:
            due = min(self.wires.timers.items(), key=lambda timer: timer[1], default=None)
            if due is None or due[1] > until:
                break
            del self.wires.timers[due[0]]
            self.wires.now_ns = max(self.wires.now_ns, due[1])
            self.broker.on_timer(due[0])
            self._end_turn()
        self.wires.now_ns = until

    def _join(self, connection: Connection, name: str, *, receives: bool) -> Origin:
        """What a client says until it is live; gives its origin."""
        self.wires.said = {}
        self.broker.on_opened(connection, Peer("client", name, 1))
        self._say(connection, Attach(1, WANTED))
        return self._take(connection, name, TOPIC, receives=receives)

    def _take(self, connection: Connection, name: str, topic: Topic, *, receives: bool) -> Origin:
        said = self.wires.said
        self._say(connection, Subscribe(topic, receives=receives))
        state = said.get(TopicState)
        life = state.life if isinstance(state, TopicState) else 0
        self._say(connection, Resume(topic, 1, {}, {}, (), receives=receives, life=life))
        ticket = said.get(Ticket)
        assert connection == READER or isinstance(said.get(Live), Live), "not live"
        return ticketed(Origin(f"{name}~1"), ticket.ticket if isinstance(ticket, Ticket) else "")

    def reader(self) -> None:
        self._join(READER, "reader", receives=True)

    def session(self) -> None:
        self.sessions += 1
        connection, name = READER + self.sessions, f"c{self.sessions:x}"
        origin = self._join(connection, name, receives=False)
        entry = Publication(origin=origin, number=1, topic=TOPIC, payload=PAYLOAD, keys=("",))
        self._say(connection, Entries(TOPIC, (entry,)))
        self._say(connection, Goodbye())
        self.broker.on_closed(connection, gone=False)
        self._end_turn()
        if self.sessions % REPORT_EVERY == 0:
            self.report()
        self.pass_time(STEP_NS)

    def report(self) -> None:
        """Of the reader."""
        taken, self.wires.taken = self.wires.taken, {}
        self._say(READER, StableReport(TOPIC, taken))

    def many_topics(self, count: int) -> Connection:
        """One client that takes part in all of them, and has published once on each."""
        connection = READER + 1
        origin = self._join(connection, "many", receives=False)
        for number in range(count):
            topic = Topic(f"many.{number}")
            self._take(connection, "many", topic, receives=False)
            entry = Publication(origin=origin, number=1, topic=topic, payload=PAYLOAD, keys=("",))
            self._say(connection, Entries(topic, (entry,)))
        return connection

    def goodbye(self, connection: Connection) -> None:
        self._say(connection, Goodbye())
        self.broker.on_closed(connection, gone=False)
        self._end_turn()
        self.pass_time(int(BrokerSettings().fold_ms * 5e6))

    def kept(self) -> str:
        """What a position and the manifest of the archive take now; nothing where nothing is kept."""
        if self.files is None:
            return ""
        archive = self.broker.topics.kept.of(TOPIC)
        position, manifest = len(str(Position({TOPIC: archive.end}))), len(msgspec.msgpack.encode(archive.manifest))
        segments = len(archive.manifest.segments)
        return f"  position {position} characters, manifest {manifest} bytes with {segments} segments"

    def close(self) -> None:
        if self.files is not None:
            self.files.close()
        self.ledger.close()


def crowded(data: Path, topics: int) -> None:
    """Many topics at once: what one takes, how long a restart with them takes, and what is left of them."""
    stage = Stage(data, 0, topics)
    empty, began = resident_bytes(os.getpid()), time.process_time()
    connection = stage.many_topics(topics)
    spent, full = time.process_time() - began, resident_bytes(os.getpid()) - empty
    print(f"{topics} topics: {spent / topics * 1e3:.3f} ms of CPU and {full / topics:.0f} bytes each", flush=True)
    stage.ledger.sync()
    began = time.process_time()
    again = Stage(data, 1, topics)
    print(f"started again in {time.process_time() - began:.2f} s of CPU, with {len(again.broker.topics.book.joined)}")
    again.ledger.abandon()
    stage.goodbye(connection)
    left = len(stage.broker.topics.nodes), len(stage.broker.topics.book.joined)
    print(f"when its client has gone: {left[0]} topics, {left[1]} of them with members on record", flush=True)


def aged(stage: Stage, sessions: int) -> None:
    """The sessions, with a line for every tenth of them, looked at when what had ended is folded."""
    began, before = time.process_time(), resident_bytes(os.getpid())
    for _ in range(TENTHS):
        for _session in range(sessions // TENTHS):
            stage.session()
        stage.report()
        stage.pass_time(int(BrokerSettings().fold_ms * 3e6))
        stage.session()  # With what it published the archive says which sessions were closed before it.
        stage.report()
        stage.pass_time(int(BrokerSettings().stability_ms * 3e6))
        now, memory = time.process_time(), resident_bytes(os.getpid())
        spent, grown = (now - began) / (sessions // TENTHS), (memory - before) / (sessions // TENTHS)
        folded = stage.wires.counts.get("sessions_folded", 0)
        print(
            f"{stage.sessions:9} sessions  {spent * 1e3:6.3f} ms of CPU each  {memory / 2**20:7.1f} MiB"
            f"  {grown:+8.1f} bytes each  {folded} folded{stage.kept()}", flush=True,
        )  # fmt: skip
        began, before = time.process_time(), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--kept", action="store_true", help="the topic is kept")
    parser.add_argument("--topics", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        if options.topics:
            crowded(data, options.topics)
            return
        stage = Stage(data, 0, kept=options.kept)
        stage.reader()
        aged(stage, options.sessions)
        stage.close()
        written = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
        began = time.perf_counter()
        again = Stage(data, 1, kept=options.kept)
        again.kept()
        read_s = time.perf_counter() - began
    book = again.broker.topics.book
    intervals = sum(len(bounds) // 2 for bounds in book.closed.summary().values())
    print(
        f"log on disk: {written / 2**20:.1f} MiB; started again in {read_s:.2f} s: {len(book.ended)} ends of sessions"
    )
    print(f"and {intervals} intervals of closed ones are known")


if __name__ == "__main__":
    main()

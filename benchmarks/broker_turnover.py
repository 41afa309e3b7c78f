"""Brokers that join, serve one session and leave, one after the other: what they leave behind at those that stay.

    python benchmarks/broker_turnover.py [--brokers 10000] [--processes 0]

Three brokers stay; the others come and go under virtual time, with the classes that `ordercast broker` runs. Each
newcomer gets a client that publishes once and says goodbye, so that it has given out a ticket; then it leaves in good
order. Told is, for every tenth and after some minutes of rest, the memory of one of those that stay (its objects,
counted one by one), the bytes that it would tell a new neighbour about brokers and sessions, and the CPU time of a
coming and going, all brokers together.

`--processes N`: real processes instead, joining by `--parent` and stopped in good order; the memory of one that stays.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from pubsub_cluster import brokers, chain, pids
from pubsub_memory import resident_bytes
from pubsub_peers import free_port

from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.broker.node import BROKER_CODEC, Broker
from ordercast.broker.place import BrokerPlace
from ordercast.core.ids import NodeId, Origin, Topic, ticketed
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.pubsub.client_packets import (
    WANTED,
    Attach,
    Entries,
    Goodbye,
    Live,
    Resume,
    Subscribe,
    Ticket,
    TopicState,
)
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import DirectoryWave
from ordercast.sim.clock import ns
from ordercast.sim.connections import Processes, Timing, same_everywhere

TOPIC = Topic("news")
STAY = {"b0": None, "b1": "b0", "b2": "b0"}
TENTHS = 10


class OneMessage(ProcessMachine):
    """A client as short as `ordercast pub`."""

    def __init__(self, wires: Wires, name: str, address: str) -> None:
        self.wires = wires
        self.address = address
        self.origin = Origin(f"{name}~0")
        self.done = False

    def on_start(self) -> None:
        self.edge = self.wires.open(self.address)
        self.wires.send(self.edge, Attach(1, WANTED))
        self.wires.send(self.edge, Subscribe(TOPIC, receives=False))

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            match packet:
                case Ticket(ticket):
                    self.origin = ticketed(self.origin, ticket)
                case TopicState():
                    self.wires.send(connection, Resume(TOPIC, 1, {}, {}, (), receives=False, life=packet.life))
                case Live():
                    entry = Publication(origin=self.origin, number=1, topic=TOPIC, payload=b"x", keys=("",))
                    self.wires.send(connection, Entries(TOPIC, (entry,)))
                    self.wires.send(connection, Goodbye())
                    self.done = True


class Stage:
    """The brokers that stay, and one that comes and goes."""

    def __init__(self) -> None:
        self.world = Processes(0, same_everywhere(1.0), Timing(detection_ms=2), codec=BROKER_CODEC)
        self.directory = {NodeId(node): f"{node}:1" for node in STAY}
        for node, parent in STAY.items():
            self._add(node, parent, ())
            self.world.start(node)
        self.run_until(lambda: all(not self.broker(node).tree.seeking for node in STAY))

    def _add(self, node: str, parent: str | None, seeds: tuple[str, ...]) -> None:
        def build(wires: Wires, peer: Peer) -> Broker:
            known = {NodeId(node): f"{node}:1"} if seeds else dict(self.directory)
            place = BrokerPlace(NodeId(node), f"{node}:1", known, NodeId(parent) if parent else None, peer.life, seeds)
            return Broker(place, BrokerSettings(), wires, MemoryBrokerLedger())

        self.world.add(node, "broker", build, address=f"{node}:1")

    def broker(self, node: str) -> Broker:
        machine = self.world.machine(node)
        assert isinstance(machine, Broker)
        return machine

    def run_until(self, done: object, limit_ms: int = 120_000) -> None:
        """Virtual time passes until the function says so."""
        end = self.world.clock.now + ns(limit_ms)
        while not done():  # type: ignore[operator]
            assert self.world.clock.now < end, "it takes too long"
            self.world.clock.run_until(self.world.clock.now + ns(50))

    def come_and_go(self, number: int) -> None:
        node, client = f"x{number}", f"c{number}"
        self._add(node, None, (f"b{number % 3}:1",))
        self.world.start(node)
        self.run_until(lambda: self.broker(node).tree.member)
        self.world.add(client, "client", lambda wires, _: OneMessage(wires, client, f"{node}:1"))
        self.world.start(client)
        self.run_until(lambda: self.world.machine(client).done)  # type: ignore[union-attr]
        self.world.act(node, self.broker(node).tree.leave)
        self.run_until(lambda: self.broker(node).tree.left)
        self.world.stop(client)
        self.world.stop(node)
        self.run_until(lambda: NodeId(node) not in self.broker("b0").tree.directory)

    def rest(self) -> None:
        """Long enough for rounds of folding in which the tree stands still, and for departures to be forgotten."""
        settings = BrokerSettings()
        self.world.clock.run_until(self.world.clock.now + ns(12 * settings.member_timeout_ms + 4 * settings.fold_ms))


def size_of(root: object) -> int:
    """Bytes of everything that the object refers to, wires and the world behind them left out."""
    seen: set[int] = set()
    todo: deque[object] = deque([root])
    total = 0
    while todo:
        one = todo.popleft()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            todo.extend([*one.keys(), *one.values()])
        elif isinstance(one, (list, tuple, set, frozenset, deque)):
            todo.extend(one)
        else:
            inside = vars(one) if hasattr(one, "__dict__") else {}
            todo.extend(value for name, value in inside.items() if name != "wires")
            todo.extend(getattr(one, name) for name in getattr(one, "__struct_fields__", ()))
    return total


def told(broker: Broker) -> int:
    """Bytes that a new child is told about brokers and sessions."""
    return sum(
        len(BROKER_CODEC.encode(packet))
        for packet in (DirectoryWave(broker.tree.joining.known()), broker.topics.news.everything())
    )


def simulated(count: int) -> None:
    stage = Stage()
    for tenth in range(TENTHS):
        began = time.process_time()
        for number in range(count // TENTHS):
            stage.come_and_go(tenth * (count // TENTHS) + number)
        spent = (time.process_time() - began) / (count // TENTHS)
        stage.rest()
        broker = stage.broker("b1")
        print(
            f"{(tenth + 1) * (count // TENTHS):7} came and went  {spent * 1e3:6.1f} ms of CPU each  memory of b1"
            f" {size_of(broker) / 1024:8.0f} KiB  a neighbour is told {told(broker) / 1024:7.1f} KiB"
            f"  {len(broker.tree.directory)} in the directory", flush=True,
        )  # fmt: skip


def real(count: int) -> None:
    """Processes: each joins by an address and is stopped in good order."""
    ordercast = Path(sys.executable).with_name("ordercast")
    with brokers(chain(2)) as (cluster, addresses):
        (stays, _) = pids(cluster)
        for number in range(count + 1):
            if number in {1, count // 2, count}:
                print(f"{number:5} came and went  {resident_bytes(stays) / 2**20:.2f} MiB", flush=True)
            where = ["--parent", addresses[number % 2], "--listen", f"127.0.0.1:{free_port()}"]
            command = [str(ordercast), "broker", "--id", f"x{number}", "--cluster", cluster.config.cluster, *where]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
            process.wait(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=0)
    options = parser.parse_args()
    if options.processes:
        real(options.processes)
    else:
        simulated(options.brokers)


if __name__ == "__main__":
    main()

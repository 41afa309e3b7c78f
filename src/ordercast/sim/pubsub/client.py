"""A simulated client: the application above the client machine, its lives, and its rows in the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ordercast.client.history import EARLIEST, PastStart
from ordercast.client.machine import ClientMachine
from ordercast.client.membership import OUT
from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.client.settings import ClientSettings
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Guarantee
from ordercast.core.process import Peer, Wires
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.pubsub.settings import BrokerSettings
from ordercast.scenario.brokers import BrokerClient
from ordercast.sim.clock import Scheduler, ns
from ordercast.sim.connections import Processes
from ordercast.sim.pubsub.parts import Parts

_PATIENCE = ns(50)
"""How often a client that leaves looks whether all it published has come back."""


class ClientPort(Protocol):
    """Port to the world of a run, for one client."""

    processes: Processes
    clock: Scheduler
    settings: BrokerSettings
    parts: Parts
    complaints: list[str]

    def published(self, client: SimClient, publication: Publication) -> None: ...

    def delivered(self, client: SimClient, entries: Sequence[Publication]) -> None: ...

    def acknowledged(self, client: SimClient, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None: ...

    def follows(self, client: SimClient, pattern: str, topics: tuple[Topic, ...]) -> None: ...

    def left(self, client: SimClient, topic: Topic) -> None: ...

    def gone(self, client: SimClient) -> None: ...


class SimClient:
    """Publishes what the workload says and writes down what it is given; implements ClientApp and Publisher."""

    def __init__(self, world: ClientPort, name: NodeId, spec: BrokerClient, addresses: tuple[str, ...]) -> None:
        self.world = world
        self.node = name
        self.spec = spec
        self.addresses = addresses
        self.session = 0
        self.disk = MemoryClientLedger(origin_of(self.node, self.session))
        self.resumes = False
        """The next life goes on with the same session."""
        self.leaving = False
        self.published = 0
        self.delivered = 0
        self.lost_session = ""
        """Why the broker tree has given its session up."""
        self.read_back: dict[int, list[Publication]] = {}
        """What was read of kept topics without a subscription, by the number of the read."""
        self.read_ends: dict[int, str] = {}
        self.cuts: dict[int, dict[Topic, Vector]] = {}
        """Cuts across topics that the tree has told, by the number of the question."""
        self.process = world.processes.add(name, "client", self._build)

    def _build(self, wires: Wires, _peer: Peer) -> ClientMachine:
        settings = self.world.settings
        saved = self.disk.saved() if self.resumes else None
        mine = ClientSettings(
            request_ms=settings.request_ms, retry_ms=settings.retry_ms, stability_ms=settings.stability_ms
        )
        return self.world.parts.client(self.node, self.session, self.addresses, wires, self, mine, saved, self.disk)

    @property
    def alive(self) -> bool:
        """Whether its application can still publish."""
        return self.process.life is not None and not self.leaving and not self.lost_session

    @property
    def machine(self) -> ClientMachine | None:
        return None if self.process.life is None else self.process.life.machine  # type: ignore[return-value]

    # Its lives

    def start(self, *, state_kept: bool = False) -> None:
        """Begin; again after a crash as the same session, or without its state as a new one."""
        if self.process.starts and not state_kept:
            self.session += 1
            self.disk = MemoryClientLedger(origin_of(self.node, self.session))
        self.resumes = state_kept
        self.lost_session = ""
        self.world.processes.start(self.node, life=self.session)
        if not state_kept:
            for topic in self.spec.topics:
                self.subscribe(Topic(topic), self.spec.start)
            for pattern in self.spec.filters:
                self.watch(pattern, self.spec.start)

    def leave(self) -> None:
        """Take leave of everything, then go once nothing that it published is on its way any more."""
        self.leaving = True
        machine = self.machine
        if machine is not None:
            for pattern in sorted(machine.interests.watched):
                self.world.processes.act(self.node, machine.unwatch, pattern)
            for topic in sorted(machine.topics):
                self.unsubscribe(topic)
            self.world.clock.at(self.world.clock.now + _PATIENCE, self._go, machine)

    def _go(self, machine: ClientMachine, _: None) -> None:
        if self.machine is not machine:
            return
        if any(membership.outbox or membership.phase != OUT for membership in machine.topics.values()):
            self.world.clock.at(self.world.clock.now + _PATIENCE, self._go, machine)
            return
        self.world.processes.act(self.node, machine.leave)
        self.world.processes.stop(self.node, "left")

    # What its application does

    def publish(
        self, topic: Topic, payload_bytes: int, guarantee: Guarantee, keys: tuple[str, ...], dst: tuple[NodeId, ...],
        told: Callable[[Publication], None] | None = None,
    ) -> None:  # fmt: skip
        if dst:
            raise UsageError("workload: clients of brokers publish on topics, not to destinations")
        self.world.processes.act(self.node, self._publish, topic, payload_bytes, guarantee, keys, told)

    def _publish(
        self, topic: Topic, payload_bytes: int, guarantee: Guarantee, keys: tuple[str, ...],
        told: Callable[[Publication], None] | None,
    ) -> None:  # fmt: skip
        machine = self.machine
        if machine is None or machine.ended:
            return
        number = machine.publish(topic, bytes(payload_bytes), keys, guarantee)
        publication = machine.topics[topic].outbox[number]
        self.published += 1
        self.world.published(self, publication)
        if told is not None:
            told(publication)

    def subscribe(self, topic: Topic, start: str = "now") -> None:
        machine = self.machine
        if machine is None:
            return
        if start == "now":
            self.world.processes.act(self.node, machine.subscribe, topic)
        else:
            begin = partial(machine.subscribe_from, latest_only=start == "last-of-each-key")
            self.world.processes.act(self.node, begin, topic, EARLIEST)

    def watch(self, pattern: str, start: str = "now") -> None:
        machine = self.machine
        if machine is not None:
            past = None if start == "now" else PastStart(EARLIEST, latest_only=start == "last-of-each-key")
            self.world.processes.act(self.node, machine.watch, pattern, past)

    def unsubscribe(self, topic: Topic) -> None:
        machine = self.machine
        if machine is not None:
            self.world.processes.act(self.node, machine.unsubscribe, topic)

    # What its machine tells the application

    def deliver(self, entries: Sequence[Publication]) -> None:
        self.delivered += len(entries)
        self.world.delivered(self, entries)

    def session_lost(self, reason: str, unanswered: Sequence[Publication]) -> None:  # noqa: ARG002
        self.lost_session = reason
        self.world.gone(self)

    def left(self, topic: Topic) -> None:
        self.world.left(self, topic)

    def replaying(self, topic: Topic) -> None:
        """Nothing to do: the past is delivered like everything else."""

    def missed(self, topic: Topic) -> None:
        """A client of the simulator never begins a session with the data of another."""

    def no_history(self, topic: Topic, code: str, cut: Vector) -> None:  # noqa: ARG002
        self.world.complaints.append(f"{self.node}: the history of {topic} is {code}")
        self.world.left(self, topic)

    def history(self, read: int, entries: Sequence[Publication]) -> None:
        self.read_back.setdefault(read, []).extend(entries)
        if self.machine is not None:
            self.machine.read_taken(read, len(entries))

    def history_bounds(self, read: int, since: Vector, until: Vector) -> None:
        """Nothing to do."""

    def history_ended(self, read: int, code: str, cut: Vector) -> None:  # noqa: ARG002
        self.read_ends[read] = code

    def cut_told(self, number: int, cuts: dict[Topic, Vector], why_not: str) -> None:
        if not why_not:
            self.cuts[number] = cuts

    def acknowledged(self, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        self.world.acknowledged(self, topic, level, low, extras)

    def refused(self, topic: Topic, number: int, reason: str) -> None:
        self.world.complaints.append(f"{self.node}: publication {number} on {topic} was refused: {reason}")

    def denied(self, topic: Topic, reason: str) -> None:
        self.world.complaints.append(f"{self.node}: {topic} was denied: {reason}")

    def live(self, topic: Topic) -> None:
        """Nothing to do: the trace has its row from the grant."""

    def watching(self, pattern: str, topics: tuple[Topic, ...]) -> None:
        self.world.follows(self, pattern, topics)

    def kept_found(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None:
        """Nothing to do: no client of a scenario looks."""

    def flow(self, topic: Topic, *, open_: bool) -> None:
        """Nothing to do: publications wait in the outbox."""

    def connected(self, broker: str) -> None:
        """Nothing to do."""

    def disconnected(self, reason: str) -> None:
        """Nothing to do."""

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        """Nothing to do: it tries again by itself."""

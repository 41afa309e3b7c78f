"""Memoised broker and client machines: each state handles each input once, and the result is reused.

A *process* here is a number: a machine in a state, with its armed timers, the connections it has numbered so far and
what its application has seen. Everything that a machine can know is in it, so that the same number met with the same
input at the same time always does the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ordercast.broker.node import BROKER_CODEC, Broker
from ordercast.broker.place import BrokerPlace
from ordercast.client.machine import ClientMachine
from ordercast.client.settings import ClientSettings
from ordercast.core.errors import InvariantError, saying
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine
from ordercast.core.wire import Codec
from ordercast.explore.brokers.scope import BrokerScope, Talk, broker_name, client_name, is_filter
from ordercast.explore.promises.properties import History, Violation
from ordercast.pubsub.publications import Publication

Timers = frozenset[tuple[Hashable, int, bool]]
"""Name, when it runs out, and whether a run comes to rest without it."""

LOST_SESSION = 1 << 20
"""In a history: the tree has given the session up, and owes it nothing more."""


class Open(NamedTuple):
    """Effect: the machine dials an address."""

    connection: Connection
    address: str


class Sent(NamedTuple):
    """The machine sends a packet: its bytes, which can be compared whatever the packet is made of."""

    connection: Connection
    packet: bytes


class Shut(NamedTuple):
    """Effect: the machine closes a connection."""

    connection: Connection
    reason: str


Effect = Open | Sent | Shut


class ProcessStart(NamedTuple):
    """The process begins. Its life tells one without memory from the one before."""

    life: int


class Opened(NamedTuple):
    """A connection is up; 0: one that the other end dialed, and that gets a number now."""

    connection: Connection
    peer: Peer


class Arrived(NamedTuple):
    connection: Connection
    packet: bytes


class Closed(NamedTuple):
    connection: Connection
    gone: bool
    reason: str


class Rings(NamedTuple):
    """A timer of the process runs out."""

    timer: Hashable


class Subscribes(NamedTuple):
    topic: Topic


class Publishes(NamedTuple):
    message: int


Input = ProcessStart | Opened | Arrived | Closed | Rings | Subscribes | Publishes


class ProcessReaction(NamedTuple):
    """A process's reaction to an input: its next state and effects."""

    after: int
    effects: tuple[Effect, ...] = ()
    tells: bool = False
    """Whether its history grew."""
    fault: Violation | None = None


class Surroundings:
    """Wires and application of one machine for the time of one input: what it does is written down."""

    def __init__(self, now_ns: int, connections: int, timers: Timers, codec: Codec) -> None:
        self.now_ns = now_ns
        self.codec = codec
        self.connections = connections
        self.effects: list[Effect] = []
        self.delivered: list[Any] = []
        self.lost = False
        self.complaint = ""
        self._timers = {name: (due, background) for name, due, background in timers}

    @property
    def timers(self) -> Timers:
        return frozenset((name, due, background) for name, (due, background) in self._timers.items())

    # Wires

    def open(self, address: str) -> Connection:
        self.connections += 1
        self.effects.append(Open(self.connections, address))
        return self.connections

    def send(self, connection: Connection, packet: Packet) -> None:
        self.effects.append(Sent(connection, self.codec.encode(packet)))

    def close(self, connection: Connection, reason: str = "") -> None:
        self.effects.append(Shut(connection, reason))

    def cast(self, address: str, packet: Packet) -> None:
        """Brokers and clients never cast."""
        raise InvariantError(f"a {type(packet).__name__} cast to {address}")

    def cast_all(self, addresses: Iterable[str], packet: Packet) -> None:
        for address in addresses:
            self.cast(address, packet)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._timers[name] = (self.now_ns + delay_ns, background)

    def cancel_timer(self, name: Hashable) -> None:
        self._timers.pop(name, None)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Nothing to explore in a note."""

    def count(self, name: str, by: int = 1) -> None:
        """Nor in a counter."""

    # The application of a client

    def deliver(self, entries: Any) -> None:
        self.delivered += entries

    def session_lost(self, _reason: str, _unanswered: Sequence[Publication]) -> None:
        self.lost = True

    def denied(self, topic: Topic, reason: str) -> None:
        self.complaint = f"{topic} was denied: {reason}"

    def refused(self, topic: Topic, number: int, reason: str) -> None:
        self.complaint = f"publication {number} on {topic} was refused: {reason}"

    def __getattr__(self, name: str) -> Any:
        """All else that a machine tells its application changes nothing here."""
        if name.startswith("_"):
            raise AttributeError(name)
        return _ignore


def _ignore(*_arguments: object, **_named: object) -> None:
    pass


class ExploredParts(msgspec.Struct, frozen=True):
    """The machines that are explored; tests put others in their place."""

    broker: type[Broker] = Broker
    client: type[ClientMachine] = ClientMachine


class _Known(NamedTuple):
    owner: int
    machine: ProcessMachine
    timers: Timers
    connections: int
    history: History
    peer: Peer


class ProcessTable:
    """All processes met so far. Brokers come first, then clients; a process that is down is -1."""

    codec: Codec = BROKER_CODEC

    def __init__(self, scope: BrokerScope, talks: tuple[Talk, ...], parts: ExploredParts) -> None:
        self.scope = scope
        self.talks = talks
        self._parts = parts
        self.names = [broker_name(i) for i in range(scope.brokers)]
        self.names += [client_name(i) for i in range(len(scope.members))]
        self.addresses = {f"{name}:1": i for i, name in enumerate(self.names[: scope.brokers])}
        self.known: list[_Known] = []
        self._numbers: dict[Hashable, int] = {}
        self._reactions: dict[tuple[int, int, Input], ProcessReaction] = {}
        self._messages: dict[tuple[str, Topic, int], int] = {}
        self._published: dict[int, tuple[NodeId, int]] = {}
        counts: dict[tuple[int, Topic], int] = {}
        for i, talk in enumerate(talks):
            counts[talk.client, talk.topic] = number = counts.get((talk.client, talk.topic), 0) + 1
            self._messages[client_name(talk.client), talk.topic, number] = i

    @property
    def steps_run(self) -> int:
        """How many inputs the real machines have handled."""
        return len(self._reactions)

    def start(self, owner: int, life: int, now: int) -> ProcessReaction:
        """A process begins a life."""
        wires = Surroundings(now, 0, frozenset(), self.codec)
        name = self.names[owner]
        address = f"{name}:1" if owner < self.scope.brokers else ""
        peer = Peer("broker" if address else "client", name, life, address)
        machine = self._build_broker(owner, life, wires) if address else self._build_client(owner, wires)
        return self._run(owner, machine, wires, (), peer, ProcessStart(life))

    def react(self, process: int, event: Input, now: int) -> ProcessReaction:
        """The process's reaction to the input at that time."""
        key = (process, now, event)
        found = self._reactions.get(key)
        if found is None:
            owner, before, timers, connections, history, peer = self.known[process]
            wires = self.surroundings(now, connections, timers)
            machine = self.copied(before, wires)
            found = self._reactions[key] = self._run(owner, machine, wires, history, peer, event)
        return found

    def surroundings(self, now: int, connections: int, timers: Timers) -> Surroundings:
        return Surroundings(now, connections, timers, self.codec)

    def copied(self, machine: ProcessMachine, wires: Surroundings) -> ProcessMachine:
        """The machine in other surroundings."""
        if isinstance(machine, Broker):
            return machine.copy(wires=wires)
        return machine.copy(wires=wires, app=wires)  # type: ignore[call-arg]

    def _build_broker(self, owner: int, life: int, wires: Surroundings) -> ProcessMachine:
        directory = {self.names[i]: address for address, i in self.addresses.items()}
        parent = self.scope.parents[owner]
        place = BrokerPlace(
            self.names[owner], f"{self.names[owner]}:1", directory, None if parent is None else self.names[parent], life
        )
        return self._parts.broker(place, self.scope.settings, wires)

    def _build_client(self, owner: int, wires: Surroundings) -> ProcessMachine:
        member = self.scope.members[owner - self.scope.brokers]
        edge = f"{broker_name(member.edge)}:1"
        addresses = (edge, *(address for address in self.addresses if address != edge))
        settings = self.scope.settings
        mine = ClientSettings(
            request_ms=settings.request_ms, retry_ms=settings.retry_ms, stability_ms=settings.stability_ms
        )
        return self._parts.client(self.names[owner], 0, addresses, wires, wires, mine)

    def _run(
        self, owner: int, machine: Any, wires: Surroundings, history: History, peer: Peer, event: Input
    ) -> ProcessReaction:
        name = self.names[owner]
        try:
            self._hand_in(machine, wires, event)
            machine.on_turn_end()
        except Exception as error:  # noqa: BLE001 - a machine that fails is what the explorer looks for
            return ProcessReaction(-1, fault=Violation("invariant", f"{name}: {type(error).__name__}: {saying(error)}"))
        if wires.complaint:
            return ProcessReaction(-1, fault=Violation("invariant", f"{name}: {wires.complaint}"))
        told: list[int] = [~event.message] if isinstance(event, Publishes) else []
        told += self.tells(wires)
        for entry in wires.delivered:
            number = self.message_of(entry)
            if number is None:
                return ProcessReaction(
                    -1, fault=Violation("integrity", f"{name} delivers {entry.id}, which nobody published")
                )
            told.append(number)
        told += [LOST_SESSION] if wires.lost else []
        after = _Known(owner, machine, wires.timers, wires.connections, (*history, *told), peer)
        return ProcessReaction(self._number(after), tuple(wires.effects), bool(told))

    def _hand_in(self, machine: Any, wires: Surroundings, event: Input) -> None:
        match event:
            case ProcessStart():
                machine.on_start()
            case Opened(connection, peer):
                if not connection:
                    wires.connections = connection = wires.connections + 1
                machine.on_opened(connection, peer)
            case Arrived(connection, packet):
                machine.on_packets(connection, [self.codec.decode(packet, "")])
            case Closed(connection, gone, reason):
                machine.on_closed(connection, gone=gone, reason=reason)
            case Rings(timer):
                wires.cancel_timer(timer)
                machine.on_timer(timer)
            case Subscribes(topic):
                (machine.watch if is_filter(topic) else machine.subscribe)(topic)
            case Publishes():
                self.publish(machine, event)
            case _:
                raise InvariantError(f"no input: {event}")

    def tells(self, _wires: Surroundings) -> list[int]:
        """The part of a history that comes before the deliveries."""
        return []

    def publish(self, machine: Any, event: Publishes) -> None:
        talk = self.talks[event.message]
        machine.publish(talk.topic, b"", guarantee=talk.guarantee)

    def message_of(self, entry: Any) -> int | None:
        """The number of what was delivered; None: nobody published it."""
        return self._messages.get((entry.publisher, entry.topic, entry.number))

    def _number(self, known: _Known) -> int:
        key = (known.owner, known.machine.frozen(), known.timers, known.connections, known.history, known.peer.life)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.known)
            self.known.append(known)
        return number

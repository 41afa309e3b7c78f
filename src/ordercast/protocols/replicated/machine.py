"""Atomic multicast that survives crashes: every server of an atomic multicast becomes a group of replicas.

The replicas of a group agree on the order of its inputs (log.py) and apply them to identical copies of the
multicast's own machine; the leader sends what the copies want to be sent. Spec: docs/protocols/replicated.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from ordercast.core.effects import Complete, Deliver, EffectLog, Note, Send
from ordercast.core.errors import InvariantError, PeerError, UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.multicast.multicast import Ask
from ordercast.protocols.replicated.channels import Endpoint
from ordercast.protocols.replicated.groups import Division, names_servers, to_groups, to_servers
from ordercast.protocols.replicated.log import LOG_PACKETS, LogEntry, ReplicaLog
from ordercast.protocols.shared.fixed_group import refuse_newcomer


class Input(Packet, frozen=True, tag=1):
    """The `number`-th packet on the channel from one endpoint to another."""

    source: NodeId
    target: NodeId
    number: int
    body: bytes


class Taken(Packet, frozen=True, tag=2):
    """The target of a channel has had its packets up to `number`."""

    source: NodeId
    target: NodeId
    number: int


class Forward(Packet, frozen=True, tag=3):
    """A replica that does not lead hands an input to the one that does."""

    entry: LogEntry


class Back(Packet, frozen=True, tag=4):
    """The sender was down and has lost what was on its way to it, but not its state."""


PACKETS = (Input, Taken, Forward, Back, *LOG_PACKETS)

RETRY = "retry"


class Replicated(Machine):
    """One node: a client of the multicast, and if it is a server a replica of its group."""

    constant: ClassVar[tuple[str, ...]] = ("node", "neighbours", "division", "codec", "name", "retry_ns")
    durable: ClassVar[tuple[str, ...]] = ("client", "group", "log", "held")

    log_type: ClassVar[type[ReplicaLog]] = ReplicaLog

    def __init__(self, place: Place, options: Any, multicast: ProtocolInfo) -> None:
        self.name = f"replicated-{multicast.name}"
        refuse_newcomer(self.name, place)
        self.node = place.node
        self.neighbours = place.neighbours
        self.division = Division(place.servers, place.nodes, options.replicas)
        strangers = [server for server in place.servers if server not in (place.node, *place.neighbours)]
        if strangers:
            raise UsageError(f"{self.name} needs a link to every server; {self.node} has none to {strangers[0]}")
        self.codec = multicast.codec()
        self.retry_ns = round(options.retry_ms * 1_000_000)

        def endpoint(name: NodeId) -> Endpoint:
            others = tuple(other for other in (*self.division.names, *place.nodes) if other != name)
            everyone = (*self.division.names, *place.nodes)
            inner = Place(name, others, everyone, None, 0, place.nodes)
            return Endpoint(name, multicast.build(inner, options))

        self.client = endpoint(self.node)
        own = self.division.group_of.get(self.node, self.node)
        self.group = endpoint(own)
        """The group's copy; of a node that is no server, something that never acts."""
        self.log = self.log_type(self.node, self.division.members[own])
        self.served_view = 0
        self.suspected: set[NodeId] = set()
        self.held: dict[NodeId, dict[int, bytes]] = {}
        """Inputs that came from outside, by source: this replica sees to it that the group takes them."""
        self.offered: dict[NodeId, dict[int, bytes]] = {}
        """Inputs that other replicas have forwarded to this leader."""
        self.logged: dict[NodeId, int] = {}
        """By source: the last of its inputs that is in this leader's log."""
        self.owed: set[NodeId] = set()
        """Sources that have to be told what the group has had."""
        self.watching = False
        """Whether the timer for what may be lost is armed."""
        self.own: deque[Packet] = deque()
        """What this node sends to itself; handled before the event ends."""

    # The application's end

    def on_publish(self, message: Message, out: Outbox) -> None:
        """REP-R2: refuse what has no sensible destinations before anything is sent; then be a client."""
        self._check_destinations(message)
        effects = EffectLog()
        self.client.machine.on_publish(to_groups(message, self.division.groups(message.dst)), effects)
        self._perform(self.client, effects, out)
        self._settle(out)

    def _check_destinations(self, message: Message) -> None:
        if not message.dst:
            raise UsageError(f"{self.name}: message {message.id} names no destinations")
        for i, server in enumerate(message.dst):
            if server not in self.division.group_of:
                problem = unknown_name("destination", server, self.division.group_of)
                raise UsageError(f"{self.name}: message {message.id}: {problem}")
            if server in message.dst[:i]:
                raise UsageError(f"{self.name}: message {message.id} names {server} twice")

    # Packets

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        self._handle(peer, packet, out)
        self._settle(out)

    def on_receive_many(self, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> None:
        """One agreement for the whole batch."""
        for packet in packets:
            self._handle(peer, packet, out)
        self._settle(out)

    def _handle(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if type(packet) is Input:
            self._on_input(peer, packet, out)
        elif type(packet) is Taken:
            self._endpoint(peer, packet.source).confirm(packet.target, packet.number)
        elif type(packet) is Back:
            self._on_back(peer, out)
        elif type(packet) is not Forward:
            self.log.on_packet(peer, packet, out)
        elif self.log.leading and not self.group.has_had(packet.entry.source, packet.entry.number):
            self.offered.setdefault(packet.entry.source, {})[packet.entry.number] = packet.entry.body
            self._propose_from(packet.entry.source)

    def _endpoint(self, peer: NodeId, name: NodeId) -> Endpoint:
        for endpoint in (self.client, self.group):
            if endpoint.name == name:
                return endpoint
        raise PeerError(peer, f"speaks to {name}, which {self.node} is not part of")

    def _on_input(self, peer: NodeId, packet: Input, out: Outbox) -> None:
        """REP-N2, REP-N3: a client takes its next packet at once; a replica holds it until the group agrees on it."""
        target = self._endpoint(peer, packet.target)
        if peer not in self.division.members.get(packet.source, ()):
            raise PeerError(peer, f"sends for {packet.source}, which it is not part of")
        self._check_body(peer, packet)
        if target is self.client:
            if target.expects(packet.source, packet.number):
                self._take(target, LogEntry(packet.source, packet.number, packet.body), out)
            self._confirm(self.client, packet.source, out)
        elif target.has_had(packet.source, packet.number):
            self.owed.add(packet.source)
        else:
            self.held.setdefault(packet.source, {})[packet.number] = packet.body
            self._pursue(packet.source, packet.number, packet.body, out)

    def _check_body(self, peer: NodeId, packet: Input) -> None:
        inner = self.codec.decode(packet.body, peer)
        if isinstance(inner, Ask) and not names_servers(inner.message):
            raise PeerError(peer, f"asks for message {inner.message.id} without naming servers")

    def _pursue(self, source: NodeId, number: int, body: bytes, out: Outbox) -> None:
        """REP-R3: the leader proposes its next input; everybody else hands it to the leader, if there is one."""
        if self.log.leading:
            self._propose_from(source)
        elif self.log.leader is not None:
            out.send(self.log.leader, Forward(LogEntry(source, number, body)))

    def _propose_from(self, source: NodeId) -> None:
        """REP-R3: inputs enter the log in the order of their numbers, without gap or repetition."""
        logged = self.logged.get(source, self.group.received.get(source, 0))
        while (body := self._known(source, logged + 1)) is not None:
            logged += 1
            self.log.propose(LogEntry(source, logged, body))
        self.logged[source] = logged

    def _known(self, source: NodeId, number: int) -> bytes | None:
        return self.held.get(source, {}).get(number) or self.offered.get(source, {}).get(number)

    # What follows from an event

    def _settle(self, out: Outbox) -> None:
        """Apply what is committed and hand over what this node sends itself, until nothing is left; then tell."""
        while True:
            if self.log.last_view != self.served_view:
                self._enter_view(out)
            for entry in self.log.take_committed():
                self._apply(entry, out)
            if not self.own:
                break
            self._handle(self.node, self.own.popleft(), out)
        self.log.flush(out)
        for source in sorted(self.owed):
            self._confirm(self.group, source, out)
        self.owed.clear()
        if self.own:
            self._settle(out)
        elif not self.watching and self._is_waiting():
            self.watching = True
            out.set_timer(RETRY, self.retry_ns)

    def _is_waiting(self) -> bool:
        """Whether something depends on a packet that may be lost. Nobody waits for the suspected."""
        if self.log.is_waiting() or any(self._can_be_taken(source) for source, inputs in self.held.items() if inputs):
            return True
        endpoints = (self.client, self.group)
        return any(self._contact(target) is not None for endpoint in endpoints for target in endpoint.targets())

    def _can_be_taken(self, source: NodeId) -> bool:
        """REP-R9: held inputs can be taken if they begin with the next one, or if the source can fill the gap."""
        return self.group.received.get(source, 0) + 1 in self.held[source] or self._contact(source) is not None

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        """REP-R6: what should be confirmed by now is sent again, by followers too: they may only lack the news."""
        if name != RETRY:
            raise InvariantError(f"{self.node} has no timer {name!r}")
        self.watching = False
        self.log.retry(out)
        self._pursue_all(out)
        for endpoint in (self.client, self.group):
            for target in endpoint.targets():
                contact, late = self._contact(target), endpoint.late(target)
                if contact is not None:
                    for number, body in late:
                        self._send(contact, Input(endpoint.name, target, number, body), out)
        self._settle(out)

    def _enter_view(self, out: Outbox) -> None:
        """REP-R5: a new leader sends again what is unconfirmed; whoever holds inputs hands them to it."""
        self.served_view = self.log.last_view
        self.offered.clear()
        self.logged.clear()
        if self.log.leading:
            for entry in self.log.uncommitted():
                self.logged[entry.source] = entry.number
            for target in self.group.targets():
                self._resend(self.group, target, out)
        self._pursue_all(out)

    def _pursue_all(self, out: Outbox) -> None:
        for source, inputs in self.held.items():
            for number, body in inputs.items():
                self._pursue(source, number, body, out)

    def _apply(self, entry: LogEntry, out: Outbox) -> None:
        """REP-R4: all replicas apply the same inputs in the same order."""
        if not self.group.expects(entry.source, entry.number):
            raise InvariantError(f"{self.node}: input {entry.number} of {entry.source} is not the next one")
        self._take(self.group, entry, out)
        self.offered.get(entry.source, {}).pop(entry.number, None)
        if self.held.get(entry.source, {}).pop(entry.number, None) is not None:
            self.owed.add(entry.source)

    def _take(self, endpoint: Endpoint, entry: LogEntry, out: Outbox) -> None:
        endpoint.received[entry.source] = entry.number
        effects = EffectLog()
        try:
            endpoint.machine.on_receive(entry.source, self.codec.decode(entry.body, entry.source), effects)
        except PeerError as error:
            # Refused alike by every replica: it has its number and no effect.
            out.note("drop", {"peer": error.peer, "why": error.reason})
            return
        self._perform(endpoint, effects, out)

    def _perform(self, endpoint: Endpoint, effects: EffectLog, out: Outbox) -> None:
        for effect in effects.effects:
            match effect:
                case Send(target, packet):
                    self._post(endpoint, target, packet, out)
                case Deliver(message):
                    named = to_servers(message)
                    if self.node in named.dst:
                        out.deliver(named)
                case Complete(message_id):
                    out.complete(message_id)
                case Note(kind, info):
                    out.note(kind, info)
                case _:
                    raise InvariantError(f"{self.name}: a replica's machine must not depend on time: {effect}")

    # Channels

    def _post(self, endpoint: Endpoint, target: NodeId, packet: Packet, out: Outbox) -> None:
        body = self.codec.encode(packet)
        number = endpoint.post(target, body)
        contact = self._contact(target)
        if number is not None and contact is not None and self._speaks_for(endpoint):
            self._send(contact, Input(endpoint.name, target, number, body), out)

    def _speaks_for(self, endpoint: Endpoint) -> bool:
        return endpoint is self.client or self.log.leading

    def _contact(self, target: NodeId) -> NodeId | None:
        """The first replica that is not suspected: most often the leader."""
        return next((member for member in self.division.members[target] if member not in self.suspected), None)

    def _resend(self, endpoint: Endpoint, target: NodeId, out: Outbox) -> None:
        """REP-N3: everything unconfirmed, in order, to whoever is the contact now."""
        contact = self._contact(target)
        if contact is not None and self._speaks_for(endpoint):
            for number, body in endpoint.unconfirmed(target):
                self._send(contact, Input(endpoint.name, target, number, body), out)

    def _confirm(self, endpoint: Endpoint, source: NodeId, out: Outbox) -> None:
        """REP-N4: tell every replica of the source, for each of them may have to lead."""
        for member in self.division.members[source]:
            if member not in self.suspected:
                self._send(member, Taken(source, endpoint.name, endpoint.received.get(source, 0)), out)

    def _send(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if peer == self.node:
            self.own.append(packet)
        else:
            out.send(peer, packet)

    # Suspicion and restarts

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        """REP-R6: whoever was to see to our packets is gone, so the next one gets them."""
        before = self._contacts_at(peer)
        self.suspected.add(peer)
        if peer in self.log.others:
            self.log.on_suspect(peer, out)
        self._resend_where_changed(peer, before, out)
        self._settle(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        before = self._contacts_at(peer)
        self.suspected.discard(peer)
        if peer in self.log.others:
            self._on_replica_back(peer, out)
        self._resend_where_changed(peer, before, out)
        self._settle(out)

    def _contacts_at(self, peer: NodeId) -> dict[NodeId, NodeId | None]:
        targets = [peer, *([self.division.group_of[peer]] if peer in self.division.group_of else [])]
        return {target: self._contact(target) for target in targets}

    def _resend_where_changed(self, peer: NodeId, before: dict[NodeId, NodeId | None], out: Outbox) -> None:
        for target, contact in self._contacts_at(peer).items():
            if contact != before[target]:
                for endpoint in (self.client, self.group):
                    self._resend(endpoint, target, out)

    def _on_replica_back(self, peer: NodeId, out: Outbox) -> None:
        self.log.on_trust(peer, out)
        if peer == self.log.leader:
            self._pursue_all(out)

    def on_recover(self, out: Outbox) -> None:
        """REP-R7: say so, send again what is unconfirmed, and hand over again what is held."""
        for peer in self.neighbours:
            out.send(peer, Back())
        self.served_view = self.log.last_view
        self.log.on_recover(out)
        self._enter_view(out)
        for target in self.client.targets():
            self._resend(self.client, target, out)
        self._settle(out)

    def _on_back(self, peer: NodeId, out: Outbox) -> None:
        """REP-R7: what was on its way to the sender is lost, so it is sent again."""
        if peer in self.log.others:
            self._on_replica_back(peer, out)
        for target in self._contacts_at(peer):
            for endpoint in (self.client, self.group):
                self._resend(endpoint, target, out)

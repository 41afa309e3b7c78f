"""Preventive causal broadcast as a machine: causal order with constant headers on links that come and go.

A message is delivered or dropped when it arrives and never waits, because nobody sends it over a link on which its
causal past could still be missing. Spec: docs/protocols/preventive.md (rules PRV-...), after B. Nédelec, P. Molli and
A. Mostéfaoui, *Breaking the Scalability Barrier of Causal Broadcast for Large and Dynamic Networks*, SRDS 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, origin_of, publisher_of
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.overlay.sampling import Contact, Sampler
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.joining import ContactSearch
from ordercast.protocols.preventive.leaving import AGAIN, DEADLINE, Farewells
from ordercast.protocols.preventive.lines import Line
from ordercast.protocols.preventive.links import MOST_HOPS, Links
from ordercast.protocols.preventive.packets import (
    Ack,
    Arc,
    Bye,
    Data,
    Digest,
    DigestAsk,
    DigestRefused,
    Farewell,
    FloodedLock,
    Heard,
    Hello,
    Hint,
    HintAsk,
    HoldRelease,
    JoinAsk,
    Lock,
    LockFailed,
    Mark,
    Marked,
    SafeMark,
    Snapshot,
)
from ordercast.protocols.preventive.sampler_wires import SamplingPort
from ordercast.protocols.preventive.samplers import SAMPLERS, SamplerFactory
from ordercast.protocols.preventive.settings import PreventiveOptions

_MOST_HINTS = 16


class Preventive(OverlayMachine):
    """One process of the broadcast."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "place", "options", "me", "sampler_packets", "received")
    derived: ClassVar[tuple[str, ...]] = ("duplicates",)
    durable: ClassVar[tuple[str, ...]] = ("broadcast", "joining", "boots", "joined")
    lingers: ClassVar[bool] = True
    samplers: ClassVar[Mapping[str, tuple[type[Sampler], SamplerFactory]]] = SAMPLERS
    links_type: ClassVar[type[Links]] = Links
    broadcast_type: ClassVar[type[Broadcast]] = Broadcast
    handlers: ClassVar[Mapping[type[Packet], Callable[[Any, Connection, Line, Any], None]]]
    """What is done with each kind of packet; messages over safe links are taken before."""

    def __init__(self, wires: OverlayWires, place: OverlayPlace, options: PreventiveOptions) -> None:
        self.wires = wires
        self.place = place
        self.options = options
        self.me = Contact(origin_of_peer(place.me), place.me.address)
        self.broadcast = self.broadcast_type(wires, options)
        self.links = self.links_type(wires, self.me, options, self.broadcast)
        join_ns = int(options.join_ms * 1_000_000)
        self.joining = ContactSearch(wires, place.me.address, place.contacts, join_ns, options.rules)
        kind, make = self.samplers[options.sampling]
        self.sampler: Sampler = make(SamplingPort(wires, self.links), self.me, place, options)
        self.sampler_packets = frozenset(kind.packets)
        self.leaving = Farewells(wires, options)
        self.links.sampler = self.sampler
        self.links.leaving = self.leaving
        self.broadcast.buffers = self.links
        self.received = self.broadcast.log.received
        """The same dict, within reach: every copy of a message is looked up in it."""
        self.duplicates = 0
        self.boots = 0
        """How often this incarnation has come back with its state."""
        self.joined = False
        """Whether this incarnation is or was a part of the network."""
        self.lacks: tuple[Origin, int, str] | None = None
        """A message that this process should have got and that a neighbour, at this address, keeps no more."""

    def copy(self, wires: OverlayWires | None = None) -> Self:
        """An independent copy, in the same surroundings unless it is given others."""
        clone = type(self)(wires or self.wires, self.place, self.options)
        clone.become(self)
        return clone

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.received = self.broadcast.log.received

    # Life

    def on_start(self) -> None:
        """PRV-6.7, PRV-6.10: begin with the network, or join it through one contact."""
        self._plan_forgetting()
        if self.place.genesis or not self.place.contacts:
            self.joined = True
            self.links.take_part()
            self.sampler.on_start(self.place.contacts)
        else:
            self.joining.begin()

    def on_recover(self) -> None:
        """PRV-6.8: back with what was delivered; all links are gone, and new ones begin with a digest."""
        self.boots += 1
        self.received = self.broadcast.log.received
        self.links.restarted(self.boots)
        if not self.joined:  # It died before it had.
            self.on_start()
            return
        self._plan_forgetting()
        self.links.take_part()
        self.sampler.on_start(self.place.contacts)

    def redeliver(self, message: Message) -> None:
        log = self.broadcast.log
        log.append(message)
        log.evict(self.options.log_keep, log.end)

    def published_before(self) -> int:
        return self.broadcast.has(self.me.pid) + len(self.joining.waiting)

    def unheard(self) -> str:
        if self.joining.waiting:
            return "it had not joined when it left"
        return "" if self.leaving.heard or self._knows_nothing() else "nobody who stays has heard its last words"

    def on_leave(self) -> None:
        """PRV-6.9: stay until somebody who stays has all that this process had, for a while at most."""
        alone = not (self.links.lines or self.links.meeting or self.place.contacts)
        if alone or (self._knows_nothing() and not self.joining.waiting):
            self._depart()
            return
        self.leaving.begin()
        if self.joined:
            self.leaving.say(self.broadcast.safe)

    def _knows_nothing(self) -> bool:
        return self.broadcast.log.empty

    def _depart(self) -> None:
        self.wires.count("left_unheard" if self.unheard() else "left_heard")
        self.leaving.end()
        self.sampler.on_leave()
        self.links.withdraw()
        self.wires.depart()

    def _joined(self, connection: Connection, line: Line, snapshot: Snapshot) -> None:
        """PRV-6.7: inherit; both links with the contact are safe from here on."""
        self.broadcast.log.inherit(snapshot.received, forgetful=snapshot.forgetful)
        self.wires.install(snapshot.state)
        self.joined = True
        self.links.take_part()
        self.links.at[line.pid] = connection
        line.taken_in()
        self.links.adopt(line.pid, connection)
        self.wires.send(connection, SafeMark(0))
        published, parked = self.joining.end()
        self.wires.note("join", {"contact": publisher_of(line.pid)})
        for message in published:
            self.broadcast.accept(Data(message))
        self.sampler.on_joined(Contact(line.pid, line.address), self.place.contacts)
        for other, packets in parked.items():
            if other in self.links.lines:
                self._take_parked(other, packets)
        if self.leaving.under_way:
            self.leaving.say(self.broadcast.safe)

    def _take_parked(self, connection: Connection, packets: list[Packet]) -> None:
        line = self.links.lines[connection]
        try:
            self.on_packets(connection, packets)
        except PeerError as error:
            self.wires.close(connection, error.reason)
            self.links.lost(connection)
        else:
            self.links.settle(connection, line)

    # The application

    def on_publish(self, message: Message) -> None:
        """PRV-6.1: a publication is delivered here at once and sent over every safe link."""
        if self.joining.under_way:
            self.joining.keep(message)
        else:
            self.broadcast.accept(Data(message))

    # Connections

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        pid = origin_of_peer(peer)
        joining = self.joining
        if joining.under_way and connection == joining.connection:
            joining.contact = pid
            self.links.lines[connection] = line = Line(pid, peer.address, dialed=True)
            line.answered()
            line.peer_wants(wants=True)
        else:
            self.links.opened(connection, peer, pid)

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        if self.joining.under_way and self.joining.lost(connection):
            self.links.forget(connection)
            return
        self.links.lost(connection)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        if name[0] == "join":
            if self.joining.under_way:
                self.links.forget(self.joining.connection)
                self.joining.ask_next()
        elif name[0] == "lacks":
            self._still_lacks()
        elif name[0] == "sampling":
            self.sampler.on_timer(name[1])
        elif name[0] == "forget":
            self.wires.count("forgotten_origins", self.broadcast.log.forget_silent())
            self._plan_forgetting()
        elif name[0] == "stale":
            self.sampler.on_lost(Origin(str(name[1])))
        elif name == DEADLINE:
            self._depart()
        elif name == AGAIN:
            self.leaving.say(self.broadcast.safe)
        else:
            self.links.timer(name)

    def _plan_forgetting(self) -> None:
        if self.options.forget_ms:
            self.wires.set_timer(("forget",), int(self.options.forget_ms * 1_000_000), background=True)

    # Packets

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """PRV-6.2: of a message that was delivered before, one look is all it takes, whoever sends it."""
        received = self.received
        for packet in packets:
            if type(packet) is Data:
                message = packet.message
                if message.number <= received.get(message.origin, 0):
                    self.duplicates += 1
                    continue
            line = self.links.lines.get(connection)
            if line is None:
                return
            if type(packet) is Data and line.incoming_safe:
                self.broadcast.receive(connection, line.pid, packet)
            else:
                self._take(connection, line, packet)

    def _take(self, connection: Connection, line: Line, packet: Packet) -> None:
        """Everything but messages over safe links."""
        links = self.links
        if links.lines.get(connection) is not line:
            return  # An earlier packet of this batch has ended the connection.
        if self.joining.under_way:
            self._take_early(connection, line, packet)
            return
        if not line.greeted and not isinstance(packet, Hello | JoinAsk):
            raise PeerError(line.pid, f"sent a {type(packet).__name__} before a hello")
        handler = self.handlers.get(type(packet))
        if handler is not None:
            handler(self, connection, line, packet)
        elif type(packet) in self.sampler_packets:
            self.sampler.on_packet(line.pid, packet)
        else:
            raise PeerError(line.pid, f"sent a {type(packet).__name__} that has no place here")

    def _take_early(self, connection: Connection, line: Line, packet: Packet) -> None:
        """PRV-6.7: before it has joined, a process listens to its one contact only."""
        if connection == self.joining.connection and isinstance(packet, Snapshot):
            if packet.nonce != self.joining.asked:
                raise PeerError(line.pid, "answered a wish to join that is over")
            self._joined(connection, line, packet)
        elif not self.joining.park(connection, packet):
            raise PeerError(line.pid, "sends more than a joiner can keep")

    def _on_hello(self, connection: Connection, line: Line, hello: Hello) -> None:
        self.links.greeted(connection, line, hello)

    def _on_safe_mark(self, _connection: Connection, line: Line, _mark: SafeMark) -> None:
        self.links.incoming(line)

    def _on_ack(self, _connection: Connection, line: Line, ack: Ack) -> None:
        self.links.acked(line, ack.attempt)

    def _on_lock_failed(self, _connection: Connection, _line: Line, failed: LockFailed) -> None:
        self.links.lock_failed(failed.to, failed.attempt)

    def _on_hint_ask(self, connection: Connection, _line: Line, ask: HintAsk) -> None:
        self.wires.send(connection, Hint(ask.attempt, self.links.with_safe_link(_MOST_HINTS)))

    def _on_hint(self, _connection: Connection, line: Line, hint: Hint) -> None:
        self.links.hinted(line, hint.attempt, hint.peers)

    def _on_digest_ask(self, connection: Connection, _line: Line, ask: DigestAsk) -> None:
        self.wires.send(connection, Digest(ask.attempt, self.broadcast.log.counts()))

    def _on_arc(self, _connection: Connection, line: Line, arc: Arc) -> None:
        line.peer_wants(wants=arc.wants)
        self.links.review(line.pid)

    def _on_bye(self, connection: Connection, line: Line, _bye: Bye) -> None:
        self.links.parted(connection, line)

    def _on_mark(self, connection: Connection, _line: Line, mark: Mark) -> None:
        self.wires.send(connection, Marked(mark.number))

    def _on_marked(self, _connection: Connection, line: Line, marked: Marked) -> None:
        self.links.marked(line, marked.number)

    def _on_farewell(self, connection: Connection, line: Line, farewell: Farewell) -> None:
        if not line.incoming_safe:
            raise PeerError(line.pid, "says farewell over a link that is not safe")
        self.leaving.met(connection, farewell.number, self.broadcast.safe)

    def _on_heard(self, _connection: Connection, _line: Line, heard: Heard) -> None:
        if self.leaving.answered(heard.number):
            self._depart()

    def _on_hold_release(self, _connection: Connection, line: Line, release: HoldRelease) -> None:
        if release.one != line.pid:
            raise PeerError(line.pid, f"releases a promise to {release.one}")
        self.links.discharge(release.one, release.other)
        self.links.discharge(release.other, release.one)  # There is a connection: the other end needs no way either.

    def _on_lock(self, _connection: Connection, line: Line, lock: Lock) -> None:
        origin = self.links.pass_on(line, lock)
        if origin is not None:
            self.links.say(origin, LockFailed(lock.route[-1], lock.attempt))

    def _on_flooded(self, _connection: Connection, line: Line, lock: FloodedLock) -> None:
        """PRV-6.5 step 4: a flooded lock is passed on once, and answered by the one it is for."""
        if not line.incoming_safe or not 0 <= lock.hops <= MOST_HOPS:
            raise PeerError(line.pid, "sent a flooded lock that has lost its way")
        if self.links.has_met(lock) or lock.origin == self.me.pid:
            return
        onward = FloodedLock(lock.origin, lock.to, lock.attempt, lock.hops + 1)
        if lock.hops < MOST_HOPS:
            self.links.flood(onward)
        if lock.to == self.me.pid:
            self.links.acknowledge(lock.origin, lock.attempt)

    def _on_digest(self, _connection: Connection, line: Line, digest: Digest) -> None:
        self.links.digested(line, digest.attempt, dict(digest.received))

    def _on_refused(self, _connection: Connection, line: Line, refused: DigestRefused) -> None:
        """PRV-6.8: somebody keeps no more what this process lacks. If nobody else sends it, one of them begins anew.

        That is the one that has less, and of equally many by a mark of what they have: so all of a part of the network
        that was cut off for too long decide alike, and who stands between two parts does not go to and fro.
        """
        log = self.broadcast.log
        if self.lacks is None and (refused.total, refused.mark) > (log.total, log.mark):
            self.lacks = refused.origin, refused.number, line.address
            grace_ns = int(self.options.ack_ms * 1_000_000) * self.options.max_attempts
            self.wires.set_timer(("lacks",), grace_ns)

    def _still_lacks(self) -> None:
        assert self.lacks is not None
        (origin, number, through), self.lacks = self.lacks, None
        if self.broadcast.has(origin) < number:
            self.wires.count("stranded")
            reason = f"{self.me.pid} lacks message {number} of {origin}, which its neighbours keep no more"
            self.wires.begin_anew(reason, through)

    def _on_join_ask(self, connection: Connection, line: Line, ask: JoinAsk) -> None:
        """PRV-6.7: in one event the link to the joiner is safe and what it inherits is its first item."""
        if ask.rules != self.options.rules:
            ours = self.options.rules
            raise PeerError(line.pid, f"follows rules {ask.rules} of this broadcast, and this process {ours}")
        if line.greeted or line.pid in self.received:
            raise PeerError(line.pid, "asks to join and was here before")
        if not self.links.open or self.leaving.under_way:
            self.wires.close(connection, "cannot take anybody in")
            self.links.lost(connection)
            return
        self.links.prefer(line.pid, connection)
        line.greet(wants=True)
        log = self.broadcast.log
        self.wires.send(connection, Snapshot(ask.nonce, log.counts(), log.forgetful, self.wires.snapshot()))
        self.links.adopt(line.pid, connection)
        self.sampler.on_subscribed(Contact(line.pid, line.address))


Preventive.handlers = {
    Hello: Preventive._on_hello,
    JoinAsk: Preventive._on_join_ask,
    SafeMark: Preventive._on_safe_mark,
    Lock: Preventive._on_lock,
    FloodedLock: Preventive._on_flooded,
    Ack: Preventive._on_ack,
    LockFailed: Preventive._on_lock_failed,
    HintAsk: Preventive._on_hint_ask,
    Hint: Preventive._on_hint,
    DigestAsk: Preventive._on_digest_ask,
    Digest: Preventive._on_digest,
    DigestRefused: Preventive._on_refused,
    Arc: Preventive._on_arc,
    Bye: Preventive._on_bye,
    Mark: Preventive._on_mark,
    Marked: Preventive._on_marked,
    Farewell: Preventive._on_farewell,
    Heard: Preventive._on_heard,
    HoldRelease: Preventive._on_hold_release,
}


def origin_of_peer(peer: Peer) -> Origin:
    """The process in this life: it shares its counter with no other."""
    return origin_of(NodeId(peer.name), peer.life)

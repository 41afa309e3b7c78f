"""The preventive broadcast as its draft states it (FBC-broadcast+ with bounded buffers), for comparison only.

Every line that its authors wrote is kept, and what they leave open is an option, so that its counterexamples can be
shown (docs/protocols/preventive-draft.md, rules PRD-1 to PRD-3 are its algorithms). Do not use it: it does not keep
causal order. The corrected one is `preventive`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, origin_of, publisher_of
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import Connection, OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.sampling import Contact
from ordercast.overlay.script import ScriptSampler, parse_script

Key = tuple[Origin, int]


class DraftData(Packet, frozen=True, tag=1):
    carries: ClassVar[str | None] = "message"

    message: Message


class DraftLocked(Packet, frozen=True, tag=2):
    """Goes to `to`: along the route as far as there is one, else over all links."""

    origin: Origin
    to: Origin
    number: int
    route: tuple[Origin, ...]


class DraftAck(Packet, frozen=True, tag=3):
    number: int


class DraftOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choices that the draft leaves to its reader."""

    reading: tuple[Literal["guard-first", "direct-locks", "current-acks", "ordered-buffers"], ...] = ()
    """`guard-first`: `|Q| > 1` is asked before the new neighbour is in Q. `direct-locks`: a lock goes straight to its
    target, and not over links that exist already. `current-acks`: buffers know their counter, as a figure shows.
    `ordered-buffers`: they are lists and not sets."""
    max_buffer: Annotated[int, msgspec.Meta(ge=0)] = 1 << 30
    max_attempts: Annotated[int, msgspec.Meta(ge=0)] = 1 << 30
    ack_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """After this time a lock without an answer is tried again; 0: never, because no statement arms the timeout."""
    script: tuple[str, ...] = ()
    """Links that open and close, see `overlay/script.py`."""


class PreventiveDraft(OverlayMachine):
    """One process of the draft's broadcast. Its links are both directions of a connection, as in its experiment."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "place", "options", "me")
    durable: ClassVar[tuple[str, ...]] = ("received", "joined")

    def __init__(self, wires: OverlayWires, place: OverlayPlace, options: DraftOptions) -> None:
        self.wires = wires
        self.place = place
        self.options = options
        self.me = Contact(origin_of(NodeId(place.me.name), place.me.life), place.me.address)
        self.sampler = ScriptSampler(DraftSampling(self), self.me, parse_script(options.script))
        self.received: set[Key] = set()
        self.peers: dict[Connection, Origin] = {}
        self.dialed: dict[Connection, Contact | None] = {}
        """Connections that are not open yet, and whom they are for, if that is known."""
        self.vias: dict[Origin, tuple[Origin, ...]] = {}
        self.neighbours: set[Origin] = set()
        """Q."""
        self.buffers: dict[Origin, dict[Key, Message]] = {}
        """B: a set of messages for each link, as the draft has it."""
        self.counter = 0
        self.locks: dict[int, Origin] = {}
        """I."""
        self.retries: dict[Origin, int] = {}
        """R."""
        self.passed_on: set[tuple[Origin, int]] = set()
        self.first = set(place.contacts) if place.genesis else set()
        """Links that are there from the beginning and not open yet: no event opens them."""
        self.joined = place.genesis
        """Whether this process is a part of the network: nothing more is said about joining."""

    def copy(self, wires: OverlayWires | None = None) -> Self:
        clone = type(self)(wires or self.wires, self.place, self.options)
        clone.become(self)
        return clone

    # The overlay

    def on_start(self) -> None:
        """Nothing is said about joining: a newcomer begins with nothing, and dials everybody it knows."""
        if not self.place.genesis:
            for address in self.place.contacts:
                self.dialed[self.wires.open(address)] = None
        self.sampler.on_start(self.place.contacts if self.place.genesis else ())

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        pid = origin_of(NodeId(peer.name), peer.life)
        self.dialed.pop(connection, None)
        self.peers[connection] = pid
        if not self.joined:
            self.joined = True
            self.wires.note("join", {"contact": peer.name})
        if peer.address in self.first:
            self.first.discard(peer.address)
            self.neighbours.add(pid)
            self._note(pid, "safe")
        else:
            self._note(pid, "pending")
            self._enter(pid, self.vias.pop(pid, ()))

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:  # noqa: ARG002
        self.dialed.pop(connection, None)
        pid = self.peers.pop(connection, None)
        if pid is not None and pid not in self.peers.values():
            self._close(pid)

    def connect(self, peer: Contact, via: tuple[Origin, ...]) -> None:
        """The sampling wants a link."""
        if peer.pid in self.peers.values():
            self._open(peer.pid, via)
        else:
            self.vias[peer.pid] = via
            self.dialed[self.wires.open(peer.address)] = peer

    def disconnect(self, pid: Origin) -> None:
        """The sampling wants a link no more."""
        for connection in sorted(c for c, peer in self.peers.items() if peer == pid):
            del self.peers[connection]
            self.wires.close(connection, "is not needed")
        self._close(pid)

    # PRD-2: FBC-broadcast+

    def _enter(self, q: Origin, via: tuple[Origin, ...]) -> None:
        """The overlay opens a link: before or after it has put it into Q."""
        first = "guard-first" in self.options.reading
        if not first:
            self.neighbours.add(q)
        self._open(q, via)
        if first and q not in self.buffers:
            self.neighbours.add(q)

    def _open(self, q: Origin, via: tuple[Origin, ...] = ()) -> None:
        if len(self.neighbours) > 1:
            self.counter += 1
            self.neighbours.discard(q)
            self.buffers[q] = {}
            self._send_locked(q, self.counter, via)

    def _receive_ack(self, to: Origin, number: int) -> None:
        current = "current-acks" not in self.options.reading or self.locks.get(number) == to
        if to in self.buffers and current:
            buffered = list(self.buffers.pop(to).items())
            for _, message in buffered if "ordered-buffers" in self.options.reading else sorted(buffered):
                self._send_to(to, DraftData(message))
            self.neighbours.add(to)
            self._note(to, "safe")
        self.locks.pop(number, None)
        self.retries.pop(to, None)

    def _close(self, q: Origin) -> None:
        self.neighbours.discard(q)
        self.buffers.pop(q, None)
        self._forget_locks(q)
        self.retries.pop(q, None)
        self._note(q, "closed")

    def on_publish(self, message: Message) -> None:
        for buffer in self.buffers.values():
            buffer[message.origin, message.number] = message
        self._spread(message)

    def _deliver(self, message: Message) -> None:
        for buffer in self.buffers.values():
            buffer[message.origin, message.number] = message
        self.wires.deliver(message)
        for q in sorted(self.buffers):
            if len(self.buffers.get(q, ())) > self.options.max_buffer:
                self._retry(q)

    # PRD-1: R-broadcast

    def _spread(self, message: Message) -> None:
        self.received.add((message.origin, message.number))
        for q in sorted(self.neighbours):
            self._send_to(q, DraftData(message))
        self._deliver(message)

    # PRD-3: bounded buffers

    def _send_locked(self, to: Origin, number: int, via: tuple[Origin, ...]) -> None:
        self.retries.setdefault(to, 0)  # The draft asks for `q`, which nobody has bound.
        self.locks[number] = to
        if self.options.ack_ms:
            self.wires.set_timer(("timeout", number), int(self.options.ack_ms * 1_000_000))
        self._pass_on(DraftLocked(self.me.pid, to, number, via))

    def _retry(self, q: Origin) -> None:
        self._forget_locks(q)
        if q in self.retries:
            self.retries[q] += 1
            if self.retries[q] <= self.options.max_attempts:
                self._open(q)
            else:
                self._close(q)

    def _forget_locks(self, q: Origin) -> None:
        self.locks = {number: to for number, to in self.locks.items() if to != q}

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        if name[0] == "sampling":
            self.sampler.on_timer(name[1])
        elif name[1] in self.locks:
            self._retry(self.locks[name[1]])

    # Locks on their way

    def _pass_on(self, lock: DraftLocked) -> None:
        """As the published simulator does: no hop asks whether the link that it uses is one for messages yet."""
        here, *rest = lock.route or (lock.to,)
        straight = "direct-locks" in self.options.reading or bool(lock.route)
        if straight:
            self._send_to(here, msgspec.structs.replace(lock, route=tuple(rest) if lock.route else ()))
            return
        self.passed_on.add((lock.origin, lock.number))
        for q in sorted(self.neighbours):
            self._send_to(q, lock)

    def _receive_locked(self, lock: DraftLocked) -> None:
        if lock.to == self.me.pid:
            self._send_to(lock.origin, DraftAck(lock.number))
        elif lock.origin != self.me.pid and (lock.origin, lock.number) not in self.passed_on:
            known = not lock.route and lock.to in self.peers.values()
            self._pass_on(msgspec.structs.replace(lock, route=(lock.to,)) if known else lock)

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            peer = self.peers.get(connection)
            match packet:
                case _ if peer is None:
                    return
                case DraftData(message):
                    if (message.origin, message.number) not in self.received:
                        self._spread(message)
                case DraftLocked():
                    self._receive_locked(packet)
                case DraftAck(number):
                    self._receive_ack(peer, number)
                case _:
                    raise PeerError(peer, f"sent a {type(packet).__name__}")

    def _send_to(self, q: Origin, packet: Packet) -> None:
        for connection, peer in self.peers.items():
            if peer == q:
                self.wires.send(connection, packet)
                return

    def _note(self, q: Origin, state: str) -> None:
        self.wires.note("link", {"peer": publisher_of(q), "state": state})


class DraftSampling:
    """The links of the draft as a sampling sees them: implements `SamplerWires`."""

    def __init__(self, machine: PreventiveDraft) -> None:
        self._machine = machine

    def meet(self, address: str) -> None:
        self._machine.dialed[self._machine.wires.open(address)] = None

    def want(self, peer: Contact, via: tuple[Origin, ...] = ()) -> None:
        self._machine.connect(peer, via)

    def unwant(self, peer: Origin) -> None:
        self._machine.disconnect(peer)

    def hold(self, one: Origin, other: Origin) -> None:
        """The draft promises nothing."""

    def is_safe(self, peer: Origin) -> bool:
        return peer in self._machine.neighbours

    def is_met(self, peer: Origin) -> bool:
        return peer in self._machine.peers.values()

    def send(self, peer: Origin, packet: Packet) -> None:
        raise NotImplementedError(f"no sampling of the draft talks: {packet} to {peer}")

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._machine.wires.set_timer(("sampling", name), delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self._machine.wires.cancel_timer(("sampling", name))

    def count(self, name: str, by: int = 1) -> None:
        self._machine.wires.count(name, by)


def build(wires: OverlayWires, place: OverlayPlace, options: Any) -> PreventiveDraft:
    return PreventiveDraft(wires, place, options)


PREVENTIVE_DRAFT = ProtocolInfo(
    name="preventive-draft",
    summary="the preventive broadcast as its draft states it; breaks causal order, kept for comparison",
    source="Breaking the Scalability Barrier of Causal Broadcast for Large and Dynamic Networks, unfinished draft",
    guarantee=Guarantee.CAUSAL,
    overlay="whom each knows first, and a script of links that open and close",
    faults="none: the links that it opens may break causal order",
    metadata="15 + o + t",
    genuine=False,
    build_overlay=build,
    packets=(DraftData, DraftLocked, DraftAck),
    options=DraftOptions,
    uniform=False,
    readmits=True,
    admits=True,
)

"""Peer sampling: who is next to whom while processes come and go. The port that every sampler is built against.

A sampler is a part of an overlay machine. It decides which neighbours the process has and says so with `want` and
`unwant`; the part that owns the links opens connections, makes both directions of them safe to use, and tells the
sampler what became of them. A connection is there as long as one of its two ends wants it, or somebody still needs it
to make another link safe.

Make before break: who hands a neighbour over calls `hold` for both of them and may give its own arc up at once. The
links to them are kept, and used, until the promised locks have passed or `hold_ms` are over.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Protocol

import msgspec

from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.core.state import State

FIRST_SAMPLER_TAG = 64
"""Tags of a sampler's packets begin here: they travel beside those of the machine that it is a part of."""

_EXPECTED = 4
"""So often in a row a lost neighbour is looked for as if it were about to return; later only in the background."""


class Contact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process and where it listens. Its `pid` names one life: a process that lost its memory has another one."""

    pid: Origin
    address: str


class SamplerWires(Protocol):
    """The requests that a sampler may make. The order of calls is the order in which they take effect."""

    def meet(self, address: str) -> None:
        """Find out who is there: `on_met` follows, or `on_unreachable`. Unless wanted then, it is let go again."""

    def want(self, peer: Contact, via: tuple[Origin, ...] = ()) -> None:
        """There shall be a link to the peer, in both directions. Wanting what is there changes nothing.

        `via`: whom a lock may pass on its way to the peer, usually the one who named it. Empty: nobody is known.
        `on_safe` follows, or `on_lost`, or `on_failed`.
        """

    def unwant(self, peer: Origin) -> None:
        """This process has no arc to the peer any more. The link goes once nobody needs it."""

    def hold(self, one: Origin, other: Origin) -> None:
        """Keep the links to both until a lock from `one` to `other` has passed here."""

    def is_safe(self, peer: Origin) -> bool:
        """Whether both directions are in use: only such neighbours are offered to others or asked to exchange."""

    def is_met(self, peer: Origin) -> bool:
        """Whether there is a connection, so that `send` gets through."""

    def send(self, peer: Origin, packet: Packet) -> None:
        """Say something to a process that there is a connection to; lost if there is none, or if it ends."""

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        """Ask for `on_timer(name)`; names are the sampler's own. Samplers that never rest use background timers."""

    def cancel_timer(self, name: Hashable) -> None:
        """Forget the timer, armed or not."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter that metrics show."""


class Sampler(State):
    """Base of all samplers. A handler runs to its end before the next event; unused events do nothing."""

    packets: ClassVar[tuple[type[Packet], ...]] = ()
    """What it says to other samplers; tags from FIRST_SAMPLER_TAG on."""
    constant: ClassVar[tuple[str, ...]] = ("wires", "me")

    def __init__(self, wires: SamplerWires, me: Contact) -> None:
        self.wires = wires
        self.me = me

    def on_start(self, addresses: tuple[str, ...]) -> None:
        """The process begins, at genesis or with its memory; `addresses` are those of some who are there."""

    def on_joined(self, contact: Contact, addresses: tuple[str, ...]) -> None:
        """The process has joined a running network through this contact, and there is a safe link to it."""

    def on_subscribed(self, joiner: Contact) -> None:
        """A process has joined through this one, and there is a safe link to it: let others know of it."""

    def on_met(self, peer: Contact, *, dialed: bool) -> None:
        """A connection to the peer is up. `dialed`: by this process."""

    def on_unreachable(self, address: str) -> None:
        """The peer that was to be met there does not answer."""

    def on_safe(self, peer: Origin) -> None:
        """Both directions of the link to the peer are in use now."""

    def on_lost(self, peer: Origin) -> None:
        """The peer is dead, out of reach or has left: all arcs to it are void. It is wanted no longer."""

    def on_failed(self, peer: Origin) -> None:
        """The peer answers, but its link could not be made safe and was given up. It is wanted no longer."""

    def on_packet(self, peer: Origin, packet: Packet) -> None:
        """The sampler of a neighbour says something. Nonsense is a PeerError and ends that connection only."""

    def on_timer(self, name: Hashable) -> None:
        """A timer that this sampler set has run out."""

    def on_leave(self) -> None:
        """The process leaves in good order: last words to neighbours, no more wishes."""


class FixedSampler(Sampler):
    """The neighbours of a fixed graph: those it was given, for as long as it lives. Lost ones are looked for again."""

    constant: ClassVar[tuple[str, ...]] = (*Sampler.constant, "retry_ns", "most_ns")

    def __init__(self, wires: SamplerWires, me: Contact, retry_ns: int, most_ns: int) -> None:
        """`retry_ns`: after so long one that was lost is looked for; twice as long each time, up to `most_ns`."""
        super().__init__(wires, me)
        self.retry_ns = retry_ns
        self.most_ns = most_ns
        self.neighbours: dict[str, Origin | None] = {}
        """By address, who was there last."""
        self.failures: dict[str, int] = {}
        """By address: how often in a row nobody was there, or no link was made."""

    def on_start(self, addresses: tuple[str, ...]) -> None:
        self.neighbours = dict.fromkeys(sorted({*addresses} - {self.me.address}))
        for address in self.neighbours:
            if self.me.address < address:  # The other one dials the rest, and is looked for if it does not.
                self.wires.meet(address)
            else:
                self.wires.set_timer(address, self.retry_ns, background=True)

    def on_joined(self, contact: Contact, addresses: tuple[str, ...]) -> None:
        self.neighbours = dict.fromkeys(sorted({*addresses, contact.address} - {self.me.address}))
        self.neighbours[contact.address] = contact.pid
        self.wires.want(contact)
        for address in self.neighbours:
            if address != contact.address:
                self.wires.meet(address)

    def on_met(self, peer: Contact, *, dialed: bool) -> None:
        if peer.address in self.neighbours:
            self.neighbours[peer.address] = peer.pid
            self.wires.cancel_timer(peer.address)
            self.wires.want(peer)
        elif dialed:
            self.wires.count("strangers_met")

    def on_safe(self, peer: Origin) -> None:
        for address in self._addresses(peer):
            self.failures.pop(address, None)

    def on_unreachable(self, address: str) -> None:
        if address in self.neighbours:
            self._look_again(address)

    def on_lost(self, peer: Origin) -> None:
        for address in self._addresses(peer):
            self.neighbours[address] = None
            self._look_again(address)

    def on_failed(self, peer: Origin) -> None:
        self.on_lost(peer)

    def on_timer(self, name: Hashable) -> None:
        assert isinstance(name, str)
        if self.neighbours.get(name, self.me.pid) is None:
            self.wires.meet(name)

    def on_leave(self) -> None:
        for address in self.neighbours:
            self.wires.cancel_timer(address)
        self.neighbours.clear()

    def _addresses(self, peer: Origin) -> list[str]:
        return [address for address, pid in self.neighbours.items() if pid == peer]

    def _look_again(self, address: str) -> None:
        self.failures[address] = failures = min(self.failures.get(address, 0) + 1, 32)
        delay = min(self.retry_ns << (failures - 1), self.most_ns)
        self.wires.set_timer(address, delay, background=failures > _EXPECTED)

"""Preventive broadcasts with one mistake each. The corrections of the draft that they undo are named."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.ids import Origin
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.overlay.sampling import FIRST_SAMPLER_TAG
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.leaving import Farewells
from ordercast.protocols.preventive.lines import Line, OutLink, Way
from ordercast.protocols.preventive.links import Links
from ordercast.protocols.preventive.node import Preventive, origin_of_peer
from ordercast.protocols.preventive.packets import Data, Heard, JoinAsk, Lock, SafeMark, Snapshot
from ordercast.protocols.preventive.variants import PREVENTIVE

LARGE = 1000
"""Bytes of a payload that a careless process would send later."""


class _NoPhaseLinks(Links):
    def _attempt(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:
        self._begin_use(pid, link)


class NoPhase(Preventive):
    """C1, C2: a new link is used at once."""

    links_type = _NoPhaseLinks


class _LocksAgainLinks(Links):
    """What failed once is tried again with a lock, as the draft does, and not repaired by a digest."""

    def _needs_digest(self, _link: OutLink) -> bool:
        return not self.broadcast.safe


class LocksAgain(Preventive):
    """No mistake: with the right order and the right numbers, locks do it, too."""

    links_type = _LocksAgainLinks


class _AnyAckLinks(_LocksAgainLinks):
    def acked(self, line: Line, attempt: int) -> None:
        link = self.out.get(line.pid)
        super().acked(line, link.attempt if link is not None else attempt)


class AnyAck(Preventive):
    """C3, C4: an acknowledgement of an earlier attempt counts, too."""

    links_type = _AnyAckLinks


class EmptyJoiner(Preventive):
    """C5: a joiner inherits nothing."""

    def _joined(self, connection: Connection, line: Line, snapshot: Snapshot) -> None:
        super()._joined(connection, line, msgspec.structs.replace(snapshot, received=(), forgetful=True))


class _PendingRouteLinks(Links):
    def pass_on(self, line: Line, lock: Lock) -> Origin | None:
        line.incoming_safe, safe = True, line.incoming_safe
        place = lock.hop + 1
        following = self.out.get(lock.route[place + 1]) if place < len(lock.route) - 1 else None
        try:
            if following is not None and not following.safe:
                self.wires.send(following.connection, Lock(lock.route, place, lock.attempt))
                return None
            return super().pass_on(line, lock)
        finally:
            line.incoming_safe = safe


class PendingRoute(Preventive):
    """C8: a lock passes links that are not safe."""

    links_type = _PendingRouteLinks


class _RestartsFirst(Broadcast):
    def accept(self, packet: Data, source: Connection = 0) -> None:
        log = self.log
        log.append(packet.message)
        if self.buffers.waiting:
            self.buffers.delivered()
        self.wires.send_all(self.safe, packet, source if self.skip_sender else 0)
        self.wires.deliver(packet.message)


class RestartsFirst(Preventive):
    """C10: a full buffer begins anew before the message that filled it is passed on."""

    broadcast_type = _RestartsFirst
    links_type = _LocksAgainLinks


class _UnorderedLinks(Links):
    def _begin_use(self, pid: Origin, link: OutLink, first: list[Message] | None = None) -> None:
        super()._begin_use(pid, link, first[::-1] if first else first)


class Unordered(Preventive):
    """C17: a buffer is emptied in another order than it was filled."""

    links_type = _UnorderedLinks


class _EmptyHandedLinks(Links):
    def digested(self, line: Line, attempt: int, theirs: dict[Origin, int]) -> None:
        link = self.out.get(line.pid)
        if link is not None and not link.safe and link.attempt == attempt and link.way is Way.DIGEST:
            self._begin_use(line.pid, link)
        else:
            super().digested(line, attempt, theirs)


class EmptyHanded(Preventive):
    """C14: who has said what it has is sent nothing of the rest."""

    links_type = _EmptyHandedLinks


class _DowngradesLinks(Links):
    def want(self, peer: Any, via: tuple[Origin, ...] = ()) -> None:
        link = self.out.get(peer.pid)
        if link is not None and link.safe:
            link.safe = False
            link.way = Way.LOCK
            self._recount()
            return
        super().want(peer, via)


class Downgrades(Preventive):
    """C18: opening a link that is in use takes it out of use."""

    links_type = _DowngradesLinks


class TwoContacts(Preventive):
    """C6: a joiner asks two contacts at once and believes both."""

    second = 0

    def on_start(self) -> None:
        super().on_start()
        if self.joining.under_way and len(self.joining.contacts) > 1:
            self.second = self.wires.open(self.joining.contacts[1])
            self.wires.send(self.second, JoinAsk(self.options.rules, self.joining.asked))

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        if connection != self.second:
            super().on_opened(connection, peer)
            return
        self.links.lines[connection] = line = Line(origin_of_peer(peer), peer.address, dialed=True)
        line.up = line.theirs = True

    def _on_snapshot(self, connection: Connection, line: Line, _snapshot: Snapshot) -> None:
        line.incoming_safe = line.chosen = True
        self.links.at[line.pid] = connection
        self.links.adopt(line.pid, connection)
        self.wires.send(connection, SafeMark(0))


TwoContacts.handlers = {**Preventive.handlers, Snapshot: TwoContacts._on_snapshot}


class _DirectLockLinks(Links):
    def _send_lock(self, pid: Origin, link: OutLink, via: tuple[Origin, ...]) -> None:
        link.way = Way.LOCK
        self.wires.send(link.connection, Lock((self.me.pid, pid), 0, link.attempt))

    def _place_of(self, line: Line, lock: Any) -> int:
        return int(lock.hop) + 1


class DirectLock(Preventive):
    """C7: a lock goes straight to its target, and not the way of the messages."""

    links_type = _DirectLockLinks


class _DeliversFirst(Broadcast):
    def accept(self, packet: Data, source: Connection = 0) -> None:
        self.log.append(packet.message)
        self.wires.deliver(packet.message)
        self.wires.send_all(self.safe, packet, source if self.skip_sender else 0)


class DeliversFirst(Preventive):
    """C9: a message is delivered before it is passed on."""

    broadcast_type = _DeliversFirst


class _NoHoldsLinks(Links):
    def hold(self, one: Origin, other: Origin) -> None:
        """Promise nothing."""


class NoHolds(Preventive):
    """C19: who hands a neighbour over lets its own links go at once."""

    links_type = _NoHoldsLinks


class Announce(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 50):
    """A message that is there to be fetched."""

    message: Message


class Fetch(Packet, frozen=True, tag=FIRST_SAMPLER_TAG + 51):
    """The receiver is to send the message."""

    message: Message


class _AnnouncesLarge(Broadcast):
    def accept(self, packet: Data, source: Connection = 0) -> None:
        if len(packet.message.payload) < LARGE:
            super().accept(packet, source)
            return
        self.log.append(packet.message)
        self.wires.send_all(self.safe, Announce(packet.message), source)
        self.wires.deliver(packet.message)


class AnnouncesLarge(Preventive):
    """C22: of large messages only the name is sent at first, and small ones do not wait for them."""

    broadcast_type = _AnnouncesLarge

    def _on_announce(self, connection: Connection, _line: Line, announce: Announce) -> None:
        if announce.message.number > self.broadcast.has(announce.message.origin):
            self.wires.send(connection, Fetch(announce.message))

    def _on_fetch(self, connection: Connection, _line: Line, fetch: Fetch) -> None:
        self.wires.send(connection, Data(fetch.message))


AnnouncesLarge.handlers = {
    **Preventive.handlers, Announce: AnnouncesLarge._on_announce, Fetch: AnnouncesLarge._on_fetch,
}  # fmt: skip


class LeavesAtOnce(Preventive):
    """PRV-6.9: who leaves goes at once, whether it was heard or not."""

    def on_leave(self) -> None:
        self._depart()


class _Careless(Farewells):
    def met(self, connection: Connection, number: int, safe: tuple[Connection, ...]) -> None:
        self.wires.send(connection, Heard(number))


class AnswersWhileLeaving(Preventive):
    """PRV-6.9: who leaves itself says that it has heard a farewell, as if it stayed."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.leaving = self.links.leaving = _Careless(self.wires, self.options)


def entry_of(machine: type[Preventive]) -> ProtocolInfo:
    """The mutant as a protocol."""
    return msgspec.structs.replace(PREVENTIVE, build_overlay=machine)

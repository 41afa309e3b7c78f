"""The daisy chain with its weakest safe rule: visit only servers whose news no earlier message has taken along.

A server keeps, for each of its deliveries, the clock it had right after it, so that a visitor takes along exactly what
it depends on. A flush empties these logs now and then.
Spec: docs/protocols/daisy-chain.md (DCC-V1 to DCC-V4, DCC-F1 to DCC-F5).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Self

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.protocols.daisy_chain.clocks import Clock, is_covered, merged, row, zeros
from ordercast.protocols.daisy_chain.machine import ChainOptions, DaisyChain
from ordercast.protocols.daisy_chain.rules import NOWHERE, Rule
from ordercast.protocols.multicast.multicast import Ranks


class FlushAsk(Packet, frozen=True, tag=5):
    """Asks the lowest server to begin a flush."""

    epoch: int


class Mark(Packet, frozen=True, tag=6):
    """Nothing of this epoch follows on the channel."""

    epoch: int


class Flushed(Packet, frozen=True, tag=7):
    """Nothing of this epoch is on its way anywhere."""

    epoch: int


class Cover(Rule):
    """DCC-V1 to DCC-V4: what earlier messages took along to each server, and what each delivery depended on."""

    constant: ClassVar[tuple[str, ...]] = (*Rule.constant, "nothing")
    durable: ClassVar[tuple[str, ...]] = ("covers", "base", "log")

    def __init__(self, me: int, size: int) -> None:
        super().__init__(me)
        self.nothing = zeros(size)
        self.covers: dict[int, Clock] = {}
        """The clock of the last message delivered here for each server above."""
        self.base = self.nothing
        """The clock at the last flush, which stands for all deliveries before it."""
        self.log: dict[int, list[Clock]] = {}
        """Per entry server the clocks right after the deliveries since then."""

    def delivered(self, ranks: Ranks, _before: Clock, after: Clock) -> int:
        """DCC-V1, DCC-V2: visit the servers in between that the next destination may not know all about."""
        tail = ranks[0]
        if tail < self.me:
            self.log.setdefault(tail, []).append(after)
        target = self.next_destination(ranks)
        if target == NOWHERE:
            return NOWHERE
        cover = self.covers.get(target, self.nothing)
        for rank in ranks:
            if rank > self.me:
                self.covers[rank] = after
        return self._first_visit(after, target, cover)

    def passed(self, ranks: Ranks, carried: Clock, clock: Clock) -> tuple[Clock, int]:
        """DCC-V3, DCC-V4: take along what the message's own past knew here, and no more."""
        taken = self._with_its_past(carried, clock)
        target = self.next_destination(ranks)
        cover = self.covers.get(target, self.nothing)
        if not is_covered(row(cover, target), row(taken, target)):
            cover = self.nothing  # The message would not wait for the one that took the news along.
        return taken, self._first_visit(taken, target, cover)

    def _with_its_past(self, carried: Clock, _clock: Clock) -> Clock:
        taken = carried
        for tail, count in enumerate(row(carried, self.me)):
            if count:
                taken = merged(taken, self._after(tail, count))
        return taken

    def _after(self, tail: int, count: int) -> Clock:
        """The clock after that message, or at the flush that came later."""
        since = count - row(self.base, self.me)[tail]
        return self.log[tail][since - 1] if since > 0 else self.base

    def _first_visit(self, clock: Clock, target: int, cover: Clock) -> int:
        for head in range(self.me + 1, target):
            if not is_covered(row(clock, head), row(cover, head)):
                return head
        return target

    def logged(self) -> int:
        return sum(map(len, self.log.values()))

    def flush(self, clock: Clock) -> None:
        self.base = clock
        self.log = {}

    def copy(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.covers = self.covers.copy()
        clone.log = {tail: clocks.copy() for tail, clocks in self.log.items()}
        return clone

    def frozen(self) -> Hashable:
        log = frozenset((tail, tuple(clocks)) for tail, clocks in self.log.items())
        return (self.base, log, frozenset(self.covers.items()))


class CoverChain(DaisyChain):
    """A daisy chain under the rule `cover`, with the flush that keeps its logs short."""

    constant: ClassVar[tuple[str, ...]] = (*DaisyChain.constant, "flush_every")
    durable: ClassVar[tuple[str, ...]] = (
        *DaisyChain.durable, "epoch", "marks", "marked", "asked", "wanted", "delayed",
    )  # fmt: skip

    visits_neighbours: ClassVar[bool] = False

    rule: Cover

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.flush_every: int = options.flush_every
        self.epoch = 0
        self.marks = 0
        """Marks that have arrived; each server below sends one an epoch."""
        self.marked = False
        """Whether this server has sent its own, and so must not begin anything."""
        self.asked = False
        self.wanted = False
        """At the lowest server: somebody wants another flush after the present one."""
        self.delayed: list[tuple[Message, Ranks]] = []
        """Clients' copies that wait for the end of the flush."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Cover:
        return Cover(me, size)

    def _on_ask(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        if self.marked:
            self.delayed.append((message, ranks))
        else:
            super()._on_ask(message, ranks, out)

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        match packet:
            case FlushAsk(epoch):
                self._on_flush_ask(peer, epoch, out)
            case Mark(epoch):
                self._on_mark(peer, epoch, out)
            case Flushed(epoch):
                self._on_flushed(peer, epoch, out)
            case _:
                super()._on_step(peer, packet, out)
                self._ask_for_flush(out)

    # The flush

    def _ask_for_flush(self, out: Outbox) -> None:
        """DCC-F1: a log that has grown long asks the lowest server, once an epoch."""
        if self.me and not self.asked and not self.marked and self.rule.logged() >= self.flush_every:
            self.asked = True
            out.send(self.servers[0], FlushAsk(self.epoch))

    def _on_flush_ask(self, peer: NodeId, epoch: int, out: Outbox) -> None:
        """DCC-F1: begin, unless that epoch is over or ending already."""
        if self.me or self.rank.get(peer, 0) == 0:
            raise PeerError(peer, f"asks {self.node} for a flush, which is for another server to decide")
        if epoch < self.epoch:
            return
        if self.marked:
            self.wanted = self.wanted or epoch > self.epoch
        else:
            self._mark(out)

    def _on_mark(self, peer: NodeId, epoch: int, out: Outbox) -> None:
        """DCC-F2: count the marks from below; the first of the next epoch may overtake the end of this one."""
        if not 0 <= self.rank.get(peer, -1) < self.me or epoch != self.epoch + self.marked:
            raise PeerError(peer, f"marks epoch {epoch}, which {self.node} does not expect of it")
        self.marks += 1
        self._mark_if_due(out)

    def _mark_if_due(self, out: Outbox) -> None:
        if self.me and self.marks == self.me and not self.marked:
            self._mark(out)

    def _mark(self, out: Outbox) -> None:
        """DCC-F3: nothing can come from below any more, so the log has no reader left in this epoch."""
        if self.held:
            raise InvariantError(f"{self.node} still holds {self.held[0].message.id} back at the end of an epoch")
        self.rule.flush(self.clock)
        self.marks = 0
        self.marked = True
        for server in self.servers[self.me + 1 :]:
            out.send(server, Mark(self.epoch))
        if self.me == len(self.servers) - 1:
            for server in self.servers[: self.me]:
                out.send(server, Flushed(self.epoch))
            self._begin_epoch(out)

    def _on_flushed(self, peer: NodeId, epoch: int, out: Outbox) -> None:
        if peer != self.servers[-1] or epoch != self.epoch or not self.marked:
            raise PeerError(peer, f"ends epoch {epoch}, which {self.node} has not marked")
        self._begin_epoch(out)

    def _begin_epoch(self, out: Outbox) -> None:
        """DCC-F4, DCC-F5: the clients' copies that waited enter now; the next flush may already be due."""
        self.epoch += 1
        self.marked = self.asked = False
        delayed, self.delayed = self.delayed, []
        for message, ranks in delayed:
            super()._on_ask(message, ranks, out)
        if self.wanted:
            self.wanted = False
            self._mark(out)
        else:
            self._mark_if_due(out)

    def copy(self) -> Self:
        clone = super().copy()
        clone.delayed = self.delayed.copy()
        return clone

    def frozen(self) -> Hashable:
        flush = (self.epoch, self.marks, self.marked, self.asked, self.wanted, tuple(self.delayed))
        return (super().frozen(), flush)

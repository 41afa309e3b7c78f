"""The baselines on trees with one rule broken at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.machine import Machine, Outbox
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.tree.causal_barriers import CAUSAL_BARRIERS, CausalBarriers
from ordercast.protocols.tree.causal_barriers_lists import Header, Nodes, within
from ordercast.protocols.tree.cbcast import CBCAST, Cbcast
from ordercast.protocols.tree.cbcast_clocks import Clock, Data, Entry, Joined
from ordercast.protocols.tree.delta_neighbourhood import DELTA_NEIGHBOURHOOD, DeltaNeighbourhood
from ordercast.protocols.tree.delta_neighbourhood_state import Done, Entries, Progress


def _with(info: ProtocolInfo, name: str, machine: type[Machine]) -> ProtocolInfo:
    return msgspec.structs.replace(info, name=name, build=machine)


class LooksAtOneGroup(Cbcast):
    """C2 for the message's own group only."""

    def _obstacle(self, entry: Entry, clock: Clock) -> Entry | None:
        slot, number = entry
        if self.clock[slot] < number - 1:
            return slot, number - 1
        own = Joined(self.layout, frozenset({self.layout.group(slot)}))
        return self.clock.first_ahead(clock, own, slot)


class LearnsNothing(Cbcast):
    """C3 without the groups of others: causality ends at a node that is not a member."""

    def _learn(self, entry: Entry, clock: Clock) -> None:
        self.clock = self.clock.counting(*entry)


class IgnoresGaps(Cbcast):
    """C2 without the publisher's own messages."""

    def _obstacle(self, entry: Entry, clock: Clock) -> Entry | None:
        return self.clock.first_ahead(clock, self.joined, entry[0])


class Maximises(Cbcast):
    """C5 with the maximum of two clocks on a link instead of the later one."""

    def _readable(self, peer: int, packet: Data) -> Any:
        link, maxima = self.incoming[peer], []
        for readable, clock in super()._readable(peer, packet):
            link.maximum = clock.merged(getattr(link, "maximum", clock))  # type: ignore[attr-defined]
            maxima.append((readable, link.maximum))  # type: ignore[attr-defined]
        return maxima


class ReadsOutOfTurn(Cbcast):
    """C5 against whatever clock came last."""

    def _readable(self, peer: int, packet: Data) -> Any:
        link = self.incoming[peer]
        before = link.clock if self.delta else self.layout.empty
        slots, changes = packet.clock.slots(), packet.clock.changes()
        for slot, change in zip(slots.tolist(), changes.tolist(), strict=True):
            before = before.counting(slot, before[slot] + change)
        link.clock = before
        return [(packet, link.clock)]


class ForgetsItsClock(Cbcast):
    durable = tuple(name for name in Cbcast.durable if name != "clock")


class ForgetsItsReferences(Cbcast):
    durable = tuple(name for name in Cbcast.durable if name != "last_sent")


class IgnoresBarriers(CausalBarriers):
    """B2 without the test."""

    def _obstacle(self, header: Header) -> tuple[int, int] | None:
        return None


class ForgetsWhatOthersWaitFor(CausalBarriers):
    """B3, B4 for the targets of the message only."""

    def _take_in(self, publisher: int, number: int, targets: Nodes, header: Header) -> None:
        lists = {other: kept for other, waits in header.lists.items() if (kept := within(waits, targets))}
        super()._take_in(publisher, number, targets, Header(lists))


class ReplacesTooMuch(CausalBarriers):
    """B3, taking the delivered message for a barrier that implies every other."""

    def _take_in(self, publisher: int, number: int, targets: Nodes, header: Header) -> None:
        kept = {other: within(waits, ~targets) for other, waits in self.barriers.items()}
        self.barriers = {other: waits for other, waits in kept.items() if waits}
        super()._take_in(publisher, number, targets, header)


class PrunesTooMuch(CausalBarriers):
    """B5 for every node and not only for the publisher."""

    def _prune(self, publisher: int, number: int, header: Header) -> None:
        for node in range(len(self.routes.nodes)):
            if node != self.me:
                super()._prune(node, number, Header(header.lists))


class ForgetsItsBarriers(CausalBarriers):
    durable = tuple(name for name in CausalBarriers.durable if name != "barriers")


class ForgetsWhatItDelivered(CausalBarriers):
    durable = tuple(name for name in CausalBarriers.durable if name != "delivered")


class ComparesWithTheHighest(DeltaNeighbourhood):
    """D1: a value that is not higher than the highest met counts as met."""

    def _is_known(self, entries: Entries) -> bool:
        return any(entry[1] <= max(self.met[entry[0]].values, default=0) for entry in entries if entry)


class Pipelines(DeltaNeighbourhood):
    """N1 without waiting."""

    def _publish_next(self, out: Outbox) -> None:
        self.current = 0
        super()._publish_next(out)


class AcknowledgesAtOnce(DeltaNeighbourhood):
    """N5 before those behind have the message."""

    def _take_over(self, message: Message, entries: Entries, came: int, asked: int, out: Outbox) -> None:
        if entries:
            out.send(self.routes.nodes[came], Done(asked, self._low()))
        super()._take_over(message, entries, came, asked, out)


class JumpsUnsafely(DeltaNeighbourhood):
    """N3 without the limit."""

    def _is_safe(self, progress: Progress, hop: int) -> bool:
        return True


class NumbersAnew(DeltaNeighbourhood):
    """N4: another copy is taken for another message."""

    def _is_known(self, entries: Entries) -> bool:
        return False


class NeverResends(DeltaNeighbourhood):
    def on_timer(self, _name: object, out: Outbox) -> None:
        self.armed = False


class RaisesTheLowMarkTooFar(DeltaNeighbourhood):
    """N6: says that all it has numbered is complete."""

    def _low(self) -> int:
        return self.value + 1


class ForgetsValues(DeltaNeighbourhood):
    durable = tuple(name for name in DeltaNeighbourhood.durable if name != "met")


CBCAST_MUTANTS = [
    _with(CBCAST, "looks-at-one-group", LooksAtOneGroup),
    _with(CBCAST, "learns-nothing", LearnsNothing),
    _with(CBCAST, "ignores-gaps", IgnoresGaps),
    _with(CBCAST, "maximises", Maximises),
    _with(CBCAST, "reads-out-of-turn", ReadsOutOfTurn),
    _with(CBCAST, "forgets-its-clock", ForgetsItsClock),
    _with(CBCAST, "forgets-its-references", ForgetsItsReferences),
]
BARRIER_MUTANTS = [
    _with(CAUSAL_BARRIERS, "ignores-barriers", IgnoresBarriers),
    _with(CAUSAL_BARRIERS, "forgets-what-others-wait-for", ForgetsWhatOthersWaitFor),
    _with(CAUSAL_BARRIERS, "replaces-too-much", ReplacesTooMuch),
    _with(CAUSAL_BARRIERS, "prunes-too-much", PrunesTooMuch),
    _with(CAUSAL_BARRIERS, "forgets-its-barriers", ForgetsItsBarriers),
    _with(CAUSAL_BARRIERS, "forgets-what-it-delivered", ForgetsWhatItDelivered),
]
DELTA_MUTANTS = [
    _with(DELTA_NEIGHBOURHOOD, "compares-with-the-highest", ComparesWithTheHighest),
    _with(DELTA_NEIGHBOURHOOD, "pipelines", Pipelines),
    _with(DELTA_NEIGHBOURHOOD, "acknowledges-at-once", AcknowledgesAtOnce),
    _with(DELTA_NEIGHBOURHOOD, "jumps-unsafely", JumpsUnsafely),
    _with(DELTA_NEIGHBOURHOOD, "numbers-anew", NumbersAnew),
    _with(DELTA_NEIGHBOURHOOD, "never-resends", NeverResends),
    _with(DELTA_NEIGHBOURHOOD, "raises-the-low-mark-too-far", RaisesTheLowMarkTooFar),
    _with(DELTA_NEIGHBOURHOOD, "forgets-values", ForgetsValues),
]

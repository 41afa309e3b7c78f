"""The baselines on trees with one rule broken at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.machine import Machine, Outbox
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.causal_barriers import CAUSAL_BARRIERS, Barrier, CausalBarriers
from ordercast.protocols.cbcast import CBCAST, Cbcast, Publication
from ordercast.protocols.cbcast_clocks import Clock, Data, assigned, merged
from ordercast.protocols.delta_neighbourhood import DELTA_NEIGHBOURHOOD, DeltaNeighbourhood
from ordercast.protocols.delta_neighbourhood_state import Done, Entries, Progress


def _with(info: ProtocolInfo, name: str, machine: type[Machine]) -> ProtocolInfo:
    return msgspec.structs.replace(info, name=name, build=machine)


class LooksAtOneGroup(Cbcast):
    """C2 for the message's own group only."""

    def _obstacle(self, publication: Publication, clock: Clock) -> Publication | None:
        group = publication[0]
        return super()._obstacle(publication, {group: clock[group]})


class LearnsNothing(Cbcast):
    """C3 without the groups of others: causality ends at a node that is not a member."""

    def _learn(self, clock: Clock) -> None:
        pass


class IgnoresGaps(Cbcast):
    """C2 without the publisher's own messages."""

    def _obstacle(self, publication: Publication, clock: Clock) -> Publication | None:
        obstacle = super()._obstacle(publication, clock)
        return None if obstacle is not None and obstacle[:2] == publication[:2] else obstacle


class Maximises(Cbcast):
    """C5 with the maximum of two clocks on a link instead of the later one."""

    def _readable(self, peer: int, packet: Data) -> Any:
        link = self.incoming[peer]
        for readable, clock in super()._readable(peer, packet):
            before = getattr(link, "maximum", {})
            link.maximum = {  # type: ignore[attr-defined]
                group: merged(before.get(group, {}), clock.get(group, {})) for group in {**before, **clock}
            }
            yield readable, link.maximum  # type: ignore[attr-defined]


class ReadsOutOfTurn(Cbcast):
    """C5 against whatever clock came last."""

    def _readable(self, peer: int, packet: Data) -> Any:
        link = self.incoming[peer]
        link.clock = assigned(packet.clock, link.clock if self.delta else {})
        yield packet, link.clock


class ForgetsItsClock(Cbcast):
    durable = tuple(name for name in Cbcast.durable if name != "clock")


class ForgetsItsReferences(Cbcast):
    durable = tuple(name for name in Cbcast.durable if name != "last_sent")


class IgnoresBarriers(CausalBarriers):
    """B2 without the test."""

    def _obstacle(self, barrier: Barrier) -> tuple[int, int] | None:
        return None


class ForgetsWhatOthersWaitFor(CausalBarriers):
    """B3, B4 for the targets of the message only."""

    def _deliver(self, message: Message, targets: tuple[int, ...], theirs: dict[int, Barrier], out: Outbox) -> None:
        super()._deliver(message, targets, {node: theirs[node] for node in targets if node in theirs}, out)


class ReplacesTooMuch(CausalBarriers):
    """B3, taking the delivered message for a barrier that implies every other."""

    def _replaced(self, mine: Barrier, theirs: Barrier) -> Barrier:
        return ()


class PrunesTooMuch(CausalBarriers):
    """B5 for every node and not only for the publisher."""

    def _prune(self, publisher: int, number: int, theirs: dict[int, Barrier]) -> None:
        for node in range(len(self.routes.nodes)):
            if node != self.me:
                super()._prune(node, number, theirs)


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
    durable = tuple(name for name in DeltaNeighbourhood.durable if name not in {"met", "names"})


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

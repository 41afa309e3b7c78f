"""The atomic multicast protocols with one thing broken at a time."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.daisy_chain.clocks import Clock, first_edge, merged, with_changes, zeros
from ordercast.protocols.daisy_chain.cover import Cover, CoverChain
from ordercast.protocols.daisy_chain.machine import ChainOptions
from ordercast.protocols.daisy_chain.packets import Carried, ClockChannels
from ordercast.protocols.daisy_chain.rules import NOWHERE, Lite, Rule, Strict
from ordercast.protocols.daisy_chain.variants import DAISY_CHAIN, LiteChain, StrictChain
from ordercast.protocols.multicast.delporte_fauconnier import DELPORTE_FAUCONNIER, DelporteFauconnier
from ordercast.protocols.multicast.multicast import Ranks
from ordercast.protocols.multicast.skeen import SKEEN, Skeen, SkeenRecord, Timestamp


def mutant(original: ProtocolInfo, name: str, build: Any) -> ProtocolInfo:
    return msgspec.structs.replace(original, name=name, build=build)


# Skeen


class ClockDoesNotCatchUp(Skeen):
    """Later proposals may be lower than a final timestamp."""

    def _catch_up(self, _final: Timestamp) -> None:
        pass


class DeliversOverLowerProposals(Skeen):
    """Whatever has its final timestamp is delivered, although something pending may come before it."""

    def _settle(self, key: Any, record: SkeenRecord, out: Outbox) -> None:
        if len(record.proposals) == len(record.ranks) and record.own is not None:
            self.line.remove((record.own, key))
            self.line.insert(0, (record.proposals[-1], key))
            self._catch_up(record.proposals[-1])
            self.records[key] = msgspec.structs.replace(record, final=record.proposals[-1])
            self._deliver(self.records[key], out)
        else:
            self.records[key] = record


class DeliversBeforeTheFinalTimestamp(Skeen):
    """Does not wait for the proposals of the others."""

    def _on_ask(self, message: Message, _ranks: Ranks, out: Outbox) -> None:
        out.deliver(message)
        self._answer(message, out)


CLOCK_DOES_NOT_CATCH_UP = mutant(SKEEN, "clock-does-not-catch-up", ClockDoesNotCatchUp)
DELIVERS_OVER_LOWER_PROPOSALS = mutant(SKEEN, "delivers-over-lower-proposals", DeliversOverLowerProposals)
DELIVERS_BEFORE_THE_FINAL_TIMESTAMP = mutant(
    SKEEN, "delivers-before-the-final-timestamp", DeliversBeforeTheFinalTimestamp
)

# Delporte-Gallet and Fauconnier


class LosesAnEnd(DelporteFauconnier):
    """The lowest destination is not told."""

    def _finish(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        super()._finish(message, ranks if self.me == 0 else ranks[1:], out)


class DoesNotWait(DelporteFauconnier):
    """Goes on to the next message before the last one has ended."""

    def _pass_on(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        super()._pass_on(message, ranks, out)
        self.current = None

    def _on_end(self, peer: Any, key: Any, out: Outbox) -> None:
        pass


LOSES_AN_END = mutant(DELPORTE_FAUCONNIER, "loses-an-end", LosesAnEnd)
DOES_NOT_WAIT = mutant(DELPORTE_FAUCONNIER, "does-not-wait", DoesNotWait)

# Daisy chain


class IgnoresOneEdge(LiteChain):
    """Does not wait for what came from the first server."""

    def _is_enabled(self, carried: Carried) -> bool:
        edge = first_edge(self.me)
        if carried.ranks[0] != 0 and self.me:
            clock = (*carried.clock[:edge], 0, *carried.clock[edge + 1 :])
            carried = msgspec.structs.replace(carried, clock=clock)
        return super()._is_enabled(carried)


class NeverVisits(LiteChain):
    """Always goes straight to the next destination."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Rule:
        return _Straight(me, size)


class _Straight(Lite):
    def delivered(self, ranks: Ranks, _before: Clock, _after: Clock) -> int:
        return self.next_destination(ranks)


class ComparesDestinationsOnly(StrictChain):
    """Skips behind a message with the same destinations, whatever else became known."""

    def _rule(self, me: int, _size: int, _options: ChainOptions) -> Rule:
        return _SameDestinations(me)


class _SameDestinations(Strict):
    def delivered(self, ranks: Ranks, _before: Clock, _after: Clock) -> int:
        follows, self.last = ranks == self.last, ranks
        target = self.next_destination(ranks)
        return target if follows or target == NOWHERE else self.me + 1


class LiteKeepsCrossedCovers(LiteChain):
    """A server that is crossed without being skipped still counts as covered."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Rule:
        return _KeepsCrossed(me, size)


class _KeepsCrossed(Lite):
    def _renew_covers(self, ranks: Ranks, _target: int, _fast: bool) -> None:
        for rank in ranks:
            if rank > self.me:
                self.cover_at[rank] = self.count


class LiteKeepsStaleCovers(LiteChain):
    """News of messages that are delivered elsewhere do not matter."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Rule:
        return _KeepsStale(me, size)


class _KeepsStale(Lite):
    def _forget_covers(self) -> None:
        pass


class CoverWithoutLog(CoverChain):
    """Visits take along all that is known, not only their own past."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Cover:
        return _NoLog(me, size)


class _NoLog(Cover):
    def _with_its_past(self, carried: Clock, clock: Clock) -> Clock:
        return merged(carried, clock)


class MergesReducedClocks(CoverChain):
    """The receiver takes the maximum over the channel's history, so decreases are lost."""

    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.channels = _Maximum(self.channels.me, self.channels.size, reduced=True, keeps_all_heads=False)


class _Maximum(ClockChannels):
    def decode(self, counters: tuple[int, ...], by: int, *, whole: bool) -> Clock | None:
        reference = self.received.get(by) or zeros(self.size)
        changed = with_changes(reference, counters)
        if changed is not None:
            self.received[by] = changed = merged(reference, changed)
        return changed


IGNORES_ONE_EDGE = mutant(DAISY_CHAIN, "ignores-one-edge", IgnoresOneEdge)
NEVER_VISITS = mutant(DAISY_CHAIN, "never-visits", NeverVisits)
COMPARES_DESTINATIONS_ONLY = mutant(DAISY_CHAIN, "compares-destinations-only", ComparesDestinationsOnly)
LITE_KEEPS_CROSSED_COVERS = mutant(DAISY_CHAIN, "lite-keeps-crossed-covers", LiteKeepsCrossedCovers)
LITE_KEEPS_STALE_COVERS = mutant(DAISY_CHAIN, "lite-keeps-stale-covers", LiteKeepsStaleCovers)
COVER_WITHOUT_LOG = mutant(DAISY_CHAIN, "cover-without-log", CoverWithoutLog)
MERGES_REDUCED_CLOCKS = mutant(DAISY_CHAIN, "merges-reduced-clocks", MergesReducedClocks)

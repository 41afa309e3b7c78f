"""Daisy chains that leave out one thing that the corrected protocol needs: the explorer must find what it is for."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.daisy_chain.clocks import Clock, merged
from ordercast.protocols.daisy_chain.cover import Cover, CoverChain
from ordercast.protocols.daisy_chain.rules import NOWHERE, Lite, Strict
from ordercast.protocols.daisy_chain.variants import DAISY_CHAIN, LiteChain, StrictChain
from ordercast.protocols.multicast.multicast import Ranks


class LogLessCover(Cover):
    """Takes along all that is known, instead of what the message depends on."""

    def _with_its_past(self, carried: Clock, clock: Clock) -> Clock:
        return merged(carried, clock)


class LogLessChain(CoverChain):
    def _rule(self, me: int, size: int, _options: Any) -> Cover:
        return LogLessCover(me, size)


class CrossedCovers(Lite):
    """Keeps covers that a slow message has crossed."""

    def _renew_covers(self, ranks: Ranks, target: int, fast: bool) -> None:
        for head in ranks:
            if head > self.me:
                self.cover_at[head] = self.count


class CrossedChain(LiteChain):
    def _rule(self, me: int, size: int, _options: Any) -> Lite:
        return CrossedCovers(me, size)


class StaleCovers(Lite):
    """Keeps covers although a message became known that this server never delivers."""

    def _forget_covers(self) -> None:
        return


class StaleChain(LiteChain):
    def _rule(self, me: int, size: int, _options: Any) -> Lite:
        return StaleCovers(me, size)


class SameDestinations(Strict):
    """Looks at the destinations of the last message only."""

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        follows, self.last = ranks == self.last, ranks
        target = self.next_destination(ranks)
        return target if target == NOWHERE or follows else self.me + 1


class SameDestinationsChain(StrictChain):
    def _rule(self, me: int, _size: int, _options: Any) -> Strict:
        return SameDestinations(me)


def _broken(build: Any) -> ProtocolInfo:
    return msgspec.structs.replace(DAISY_CHAIN, name="broken", build=build)


LOG_LESS = _broken(LogLessChain)
CROSSED = _broken(CrossedChain)
STALE = _broken(StaleChain)
SAME_DESTINATIONS = _broken(SameDestinationsChain)

"""Which server a message of the daisy chain goes to next: the rules that decide when it may skip the ones in between.

A hop over the servers between two destinations is fast if it skips them and slow if it visits each. The rules here
are safe; `cover` has a file of its own. Spec: docs/protocols/daisy-chain.md (DCC-R1 to DCC-R3).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Self

from ordercast.core.state import State
from ordercast.protocols.daisy_chain.clocks import Clock, grew_by_one_message, merged, row
from ordercast.protocols.multicast.multicast import Ranks

NOWHERE = -1
"""There is no next server: the message has been at its last destination."""


class Rule(State):
    """One server's memory of what it has delivered, as far as the next hop depends on it."""

    constant: ClassVar[tuple[str, ...]] = ("me",)

    def __init__(self, me: int) -> None:
        self.me = me

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        """The message for `ranks` was delivered here, which raised the clock; the server it goes to next."""
        raise NotImplementedError

    def passed(self, _ranks: Ranks, carried: Clock, clock: Clock) -> tuple[Clock, int]:
        """DCC-R1: a message that only visits takes all that is known here along to the next server."""
        return merged(carried, clock), self.me + 1

    def next_destination(self, ranks: Ranks) -> int:
        me = self.me
        for rank in ranks:
            if rank > me:
                return rank
        return NOWHERE


class Strict(Rule):
    """DCC-R2: skip only right behind a message with the same destinations, if nothing else became known meanwhile."""

    durable: ClassVar[tuple[str, ...]] = ("last",)

    def __init__(self, me: int) -> None:
        super().__init__(me)
        self.last: Ranks = ()

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        follows, self.last = ranks == self.last, ranks
        target = self.next_destination(ranks)
        if target == NOWHERE or (follows and grew_by_one_message(before, after, ranks, self.me)):
            return target
        return self.me + 1

    def copy(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def frozen(self) -> Hashable:
        return self.last


class Lite(Rule):
    """DCC-R3: skip if an earlier message to the same next destination saw all that concerns the servers in between.

    The clock of that earlier message need not be kept: it is enough to know at which delivery it was current, and at
    which delivery each server was last heard of.
    """

    durable: ClassVar[tuple[str, ...]] = ("count", "news_at", "cover_at")

    def __init__(self, me: int, size: int) -> None:
        super().__init__(me)
        self.count = 0
        """Deliveries so far."""
        self.news_at = [0] * size
        """The delivery at which something addressed to a server last became known."""
        self.cover_at = [0] * size
        """The delivery of the last message to a server that later ones may follow; -1: there is none."""

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        self.count += 1
        if grew_by_one_message(before, after, ranks, self.me):
            heads = [rank for rank in ranks if rank > self.me]
        else:
            self._forget_covers()
            above = range(self.me + 1, len(self.news_at))
            heads = [head for head in above if row(before, head) != row(after, head)]
        for head in heads:
            self.news_at[head] = self.count
        target = self.next_destination(ranks)
        if target == NOWHERE:
            return NOWHERE
        fast = self._is_covered(target)
        self._renew_covers(ranks, target, fast)
        return target if fast else self.me + 1

    def _is_covered(self, target: int) -> bool:
        cover = self.cover_at[target]
        return cover >= 0 and all(news <= cover for news in self.news_at[self.me + 1 : target])

    def _forget_covers(self) -> None:
        """R3a: a message that this server never delivers became known; nothing sent before knew of it."""
        self.cover_at = [-1] * len(self.cover_at)

    def _renew_covers(self, ranks: Ranks, target: int, fast: bool) -> None:
        """R3b: the message covers its destinations; what it crosses without skipping is covered no more."""
        for head in range(self.me + 1, ranks[-1] + 1):
            if head in ranks:
                self.cover_at[head] = self.count
            elif not fast or head > target:
                self.cover_at[head] = -1

    def copy(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.news_at = self.news_at.copy()
        clone.cover_at = self.cover_at.copy()
        return clone

    def frozen(self) -> Hashable:
        return (self.count, *self.news_at, *self.cover_at)

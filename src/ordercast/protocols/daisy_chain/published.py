"""The daisy chain as its article prints it: unsafe, kept to show what goes wrong and what each correction mends.

Messages can be delivered in a cycle, and servers can wait for each other for ever. Spec: docs/protocols/daisy-chain.md
(DCC-P1 to DCC-P4 and the corrections DCC-C1 to DCC-C6).
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import sub
from typing import ClassVar, Literal, Self

from ordercast.core.machine import Place
from ordercast.protocols.daisy_chain.clocks import Clock, is_covered, merged, row, zeros
from ordercast.protocols.daisy_chain.machine import ChainOptions, DaisyChain
from ordercast.protocols.daisy_chain.packets import Carried
from ordercast.protocols.daisy_chain.rules import NOWHERE, Rule, Strict
from ordercast.protocols.multicast.multicast import Ranks


class PublishedChainOptions(ChainOptions, frozen=True, forbid_unknown_fields=True):
    """Options that say how much of the article is taken literally."""

    reduced: bool = False
    corrections: tuple[Literal["C1", "C2", "C4"], ...] = ()
    """DCC-C1: visits wait for messages of their own entry server. DCC-C4: a message stops at its last destination.
    DCC-C2: the strict rule, which stops there too."""
    buffer: Literal["oldest", "newest"] = "oldest"
    """Which of several held packets is taken first; the article leaves it open, DCC-C3 demands the oldest."""
    first: Literal["slow", "fast"] = "slow"
    """The first message of a server; the article leaves it open, DCC-C6 demands slow."""


class SameDelta(Rule):
    """DCC-P1: skip if the clock grew by just as much as at the delivery before."""

    constant: ClassVar[tuple[str, ...]] = (*Rule.constant, "size", "stops")
    durable: ClassVar[tuple[str, ...]] = ("last",)

    def __init__(self, me: int, size: int, *, first_is_fast: bool, stops: bool) -> None:
        super().__init__(me)
        self.size = size
        self.stops = stops
        self.last: Clock | None = None if first_is_fast else zeros(size)
        """By how much each counter grew at the last delivery."""

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        delta = tuple(map(sub, after, before))
        fast = self.last is None or delta == self.last
        self.last = delta
        target = self.next_destination(ranks)
        return target if fast or (self.stops and target == NOWHERE) else self._above()

    def passed(self, _ranks: Ranks, carried: Clock, clock: Clock) -> tuple[Clock, int]:
        return merged(carried, clock), self._above()

    def _above(self) -> int:
        """DCC-P2: upwards even past the last destination, as far as there are servers."""
        return self.me + 1 if self.me + 1 < self.size else NOWHERE

    def copy(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        return clone

    def frozen(self) -> Hashable:
        return self.last


class PublishedChain(DaisyChain):
    """One server or client of the article."""

    constant: ClassVar[tuple[str, ...]] = (*DaisyChain.constant, "waits_for_own_entry", "newest_first")

    name: ClassVar[str] = "daisy-chain-published"
    keeps_all_heads: ClassVar[bool] = True

    def __init__(self, place: Place, options: PublishedChainOptions) -> None:
        super().__init__(place, options)
        self.waits_for_own_entry = "C1" in options.corrections
        self.newest_first = options.buffer == "newest"

    def _rule(self, me: int, size: int, options: PublishedChainOptions) -> Rule:
        if "C2" in options.corrections:
            return Strict(me)
        return SameDelta(me, size, first_is_fast=options.first == "fast", stops="C4" in options.corrections)

    def _is_enabled(self, carried: Carried) -> bool:
        """DCC-P3: a visit does not look at the counter of its own entry server."""
        if self.waits_for_own_entry or self.me in carried.ranks:
            return super()._is_enabled(carried)
        tail = carried.ranks[0]
        due, mine = row(carried.clock, self.me), row(self.clock, self.me)
        return is_covered((*due[:tail], *due[tail + 1 :]), (*mine[:tail], *mine[tail + 1 :]))

    def _check_visit(self, _carried: Carried) -> None:
        """DCC-P2: a visit may have no destination left."""

    def _next_ready(self) -> int | None:
        """DCC-P4: any held packet may be taken."""
        if not self.newest_first:
            return super()._next_ready()
        ready = [i for i, carried in enumerate(self.held) if self._is_enabled(carried)]
        return ready[-1] if ready else None

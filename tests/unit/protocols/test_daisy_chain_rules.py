"""When a message may skip the servers between two destinations."""

from __future__ import annotations

import pytest

from ordercast.core.chance import mix, salt
from ordercast.protocols.daisy_chain.clocks import Clock, grew_by_one_message, is_covered, merged, raised, row, zeros
from ordercast.protocols.daisy_chain.rules import Lite, Rule, Strict
from ordercast.protocols.multicast.multicast import Ranks

SIZE = 6


class LiteWithClocks(Rule):
    """The rule by its definition: whole clocks are remembered instead of delivery numbers."""

    def __init__(self, me: int) -> None:
        super().__init__(me)
        self.covers: dict[int, Clock | None] = dict.fromkeys(range(SIZE), zeros(SIZE))

    def delivered(self, ranks: Ranks, before: Clock, after: Clock) -> int:
        if not grew_by_one_message(before, after, ranks, self.me):
            self.covers = dict.fromkeys(self.covers)
        target = self.next_destination(ranks)
        if target < 0:
            return target
        cover = self.covers[target]
        fast = cover is not None and all(
            is_covered(row(after, head), row(cover, head)) for head in range(self.me + 1, target)
        )
        for head in range(self.me + 1, ranks[-1] + 1):
            if head in ranks:
                self.covers[head] = after
            elif not (fast and head < target):
                self.covers[head] = None
        return target if fast else self.me + 1


def random_deliveries(me: int, seed: int) -> list[tuple[Ranks, Clock, Clock]]:
    """Messages delivered at a server, some with news of messages that are not for it."""
    dice = salt(seed, me)
    clock = zeros(SIZE)
    found = []
    for i in range(60):
        tail = mix(dice, i, 1) % (me + 1)
        members = {rank for rank in range(me + 1, SIZE) if mix(dice, i, 10 + rank) % 3 == 0}
        ranks = tuple(sorted({tail, me} | members))
        after = raised(clock, tail, [rank for rank in ranks if rank > tail])
        if mix(dice, i, 2) % 4 == 0:
            head = me + 1 + mix(dice, i, 3) % (SIZE - me - 1)
            after = raised(after, mix(dice, i, 4) % head, [head])
        found.append((ranks, clock, after))
        clock = after
    return found


@pytest.mark.parametrize("me", range(4))
@pytest.mark.parametrize("seed", range(10))
def test_delivery_numbers_decide_as_whole_clocks_do(me: int, seed: int) -> None:
    lite, definition = Lite(me, SIZE), LiteWithClocks(me)
    deliveries = random_deliveries(me, seed)
    decisions = [lite.delivered(*delivery) for delivery in deliveries]
    assert decisions == [definition.delivered(*delivery) for delivery in deliveries]
    assert len(set(decisions)) > 2


@pytest.mark.parametrize("me", range(4))
def test_what_may_skip_under_strict_may_skip_under_lite(me: int) -> None:
    skipped = 0
    for seed in range(40):
        strict, lite = Strict(me), Lite(me, SIZE)
        for delivery in random_deliveries(me, seed):
            target, weaker = strict.delivered(*delivery), lite.delivered(*delivery)
            if target > me + 1:
                skipped += 1
                assert weaker == target
    assert skipped


def test_strict_does_not_skip_when_something_else_became_known() -> None:
    strict = Strict(1)
    first = raised(zeros(4), 0, [1, 3])
    second = raised(first, 0, [1, 3])
    third = raised(raised(second, 0, [1, 3]), 0, [2])
    assert strict.delivered((0, 1, 3), zeros(4), first) == 2
    assert strict.delivered((0, 1, 3), first, second) == 3
    assert strict.delivered((0, 1, 3), second, third) == 2


def test_a_visit_takes_along_all_that_is_known() -> None:
    rule = Strict(1)
    carried, known = raised(zeros(4), 0, [3]), raised(zeros(4), 1, [2])
    assert rule.passed((0, 3), carried, known) == (merged(carried, known), 2)

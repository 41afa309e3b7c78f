"""BRK-F7: closed sessions are a set, however its parts come together."""

from __future__ import annotations

from random import Random

from ordercast.core.ids import Origin
from ordercast.pubsub.closed import ClosedSessions, senseless

ISSUERS = ("0.b0", "7.b0", "0.x1")


def origin(issuer: str, number: int) -> Origin:
    return Origin(f"ann~1.{number}.{issuer}")


def test_whatever_is_merged_in_whatever_order_is_closed_and_nothing_else() -> None:
    for seed in range(60):
        random = Random(seed)
        closed, expected = ClosedSessions(), set[Origin]()
        for _ in range(random.randrange(1, 8)):
            some = {origin(random.choice(ISSUERS), random.randrange(1, 12)) for _ in range(random.randrange(6))}
            expected |= some
            closed.merge(ClosedSessions().of(some))
            everybody = {origin(issuer, number) for issuer in ISSUERS for number in range(1, 13)}
            assert {one for one in everybody if one in closed} == expected, f"seed {seed}"
            assert not senseless(closed.summary())
        assert closed.summary() == ClosedSessions().of(expected) == ClosedSessions(closed.summary()).summary()


def test_only_what_was_open_is_news() -> None:
    closed = ClosedSessions({"0.b0": (1, 4), "0.x1": (1, 2)})

    assert closed.merge({"0.b0": (2, 3), "0.x1": (1, 2)}) == {}
    assert closed.merge({"0.b0": (4, 6), "0.x1": (1, 2)}) == {"0.b0": (1, 6)}
    assert closed.merge({"7.b0": (3, 5)}) == {"7.b0": (3, 5)}


def test_bounds_that_no_broker_can_have_closed_make_no_sense() -> None:
    for bounds in [(), (1,), (0, 2), (2, 2), (3, 1), (1, 1 << 63), (1, 3, 2, 5), (1, 3, 3, 5), (-1, 2)]:
        assert senseless({"0.b0": bounds}), bounds
    assert senseless({"no issuer": (1, 2)})
    assert not senseless({"0.b0": (1, 2), "0.b1": (1, 3, 5, 7)})

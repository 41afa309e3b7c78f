"""Each definition accepts a history that keeps it and names what breaks it."""

from __future__ import annotations

import random

import pytest

from ordercast.core.messages import Guarantee
from ordercast.explore.promises.precedence import Precedence
from ordercast.explore.promises.properties import (
    Check,
    Histories,
    acyclic,
    agreement,
    causal,
    fifo,
    first_violation,
    integrity,
    prefix,
    safety_checks,
)
from ordercast.explore.scope.configurations import Configuration

BOTH = Configuration(2, ((0, 1), (0, 1)))
TRIANGLE = Configuration(3, ((0, 1), (1, 2), (0, 2)))
BROADCAST = Configuration(3, ((0, 1, 2), (0, 1, 2)), (0, 1))
ONE_PUBLISHER = Configuration(2, ((0, 1), (0, 1)), (0, 0))


@pytest.mark.parametrize(
    ("check", "configuration", "good", "bad", "detail"),
    [
        (integrity, BOTH, ((0, 1), (0,)), ((0, 0), ()), "n0 delivers m1 twice"),
        (integrity, TRIANGLE, ((0,), (0,), ()), ((), (), (0,)), "n2 delivers m1, which is not addressed to it"),
        (agreement, BOTH, ((0, 1), (0, 1)), ((0, 1), (0,)), "n1 never delivers m2"),
        (prefix, BOTH, ((0, 1), (0,)), ((0,), (1,)), "n0 delivers m1 before m2, n1 delivers m2 before m1"),
        (acyclic, TRIANGLE, ((0, 2), (0, 1), (2, 1)), ((2, 0), (0, 1), (1, 2)), "m1 before m2 at n1"),
        (fifo, ONE_PUBLISHER, ((~0, 0, ~1, 1), (0, 1)), ((~0, 0, ~1, 1), (1,)), "n1 delivers m2 without m1"),
        (
            causal,
            BROADCAST,
            ((~0, 0, 1), (0, ~1, 1), (0, 1)),
            ((~0, 0, 1), (0, ~1, 1), (1, 0)),
            "n2 delivers m2 without m1",
        ),
    ],
)
def test_a_definition_tells_the_good_history_from_the_bad_one(
    check: Check, configuration: Configuration, good: Histories, bad: Histories, detail: str
) -> None:
    violation = check(bad, configuration)

    assert check(good, configuration) is None
    assert violation is not None
    assert violation.check == check.__name__
    assert detail in violation.detail


def test_concurrent_messages_may_be_delivered_in_any_order() -> None:
    assert causal(((~0, 0, 1), (~1, 1, 0), (1, 0)), BROADCAST) is None


def test_happened_before_is_followed_through_messages_the_node_has_not_seen() -> None:
    chain = Configuration(3, ((0, 1, 2), (0, 1), (0, 1, 2)), (0, 1, 1))

    violation = causal(((~0, 0), (0, ~1, 1, ~2, 2), (2,)), chain)

    assert violation is not None
    assert "n2 delivers m3 without m1" in violation.detail


@pytest.mark.parametrize(
    ("guarantee", "names"),
    [
        (Guarantee.EVENTUAL, ["integrity"]),
        (Guarantee.FIFO, ["integrity", "fifo"]),
        (Guarantee.CAUSAL, ["integrity", "causal"]),
        (Guarantee.TOTAL, ["integrity", "prefix", "acyclic"]),
        (Guarantee.ATOMIC, ["integrity", "prefix", "acyclic"]),
    ],
)
def test_a_guarantee_is_held_to_its_own_definitions(guarantee: Guarantee, names: list[str]) -> None:
    assert [check.__name__ for check in safety_checks(guarantee)] == names


def test_whatever_breaks_a_definition_is_a_cycle_of_precedence() -> None:
    """The quick test may suspect the innocent, but must never let a violation pass."""
    checks = safety_checks(Guarantee.ATOMIC)
    draw = random.Random(7)
    caught = 0
    for _ in range(3000):
        destinations = tuple(tuple(sorted(draw.sample(range(4), draw.randint(1, 4)))) for _ in range(4))
        configuration = Configuration(4, destinations)
        histories = tuple(_some_history(draw, sorted(configuration.due[node])) for node in range(4))
        precedence = Precedence(configuration)
        union = 0
        for node, history in enumerate(histories):
            union |= precedence.bits(node, history)
        if first_violation(checks, histories, configuration) is not None:
            caught += 1
            assert not precedence.is_acyclic(union), (destinations, histories)
    assert caught > 500


def _some_history(draw: random.Random, due: list[int]) -> tuple[int, ...]:
    history = draw.sample(due, draw.randint(0, len(due)))
    if draw.random() < 0.05:
        history.append(draw.randrange(4))
    return tuple(history)

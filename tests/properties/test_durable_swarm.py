"""Readers with data directories read everything that is kept once and in order, however long they are away."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ordercast.client.deliveries import Deliveries
from ordercast.client.membership import Membership
from ordercast.client.replay import SubscriptionReplay
from ordercast.client.session import Session
from tests.properties.durable_swarm import FAMILIES, try_seed


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_kept_is_read_once_and_in_order_and_nothing_is_missing_in_silence(family: str) -> None:
    read = told = 0
    for seed in range(12):
        problems, counts = try_seed(seed, family)
        assert problems == [], f"python -m tests.properties.durable_swarm --family {family} --first {seed} --seeds 1"
        read, told = read + counts["read"], told + counts["told"]
    assert read > 100
    assert told > 0


WENT_WRONG = [
    pytest.param("calm", 1, id="of a piece of the past that was half read the first half does not come again"),
    pytest.param("brokers", 1079, id="who goes before it was told of a gap is told in its next life"),
]


@pytest.mark.parametrize(("family", "seed"), WENT_WRONG)
def test_runs_that_went_wrong_once(family: str, seed: int) -> None:
    assert try_seed(seed, family)[0] == []


_release = Deliveries.release


def _once_more(self: Deliveries, membership: Membership, former: int) -> None:
    """Hand over again what was handed over before the past."""
    _release(self, membership, 0)


def _whole_pieces(self: SubscriptionReplay, count: int) -> int:
    """What is taken of a piece counts when all of it is."""
    before = count
    while self.pending and self.pending[0].left <= count:
        piece = self.pending.popleft()
        count -= piece.left
        self.taken.update(piece.covered)
    if self.pending and count:
        self.pending[0].taken += count
        count = 0
    return before - count


@pytest.mark.parametrize(
    ("rule", "seeds"),
    [("handed over once", range(12)), ("taken one by one", range(12)), ("a filter is a membership", [49])],
)
def test_without_the_rule_the_readers_notice(rule: str, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "handed over once":
        monkeypatch.setattr(Deliveries, "release", _once_more)
    elif rule == "taken one by one":
        monkeypatch.setattr(SubscriptionReplay, "take", _whole_pieces)
    else:
        monkeypatch.setattr(Session, "note_membership", lambda _: None)
    assert any(try_seed(seed, "calm")[0] for seed in seeds)

"""The buffer theorem: its table, its bound, and that no buffer does worse than the bound says (CLU-7)."""

from __future__ import annotations

import pytest

from ordercast.core.chance import mix, salt, unit
from ordercast.core.errors import UsageError
from ordercast.protocols.cluster.recovery import RecoveryBuffer
from ordercast.protocols.cluster.sizing import Load, loss_bound, loss_exact, members_to_ask, slots_for
from tests.support.cluster_lab import event


@pytest.mark.parametrize(
    ("load", "exact", "bound", "slots"),
    [
        (Load(10, 0.1, 2), 0.133, 0.462, 11),
        (Load(50, 0.02, 5), 0.0304, 0.145, 19),
        (Load(50, 0.02, 10), 0.0031, 0.021, 29),
        (Load(125, 0.008, 15), 3.9e-4, 3.0e-3, 38),
        (Load(125, 0.048, 15), 4.7e-18, 8.0e-16, 138),
    ],
)
def test_the_table_of_the_specification(load: Load, exact: float, bound: float, slots: int) -> None:
    twice = round(2 * load.expected)
    assert loss_exact(load, twice) == pytest.approx(exact, rel=0.03)
    assert loss_bound(load, twice) == pytest.approx(bound, rel=0.03)
    assert slots_for(load, 1e-6) == slots


def test_the_bound_is_above_the_truth_wherever_it_says_anything() -> None:
    for creators in (1, 5, 40):
        for probability in (0.01, 0.3, 0.9):
            for rounds in (1, 7, 20):
                load = Load(creators, probability, rounds)
                for slots in range(1, load.trials + 2):
                    assert loss_exact(load, slots) <= loss_bound(load, slots) + 1e-15


def test_a_real_buffer_loses_no_more_than_the_bound_and_about_the_exact_share() -> None:
    """L9: buffers of the published size, filled by chance; 4,000 lives of an update."""
    load, lives = Load(10, 0.1, 5), 4_000
    slots, chance = round(2 * load.expected), salt(1, "buffer")
    gone = 0
    for life in range(lives):
        buffer = RecoveryBuffer(slots)
        mine = event("a1", "1 0 0")
        buffer.store(mine)
        for trial in range(load.trials):
            if unit(mix(chance, life, trial)) < load.probability:
                buffer.store(event(f"b{trial + 1}", f"0 {trial + 1} 0"))
        gone += mine.key not in buffer.events
    assert gone / lives <= loss_bound(load, slots)
    assert gone / lives == pytest.approx(loss_exact(load, slots), rel=0.35)


@pytest.mark.parametrize(("crashed", "for_a_thousandth", "for_a_millionth"), [(0.02, 2, 4), (0.1, 3, 6), (0.3, 6, 12)])
def test_how_many_to_ask_does_not_depend_on_the_size_of_the_group(
    crashed: float, for_a_thousandth: int, for_a_millionth: int
) -> None:
    """C10: the published rule asks 2 p N."""
    assert members_to_ask(1e-3, crashed=crashed) == for_a_thousandth
    assert members_to_ask(1e-6, crashed=crashed) == for_a_millionth
    assert members_to_ask(1e-3, crashed=crashed, has=0.5, lost=0.1) > for_a_thousandth


def test_what_is_no_probability_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"probability: 1\.5"):
        slots_for(Load(3, 1.5, 2), 0.1)
    with pytest.raises(UsageError, match="loss: 0"):
        slots_for(Load(3, 0.5, 2), 0)
    with pytest.raises(UsageError, match="creators and rounds: 0 and 2"):
        slots_for(Load(0, 0.5, 2), 0.1)
    with pytest.raises(UsageError, match="crashed 1"):
        members_to_ask(0.1, crashed=1)

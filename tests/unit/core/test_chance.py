"""Randomness by identity."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ordercast.core.chance import below, exponential, mix, salt, shuffled, spread, stir, stir_twice, unit


def test_a_draw_depends_on_the_seed_and_on_every_part_of_the_identity() -> None:
    draws = {salt(1, "a", "b"), salt(2, "a", "b"), salt(1, "a", "c"), salt(1, "ab"), salt(1, "a"), salt(1, "b", "a")}
    assert len(draws) == 6
    assert salt(1, "a", "b") == salt(1, "a", "b")


def test_draws_are_the_same_on_every_machine() -> None:
    assert salt(7, "channel", "n0", "n1") == 3_436_735_795_981_168_877
    assert mix(1, 2, 3) == 5_674_508_094_508_897_298


def test_neighbouring_numbers_give_independent_bits() -> None:
    units = [unit(mix(99, i)) for i in range(10_000)]
    assert all(0 <= u < 1 for u in units)
    assert sum(units) / len(units) == pytest.approx(0.5, abs=0.01)
    # Lag-one correlation of independent draws is about 1/sqrt(n).
    mean = sum(units) / len(units)
    lagged = sum((a - mean) * (b - mean) for a, b in pairwise(units)) / len(units) * 12
    assert abs(lagged) < 0.05


def test_exponential_draws_have_their_mean() -> None:
    draws = [exponential(mix(3, i), 20.0) for i in range(10_000)]
    assert min(draws) >= 0
    assert sum(draws) / len(draws) == pytest.approx(20, rel=0.05)


def test_shuffling_keeps_everything_and_belongs_to_its_identity() -> None:
    options = list(range(30))
    assert sorted(shuffled(options, 1, "x")) == options
    assert shuffled(options, 1, "x") == shuffled(options, 1, "x") != shuffled(options, 1, "y")


def test_removing_an_option_leaves_the_order_of_the_others() -> None:
    options = list(range(30))
    without = [o for o in shuffled(options, 1, "x") if o != 7]
    assert shuffled([o for o in options if o != 7], 1, "x") == without


def test_spreading_and_stirring_is_mixing() -> None:
    """What draws are made of may be worked out ahead, and every draw stays what it was."""
    for salted, a, b in ((0, 0, 0), (1, 1, 0), (salt(7, "x"), salt(7, "y"), 3), ((1 << 64) - 1, 1 << 62, 5)):
        assert stir(salted ^ spread(a, b)) == mix(salted, a, b)


def test_stirring_twice_in_one_call_is_stirring_twice() -> None:
    for x in (0, 1, (1 << 64) - 1, salt(1, "x")):
        assert stir_twice(x, salt(2, "y")) == stir(stir(x) ^ salt(2, "y"))


@pytest.mark.parametrize("share", [0.0, 1e-300, 0.002, 0.05, 1 / 3, 0.5, 1 - 2**-53, 1.0])
def test_bits_are_below_the_bound_of_a_share_exactly_if_their_unit_is_below_the_share(share: float) -> None:
    bound = below(share)
    near = {bits for around in (bound, bound - 2048) for bits in range(around - 3, around + 4)}
    for bits in [*near, 0, 2047, 2048, (1 << 64) - 1, *(mix(3, i) for i in range(200))]:
        if 0 <= bits < 1 << 64:
            assert (bits < bound) == (unit(bits) < share)

"""The configurations of each study. The quick scale has fewer seeds; where it publishes less too, its study says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from ordercast.experiments.ginger.setting import DRAWN, FAULTS, MAIN, PROCESSES, SCENARIOS, configuration
from ordercast.experiments.kit.study import Row

FEW_KEYS, MANY_KEYS = 10, 1000
KEYS = (1, 10, 100, 1000)
BY_FAULTS = ("S0", "S2", "S4", "S5")
"""No fault, one, two, three."""
SMALL_BUFFER = 150
HOP_ORDER, ONE_ROOM, REAL, LENGTH, ONE_KEY, BUFFER = "hop-order", "one room", "real", "length", "one key", "buffer"
"""Parts of the studies that answer a question of their own."""


def _runs(scenarios: Iterable[str], seeds: int, operations: int, keys: int = 100, part: str = MAIN) -> list[Row]:
    return [
        configuration(name, seed=seed, operations=operations, keys=keys, part=part)
        for name, seed in product(scenarios, range(seeds))
    ]


def _scenarios(seeds: int, operations: int, fewer: int, real: Sequence[str], real_seeds: int) -> list[Row]:
    """All scenarios; E6 and E7 by themselves; few and many keys; real processes."""
    rows = _runs(SCENARIOS, seeds, operations)
    rows += _runs(["E6"], seeds, fewer, part=ONE_ROOM)
    rows += [
        configuration("S1", seed=seed, operations=fewer, view_order="hop-order", part=HOP_ORDER)
        for seed in range(seeds)
    ]  # fmt: skip
    for keys, transfers in ((FEW_KEYS, True), (FEW_KEYS, False), (MANY_KEYS, True)):
        rows += [
            configuration("S0", seed=seed, operations=fewer, keys=keys, transfers=transfers, part=f"{keys} keys")
            for seed in range(seeds)
        ]
    rows += [
        configuration(name, seed=seed, operations=100, runs=PROCESSES, part=REAL)
        for name, seed in product(real, range(real_seeds))
    ]
    return rows


def _repair(seeds: int, operations: int) -> list[Row]:
    """Latencies differ from seed to seed: with those of the other studies a repair would always take the same."""
    return [
        configuration(name, seed=seed, operations=operations, latencies=DRAWN)
        for name, seed in product([*SCENARIOS[1:], "E6"], range(seeds))
    ]


def _faults(seeds: int, operations: int, fewer_seeds: int) -> list[Row]:
    rows = _runs(SCENARIOS, seeds, operations)
    rows += [
        configuration(name, seed=seed, operations=operations, buffer=SMALL_BUFFER, part=BUFFER)
        for name, seed in product(BY_FAULTS[:3], range(fewer_seeds))
    ]
    return rows


def _keys(seeds: int, operations: int, lengths: Sequence[int], most_faults: Sequence[str]) -> list[Row]:
    """Keys by faults; runs of growing length that are saturated; and the load without transfers.

    A run of one length may be one of those without faults: it is not run, and counted, once more.
    """
    rows = [row for keys in KEYS for row in _runs(most_faults, seeds, operations, keys=keys)]
    rows += [
        configuration("S0", seed=seed, operations=length, keys=keys, order_scope=scope, part=LENGTH)
        for (keys, scope), length, seed in product(
            ((1, "key"), (100, "key"), (100, "session"), (1000, "session")), lengths, range(seeds)
        )
        if (scope, length) != ("key", operations)
    ]
    rows += [
        configuration("S0", seed=seed, operations=operations, keys=keys, transfers=False, part=ONE_KEY)
        for keys, seed in product(KEYS[1:], range(seeds))
    ]
    return rows


SCENARIO_SCALES = {
    "quick": _scenarios(3, 500, 150, ("S2", "S4"), 1),
    "paper": _scenarios(10, 500, 500, tuple(FAULTS), 3),
}
REPAIR_SCALES = {"quick": _repair(5, 200), "paper": _repair(10, 1000)}
FAULT_SCALES = {"quick": _faults(3, 500, 1), "paper": _faults(10, 500, 10)}
KEY_SCALES = {
    "quick": _keys(2, 200, (50, 100, 200), BY_FAULTS),
    "paper": _keys(10, 500, (100, 200, 400, 800), BY_FAULTS),
}

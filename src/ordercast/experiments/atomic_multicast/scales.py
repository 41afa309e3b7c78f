"""The configurations of each study, at both scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from ordercast.experiments.atomic_multicast.runs import (
    CONTIGUOUS,
    COVER,
    COVER_WHOLE,
    DCC,
    DCC_RV,
    DF,
    GROUPS,
    LITE,
    LITE_WHOLE,
    RANDOM,
    SKEEN,
    STRIDED,
    TPCC,
    configuration,
)
from ordercast.experiments.kit.study import Row

COMPARED = (SKEEN, DF, DCC, DCC_RV, LITE, COVER)
RULES = (DCC_RV, LITE, COVER)
CLOCKS = {DCC_RV: DCC, LITE: LITE_WHOLE, COVER: COVER_WHOLE}
"""Each rule with reduced clocks, and the same with whole ones."""
SHARES = (0.0, 0.01, 0.02, 0.05)
"""Of the messages that leave their group."""
SIZES = (4, 8, 16)
"""Numbers of servers where that is what is varied."""
MOST_CLIENTS = 64
SOME_CLIENTS = 8
FEW_SERVERS = 4


class AtomicEffort(msgspec.Struct, frozen=True):
    """The amount of measuring at one scale."""

    messages: Mapping[int, int]
    """Number of clients to number of messages; its keys are the points of a curve."""
    seeds: int

    @property
    def most(self) -> int:
        return self.messages[MOST_CLIENTS]


_PAPER = AtomicEffort({1: 1_000, 2: 1_500, 4: 2_000, 8: 3_000, 16: 5_000, 32: 8_000, 64: 15_000}, seeds=3)


def _curves(systems: Iterable[str], workloads: Iterable[str], effort: AtomicEffort, layout: str = "") -> list[Row]:
    """Every system on every workload, from one client to the most."""
    return [
        configuration(system, workload, clients, messages=messages, seed=seed, layout=layout)
        for system, workload, (clients, messages), seed in product(
            systems, workloads, effort.messages.items(), range(effort.seeds)
        )
    ]


def _random(effort: AtomicEffort) -> list[Row]:
    return _curves(COMPARED, RANDOM, effort)


def _tpcc(effort: AtomicEffort) -> list[Row]:
    return _curves(COMPARED, [TPCC], effort)


def _clocks(effort: AtomicEffort) -> list[Row]:
    """The three rules with reduced and with whole clocks, on fewer and fewer servers."""
    return [
        configuration(system, TPCC, clients, messages=effort.messages[clients], seed=seed, servers=servers)
        for system, servers, clients, seed in product(
            (*CLOCKS, *CLOCKS.values()), SIZES, (SOME_CLIENTS, MOST_CLIENTS), range(effort.seeds)
        )
    ]


def _groups(effort: AtomicEffort, systems_when_leaving: Sequence[str], contiguous_shares: Sequence[float]) -> list[Row]:
    """Curves of strided groups that no message leaves; at the most clients also leaving ones and the other layout.

    Random sets come along because the article's conclusion is about both.
    """
    rows = _curves(COMPARED, GROUPS, effort, STRIDED)
    leaving = [(STRIDED, share) for share in SHARES[1:]] + [(CONTIGUOUS, share) for share in contiguous_shares]
    rows += [
        configuration(
            system, workload, MOST_CLIENTS, messages=effort.most, seed=seed, layout=layout, random=share
        )
        for system, workload, (layout, share), seed in product(
            systems_when_leaving, GROUPS, leaving, range(effort.seeds)
        )
    ]  # fmt: skip
    saturated = AtomicEffort({MOST_CLIENTS: effort.most}, effort.seeds)
    return rows + _curves((SKEEN, DF, DCC), RANDOM, saturated)


RANDOM_SCALES = {
    "quick": _random(AtomicEffort({1: 200, 4: 300, 16: 600, 64: 1_500}, seeds=1)),
    "paper": _random(_PAPER),
}
TPCC_SCALES = {
    "quick": _tpcc(AtomicEffort({1: 1_000, 4: 1_500, 8: 2_000, 16: 3_000, 64: 4_000}, seeds=3)),
    "paper": _tpcc(_PAPER),
}
CLOCKS_SCALES = {"quick": _clocks(AtomicEffort({8: 3_000, 64: 4_000}, seeds=3)), "paper": _clocks(_PAPER)}
GROUPS_SCALES = {
    "quick": _groups(AtomicEffort({1: 200, 8: 500, 64: 2_000}, seeds=1), RULES, (0.0, 0.05)),
    "paper": _groups(_PAPER, COMPARED, SHARES),
}

"""The configurations of the studies, at both scales.

The quick scale has fewer points, smaller trees where size is not what is looked at, one seed and shorter windows. The
paper scale has the source's 511 nodes and three seeds. Runs on large trees, and those with much on its way, end with
their windows: to let all of that arrive would take longer than to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, cast

import msgspec

from ordercast.experiments.kit.study import Row, Value
from ordercast.experiments.locamu import reference
from ordercast.experiments.locamu.runs import (
    ANY,
    BARRIERS,
    CBCAST,
    CORRECTED,
    DELTA,
    LOCAMU,
    MODEL,
    ONE,
    PUBLISHED,
    ROOT,
    SENDER,
    SUBTREES,
    WINDOW,
    WIRE,
    configuration,
)

PER_PUBLISHER = 100.0
"""Messages per second of each publisher, where causal protocols are compared."""
CAUSAL = (LOCAMU, CBCAST, BARRIERS)
PAYLOADS = (32, 128, 512, 2_048, 8_192, 32_768, 131_072)
BANDWIDTHS = (10.0, 50.0, 100.0, 500.0, 1_000.0)
_ROUND_S = 0.016
"""How long a message takes to all nodes of a tree of 511, on links of 1 ms that are not busy."""
_FEWEST = 64
_MOST_MESSAGES = 200
SLOW_MBPS = 10.0
UNLIMITED_MBPS = 1e6
"""Enough for everything."""
_NEVER_REACHED = 64
DRAINED = "drained"
"""What no figure draws: runs that are there to be judged to their end."""
_SMALL_NODES, _SMALL_PUBLISHERS = 63, 5
_DRAINED_NODES = 127
_DRAINED_HOPS = 16_000
"""Up to so many nodes, and so many transmissions on their way, a run goes on until everything has arrived."""
_ENOUGH_WINDOW = 16
"""Packets on a link that keep it busy where headers are so long that a thousandth of a second takes a few of them."""


class LocamuEffort(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of measuring at one scale."""

    sizes: Sequence[int]
    wire_sizes: Sequence[int]
    """Of trees, with our own encoding: more fits, and more is on its way."""
    wire_bandwidths: Sequence[float]
    wire_payloads: Sequence[int]
    fewest: int
    """Nodes where latency is looked at: they all publish, and ten times as much is on its way."""
    few: int
    """Nodes where bandwidth and payload are looked at."""
    nodes: int
    """Where causal protocols are compared."""
    crowd: dict[str, int]
    """Nodes that all publish at 10 Mb/s, far beyond what fits, by what groups there are."""
    saturated: int
    """Nodes of which many publish as fast as they can."""
    publishers: Sequence[int]
    """So many of them."""
    saturating: Sequence[int]
    """Those of them for LoCaMu, which is much slower to simulate."""
    paced: Sequence[int]
    """Of `nodes` that publish at their rate."""
    wire_paced: Sequence[int]
    """Those of them for our own encoding."""
    one_group: Sequence[int]
    """Those of them that are also looked at with one group, where there are many."""
    faults: Sequence[int]
    published: Sequence[int]
    """Those f with the published radii, too."""
    degrees: Sequence[int]
    references: dict[str, Sequence[int]]
    """Publishers per protocol, in 511 nodes without limits of bandwidth."""
    windows: dict[str, int]
    """Packets on their way on a link of a single publisher at 100 Mb/s, by whose sizes are charged."""
    warm: int
    rounds: int
    """How often everybody publishes before a measurement with many groups."""
    hops: int
    """Transmissions in a window, roughly."""
    seeds: int


QUICK = LocamuEffort(
    sizes=(15, 31, 63, 127, 255, 511, 1_023),
    wire_sizes=(15, 63),
    wire_bandwidths=(10.0, 100.0),
    wire_payloads=(32, 512, 8_192, 131_072),
    fewest=7,
    few=63,
    nodes=127,
    crowd={ONE: 255, SUBTREES: 127},
    saturated=127,
    publishers=(1, 25, 50, 127),
    saturating=(1, 50, 127),
    paced=(1, 10, 25, 50, 127),
    wire_paced=(1, 25, 127),
    one_group=(10, 50),
    faults=(1, 2, 3),
    published=(2,),
    degrees=(3, 4, 5, 6, 9),
    references={LOCAMU: (1, 20), CBCAST: (1, 5, 20, 50, 100), BARRIERS: (1, 5)},
    windows={MODEL: 16, WIRE: 96},
    warm=10,
    rounds=6,
    hops=8_000,
    seeds=1,
)
PAPER = LocamuEffort(
    sizes=(15, 31, 63, 127, 255, 511, 1_023),
    wire_sizes=(15, 31, 63, 127, 255, 511, 1_023),
    wire_bandwidths=BANDWIDTHS,
    wire_payloads=PAYLOADS,
    fewest=255,
    few=511,
    nodes=511,
    crowd={ONE: 511, SUBTREES: 511},
    saturated=511,
    publishers=(1, 5, 10, 25, 50, 100, 200, 300, 400, 511),
    saturating=(1, 5, 10, 25, 50, 100, 200, 300, 400, 511),
    paced=(1, 10, 25, 50, 75, 100, 150, 200, 300, 400, 511),
    wire_paced=(1, 10, 25, 50, 75, 100, 150, 200, 300, 400, 511),
    one_group=(10, 75, 200, 511),
    faults=(1, 2, 3, 4),
    published=(2, 3, 4),
    degrees=(3, 4, 5, 6, 9),
    references={
        LOCAMU: (1, 5, 20, 50, 100, 200, 511), CBCAST: (1, 5, 20, 50, 100, 200, 511), BARRIERS: (1, 5, 20),
    },
    windows={MODEL: WINDOW, WIRE: 2 * WINDOW},
    warm=20,
    rounds=8,
    hops=60_000,
    seeds=3,
)  # fmt: skip


class ScalePlan:
    """Configurations, each once: those that belong to several figures say so."""

    def __init__(self, effort: LocamuEffort) -> None:
        self._effort = effort
        self._figures: dict[tuple[tuple[str, Value], ...], set[str]] = {}

    def add(
        self, figure: str, protocol: str, *, nodes: int, share: float = 1.0, warm: int = 0, least: int = 20,
        mbps: float = 100.0, sizes: str = MODEL, **changes: Any,
    ) -> None:  # fmt: skip
        """One point of a figure with every seed; `share` of the usual messages, where copies are expensive."""
        effort = self._effort
        messages = max(min(round(effort.hops * share / nodes), _MOST_MESSAGES), least)
        changes.setdefault("window", max(effort.windows[sizes], round(effort.windows[sizes] * mbps / 100)))
        for seed in range(effort.seeds):
            row = configuration(
                protocol, nodes=nodes, warm=max(warm, effort.warm), messages=messages, seed=seed, mbps=mbps,
                sizes=sizes, **changes,
            )  # fmt: skip
            row["drain"] = nodes <= _DRAINED_NODES and nodes * under_way(row) <= _DRAINED_HOPS
            del row["figures"]
            self._figures.setdefault(tuple(row.items()), set()).add(figure)

    def before(self, publishers: int) -> int:
        """Messages that precede a measurement with many groups, the same for every protocol.

        Some groups have a hundred times the members of others: only windows of the same publications compare. By then
        CBCAST's clocks, of which every group has one, have got their length.
        """
        return max(self._effort.rounds * publishers, _FEWEST // 2)

    def rows(self) -> list[Row]:
        return [{"figures": " ".join(sorted(figures)), **dict(key)} for key, figures in self._figures.items()]


def single_publisher(effort: LocamuEffort) -> list[Row]:
    """Figure 5.1: one group of all nodes, publishers that send as fast as they can."""
    plan = ScalePlan(effort)
    for protocol, sizes in ((LOCAMU, MODEL), (LOCAMU, WIRE), (DELTA, MODEL)):
        wire = sizes == WIRE
        for nodes in effort.wire_sizes if wire else effort.sizes:
            plan.add("a", protocol, nodes=nodes, placement=ROOT, sizes=sizes)
        for mbps in effort.wire_bandwidths if wire else BANDWIDTHS:
            plan.add("c", protocol, nodes=effort.few, placement=ROOT, sizes=sizes, mbps=mbps)
        for payload in effort.wire_payloads if wire else PAYLOADS:
            plan.add("d", protocol, nodes=effort.few, placement=ROOT, sizes=sizes, payload=payload)
    for protocol, counts in ((LOCAMU, effort.saturating), (DELTA, effort.publishers)):
        for publishers in counts:
            _many(plan, "b", protocol, effort.saturated, publishers)
    _redundancy(plan, effort)
    # Half as much again fits where only the sender pays.
    plan.add("sender", LOCAMU, nodes=effort.few, placement=ROOT, charge=SENDER, window=2 * effort.windows[MODEL])
    plan.add("window", LOCAMU, nodes=effort.few, placement=ROOT, mbps=BANDWIDTHS[-1], window=WINDOW)
    for latency_ms in (1.0, 10.0):
        for protocol in (LOCAMU, DELTA):
            _many(plan, "latency", protocol, effort.fewest, effort.fewest, latency_ms=latency_ms)
    return plan.rows()


def _many(plan: ScalePlan, figure: str, protocol: str, nodes: int, publishers: int, **changes: Any) -> None:
    """Publishers that send as fast as they can: one by the windows of its links, several by what is on its way.

    Delta-Neighbourhood holds itself back.
    """
    if protocol == DELTA:
        # A round of everybody before, two within the window: all begin together, and rounds differ.
        plan.add(figure, protocol, nodes=nodes, publishers=publishers, warm=publishers, least=2 * publishers, **changes)
        return
    if publishers == 1:
        plan.add(figure, protocol, nodes=nodes, **changes)
        return
    latency_ms = changes.get("latency_ms", 1.0)
    capacity = capacity_per_s(protocol, publishers, 100.0, changes.get("sizes", MODEL))
    each = on_their_way(publishers, capacity * latency_ms)
    # What all begin with together takes its time to spread out.
    half = each * publishers // 2
    plan.add(figure, protocol, nodes=nodes, publishers=publishers, outstanding=each, warm=half, least=half, **changes)


def capacity_per_s(protocol: str, publishers: int, mbps: float, sizes: str) -> float:
    """Messages through a node with three neighbours, roughly; only to know how much is more than enough."""
    header = {
        (LOCAMU, MODEL): 300, (LOCAMU, WIRE): 40, (CBCAST, MODEL): 12 + 3.6 * publishers,
        (CBCAST, WIRE): 30 + 0.9 * publishers,
    }.get((protocol, sizes), 8_000)  # fmt: skip
    return mbps * 1e6 / (8 * 3 * (32 + header))


def on_their_way(publishers: int, capacity: float) -> int:
    """How many messages of one publisher may be on their way: together twice what the tree holds, to keep it busy.

    Windows of links alone would not do: they hold back nobody whose neighbour passes on what the next one cannot take.
    """
    return max(1, -(-max(_FEWEST, round(2 * _ROUND_S * capacity)) // publishers))


def under_way(parameters: Row) -> float:
    """How many messages are on their way at the end of the window, at most."""
    outstanding, publishers = cast("int", parameters["outstanding"]), cast("int", parameters["publishers"])
    paced = 2 * _ROUND_S * cast("float", parameters["rate_per_s"]) * publishers
    together = outstanding * publishers or 2 * cast("int", parameters["window"])
    return min(together, paced) if paced else together


def _redundancy(plan: ScalePlan, effort: LocamuEffort) -> None:
    """Figures 5.1e and f: headers grow fast with f and degree, so a window has fewer messages."""
    for f in effort.faults:
        for profile in (CORRECTED, PUBLISHED) if f in effort.published else (CORRECTED,):
            window: dict[str, Any] = {"window": _ENOUGH_WINDOW} if f > 1 else {}
            plan.add("e", LOCAMU, nodes=511, placement=ROOT, f=f, profile=profile, share=4.0 ** (1 - f), **window)
        plan.add("e", DELTA, nodes=511, placement=ROOT, f=f)
    for degree in effort.degrees:
        for protocol in (LOCAMU, DELTA):
            plan.add("f", protocol, nodes=511, placement=ROOT, degree=degree, share=3.0 / degree)


def causal(effort: LocamuEffort, groups: str) -> list[Row]:
    """Figures 5.2 and 5.3: causal protocols compared, every publisher limited to its rate."""
    plan = ScalePlan(effort)
    for mbps, figure in ((100.0, "ab"), (SLOW_MBPS, "cd")):
        for protocol, sizes in _compared():
            for publishers in effort.paced if sizes == MODEL else effort.wire_paced:
                _paced(plan, figure, protocol, effort.nodes, publishers, groups=groups, mbps=mbps, sizes=sizes)
    for protocol in (LOCAMU, CBCAST):
        _paced(plan, "end", protocol, effort.crowd[groups], effort.crowd[groups], groups=groups, mbps=SLOW_MBPS)
    if groups == SUBTREES:
        everyone = effort.paced[-1]
        each = on_their_way(everyone, capacity_per_s(LOCAMU, everyone, SLOW_MBPS, MODEL))
        # A leaf gets so little of it that everybody's first messages are warm-up enough.
        plan.add("any", LOCAMU, nodes=effort.nodes, publishers=everyone, rate_per_s=PER_PUBLISHER, groups=groups,
                 mbps=SLOW_MBPS, topics=ANY, outstanding=each, share=0.5)  # fmt: skip
        for protocol in CAUSAL:
            for publishers in effort.one_group:
                _paced(plan, "one", protocol, effort.nodes, publishers, groups=ONE, mbps=100.0)
    if effort.nodes > _DRAINED_NODES:
        # Runs of that size end with their windows. Whether everything arrives, smaller ones have to show.
        for protocol, mbps in product(CAUSAL, (100.0, SLOW_MBPS)):
            _paced(plan, DRAINED, protocol, _SMALL_NODES, _SMALL_PUBLISHERS, groups=groups, mbps=mbps)
    known = reference.MANY_GROUPS if groups == SUBTREES else reference.ONE_GROUP
    for protocol, counts in effort.references.items():
        for publishers in [count for count in counts if count in known.get(protocol, {})]:
            # Everybody has published before, twice where there is one group, and once within the window.
            many = groups == SUBTREES
            plan.add("reference", protocol, nodes=511, publishers=publishers, rate_per_s=PER_PUBLISHER, groups=groups,
                     mbps=UNLIMITED_MBPS, outstanding=_NEVER_REACHED, least=publishers,
                     warm=0 if many else 2 * publishers, before=plan.before(publishers) if many else 0)  # fmt: skip
    return plan.rows()


def _paced(
    plan: ScalePlan, figure: str, protocol: str, nodes: int, publishers: int, *, mbps: float, **changes: Any
) -> None:  # fmt: skip
    """Publishers at their rate, held back where that is more than fits."""
    capacity = capacity_per_s(protocol, publishers, mbps, changes.get("sizes", MODEL))
    each = on_their_way(publishers, capacity)
    if changes["groups"] == SUBTREES:
        changes["before"] = plan.before(publishers)
    else:
        crowded = publishers * PER_PUBLISHER > 0.8 * capacity
        warm = each * publishers // 2 if crowded else 0
        # CBCAST's clocks are complete only when everybody has published.
        changes["warm"] = max(warm, 2 * publishers) if protocol == CBCAST else warm
    plan.add(figure, protocol, nodes=nodes, publishers=publishers, rate_per_s=PER_PUBLISHER, mbps=mbps,
             outstanding=each, **changes)  # fmt: skip


def _compared() -> Iterable[tuple[str, str]]:
    return [*((protocol, MODEL) for protocol in CAUSAL), (LOCAMU, WIRE), (CBCAST, WIRE)]

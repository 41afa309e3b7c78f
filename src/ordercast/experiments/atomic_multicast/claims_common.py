"""Claims that every study of atomic multicast makes about its own runs."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.experiments.atomic_multicast.results import AtomicResults, listed
from ordercast.experiments.atomic_multicast.runs import (
    CONTIGUOUS,
    COVER,
    DCC_RV,
    DF,
    GROUPS,
    LITE,
    SKEEN,
)
from ordercast.experiments.atomic_multicast.scales import CLOCKS, MOST_CLIENTS, RULES, SIZES
from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.results import Number, falls
from ordercast.experiments.kit.study import OURS, Row, SourceClaim

_LOOP_TOLERANCE = 0.1
_SAME = 1.02
"""Runs of different rules see different schedules: so much more does not count as more."""


def held(results: AtomicResults) -> SourceClaim:
    return guarantees_hold(
        results.rows,
        "In every run all destinations deliver, in an acyclic order; Skeen and Delporte-Fauconnier involve no others.",
        what="system",
    )


def closed_loop(results: AtomicResults) -> SourceClaim:
    """Throughput times latency is the number of clients: a check of the measurement itself."""
    off = [loop for row in results.rows if (loop := _loop(row)) is not None]
    worst = max((abs(share - 1) for share in off), default=None)
    return SourceClaim(
        id="closed-loop",
        source=OURS,
        statement="Throughput times untrimmed mean latency is the number of clients "
        f"(within {_LOOP_TOLERANCE:.0%}: the window ends before its longest requests do).",
        measured="nothing was measured" if worst is None else f"at most {worst:.1%} off in {len(off)} runs",
        holds=None if worst is None else worst <= _LOOP_TOLERANCE,
    )


def _loop(row: Row) -> Number:
    rate, latency, clients = row["throughput_per_s"], row["latency_ms_mean"], row["clients"]
    if isinstance(rate, float) and isinstance(latency, float) and isinstance(clients, int):
        return rate * latency / 1000 / clients
    return None


def exact_packets(results: AtomicResults) -> SourceClaim:
    """The packet counts that the protocols have by construction."""
    expected: dict[tuple[str, str], int] = {}
    for size in (2, 4, 8):
        expected |= {(SKEEN, f"rand{size}"): size * size, (DF, f"rand{size}"): 2 * size - 1}
    return _counts(
        results,
        expected,
        "exact-packets",
        "A multicast to k servers takes exactly k² packets under Skeen and 2k - 1 under Delporte-Fauconnier "
        "(client's copies included, answers not).",
    )


def packets_without_gaps(results: AtomicResults) -> SourceClaim:
    """Not for `cover`, whose flushes are packets too."""
    expected = {(rule, group): size for rule in (DCC_RV, LITE) for group, size in GROUPS.items()}
    return _counts(
        results,
        expected,
        "exact-packets",
        "In contiguous groups, where nobody is in between, the daisy chain takes exactly k packets for k servers "
        f"({DCC_RV} and {LITE}).",
        layout=CONTIGUOUS,
    )


def _counts(
    results: AtomicResults, expected: dict[tuple[str, str], int], id_: str, statement: str, *, layout: str = ""
) -> SourceClaim:
    found = {pair: results.average("packets_per_message", *pair, layout=layout) for pair in expected}
    verdicts = [None if packets is None else packets == expected[pair] for pair, packets in found.items()]
    names = [f"{system} {workload}" for system, workload in expected]
    measured = f"packets a multicast: {listed(names, found.values(), 2)}"
    return SourceClaim(id=id_, source=OURS, statement=statement, measured=measured, holds=all_of(verdicts))


def weaker_rules_visit_less(
    results: AtomicResults, workloads: Sequence[str], *, layout: str = "", random: float = 0.0
) -> SourceClaim:
    verdicts, texts = [], []
    for workload in workloads:
        steps = [
            results.average("visits_per_message", rule, workload, layout=layout, random=random) for rule in RULES
        ]  # fmt: skip
        fast = [results.average("fast_share", rule, workload, layout=layout, random=random) for rule in RULES]
        verdicts += [falls([steps[0], steps[2]]), _at_most(steps[1], steps[0])]
        percent = [None if share is None else 100 * share for share in fast]
        texts.append(f"{workload}: {listed(RULES, steps, 2)} (fast hops in %: {listed(RULES, percent, 1)})")
    return SourceClaim(
        id="weaker-rules-visit-less",
        source=OURS,
        statement=f"On every workload {COVER} visits fewer servers that are no destinations than {DCC_RV}, and {LITE} "
        f"no more ({MOST_CLIENTS} clients).",
        measured=f"visits a multicast: {'; '.join(texts)}",
        holds=all_of(verdicts),
    )


def _at_most(one: Number, other: Number) -> bool | None:
    return None if one is None or other is None else one <= other * _SAME


def reduced_clocks_are_smaller(results: AtomicResults, workload: str) -> SourceClaim:
    verdicts, texts = [], []
    for rule, whole in CLOCKS.items():
        for servers in SIZES:
            pair = [
                results.average("header_bytes_per_hop", system, workload, servers=servers) for system in (whole, rule)
            ]
            verdicts.append(falls(pair))
            texts.append(f"{rule}, {servers} servers: {listed(('whole', 'reduced'), pair, 1)}")
    return SourceClaim(
        id="reduced-clocks-are-smaller",
        source=OURS,
        statement="Under every rule and for every number of servers, packets between servers have smaller headers with "
        "reduced clocks.",
        measured=f"header bytes a packet: {'; '.join(texts)}",
        holds=all_of(verdicts),
    )

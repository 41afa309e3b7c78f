"""Decides the article's claims Q1 to Q11 from the results, each with the numbers that decide it.

Its DCC is the daisy chain under the rule `strict` with whole clocks, its DCC/RV the same with reduced clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordercast.experiments.atomic_multicast.claims_common import (
    closed_loop,
    exact_packets,
    held,
    packets_without_gaps,
    reduced_clocks_are_smaller,
    weaker_rules_visit_less,
)
from ordercast.experiments.atomic_multicast.results import AtomicResults, few_servers, listed, ratios
from ordercast.experiments.atomic_multicast.runs import DCC, DCC_RV, DF, FEW, GROUPS, RANDOM, SKEEN, STRIDED, TPCC
from ordercast.experiments.atomic_multicast.scales import SHARES, SIZES, SOME_CLIENTS
from ordercast.experiments.atomic_multicast.sources import DCC as ARTICLE
from ordercast.experiments.kit.claims import all_of
from ordercast.experiments.kit.results import Number, falls, rises
from ordercast.experiments.kit.study import SourceClaim

_RATE, _LATENCY, _P99 = "throughput_per_s", "latency_ms_mean", "latency_ms_p99"
_FIXED = ("rand2", "rand4", "rand8")
_MANY = ("rand8", "randN")
_THREE = (SKEEN, DF, DCC)
_TPCC_SIZES = {"to_1": 89.268, "to_2": 10.535, "to_3": 0.191}
"""Percent of the transactions with so many destinations, from the rules of TPC-C with one warehouse a server."""
_TPCC_TOLERANCE = 1.0
_LARGE_GROUPS = ("4x4", "8x2")


def random_claims(table: pa.Table) -> list[SourceClaim]:
    """Destinations at random."""
    results = AtomicResults(table)
    return [
        _degrades(results, _FIXED),
        _loses_throughput(results, _FIXED),
        _gains_on_the_others(results, list(RANDOM), _MANY),
        _visits_per_destination_fall(results),
        _slowest_when_alone(results),
        held(results),
        closed_loop(results),
        exact_packets(results),
        weaker_rules_visit_less(results, list(RANDOM)),
    ]


def tpcc_claims(table: pa.Table) -> list[SourceClaim]:
    """The destinations of TPC-C transactions."""
    results = AtomicResults(table)
    return [
        _behind_on_tpcc(results),
        _reduced_is_better(results),
        held(results),
        closed_loop(results),
        weaker_rules_visit_less(results, [TPCC]),
    ]


def groups_claims(table: pa.Table) -> list[SourceClaim]:
    """Groups, some messages leaving them."""
    results = AtomicResults(table)
    return [
        _best_in_groups(results),
        _leaving_slows_down(results),
        _best_with_many(results),
        held(results),
        closed_loop(results),
        packets_without_gaps(results),
        weaker_rules_visit_less(results, list(GROUPS), layout=STRIDED, random=SHARES[-1]),
    ]


def clocks_claims(table: pa.Table) -> list[SourceClaim]:
    """Whole and reduced clocks for fewer and fewer servers."""
    results = AtomicResults(table)
    return [
        _reduced_is_better(results),
        _fewer_servers_are_faster(results),
        held(results),
        closed_loop(results),
        reduced_clocks_are_smaller(results, TPCC),
    ]


def tcp_claims(table: pa.Table) -> list[SourceClaim]:
    """Real processes: the claims whose margins outlast a busy machine, by medians."""
    results = few_servers(table)
    return [
        _degrades(results, FEW),
        _loses_throughput(results, FEW),
        _gains_on_the_others(results, FEW, FEW[-1:]),
        held(results),
    ]


def _claim(id_: str, statement: str, measured: str, holds: bool | None) -> SourceClaim:
    return SourceClaim(id=id_, source=ARTICLE, statement=statement, measured=measured, holds=holds)


def _degrades(results: AtomicResults, workloads: Sequence[str]) -> SourceClaim:
    rates = [results.average(_RATE, DF, workload) for workload in workloads]
    latencies = [results.average(_LATENCY, DF, workload) for workload in workloads]
    return _claim(
        "Q1",
        "Delporte-Fauconnier degrades clearly as destinations grow: throughput falls and latency rises "
        f"from {workloads[0]} to {workloads[-1]}.",
        f"{results.rates()}: {listed(workloads, rates)}; mean latency in ms: {listed(workloads, latencies, 1)}",
        all_of([falls(rates), rises(latencies)]),
    )


def _loses_throughput(results: AtomicResults, workloads: Sequence[str]) -> SourceClaim:
    rates = [results.average(_RATE, SKEEN, workload) for workload in workloads]
    return _claim(
        "Q2",
        f"Skeen loses throughput as destinations grow, from {workloads[0]} to {workloads[-1]}.",
        f"{results.rates()}: {listed(workloads, rates)}",
        falls(rates),
    )


def _gains_on_the_others(results: AtomicResults, workloads: Sequence[str], many: Sequence[str]) -> SourceClaim:
    """A statement on saturated servers: with few clients Skeen is ahead at any number of destinations."""
    skeen, climbing, chain = ([results.average(_RATE, system, workload) for workload in workloads] for system in _THREE)
    to_skeen, to_climbing = ratios(chain, skeen), ratios(chain, climbing)
    ahead = [
        None if ratio is None else ratio > 1
        for name, *pair in zip(workloads, to_skeen, to_climbing, strict=True)
        for ratio in pair
        if name in many
    ]
    return _claim(
        "Q3",
        "The more destinations, the better the daisy chain next to the others: both ratios of throughput rise, and it "
        f"is ahead on {' and '.join(many)} ({results.most_clients} clients).",
        f"daisy chain {results.rates()}: {listed(workloads, chain)}; over Skeen: {listed(workloads, to_skeen, 2)}; "
        f"over Delporte-Fauconnier: {listed(workloads, to_climbing, 1)}",
        all_of([rises(to_skeen), rises(to_climbing), *ahead]),
    )


def _visits_per_destination_fall(results: AtomicResults) -> SourceClaim:
    visits = [results.average("visits_per_destination", DCC, workload) for workload in _FIXED]
    return _claim(
        "Q4",
        "The fewer destinations, the more servers handle a message of the daisy chain without being one, for each "
        "destination.",
        f"visits a destination: {listed(_FIXED, visits, 2)}",
        falls(visits),
    )


def _slowest_when_alone(results: AtomicResults) -> SourceClaim:
    """At low load only: in a closed loop the highest latency cannot go with the highest throughput."""
    verdicts, texts = [], []
    for workload in RANDOM:
        latencies = [results.average(_LATENCY, system, workload, clients=1) for system in _THREE]
        verdicts += [rises([other, latencies[-1]]) for other in latencies[:-1]]
        texts.append(f"{workload}: {listed(_THREE, latencies, 2)}")
    return _claim(
        "Q5",
        "The latency of the daisy chain is above that of the others (with one client: under load it cannot be, "
        "together with Q3).",
        f"mean latency in ms: {'; '.join(texts)}",
        all_of(verdicts),
    )


def _behind_on_tpcc(results: AtomicResults) -> SourceClaim:
    shares = [results.pooled(column) for column in _TPCC_SIZES]
    percent = [None if share is None else 100 * share for share in shares]
    near = [
        None if found is None else abs(found - expected) <= _TPCC_TOLERANCE
        for found, expected in zip(percent, _TPCC_SIZES.values(), strict=True)
    ]
    rates = [results.average(_RATE, system, TPCC) for system in _THREE]
    return _claim(
        "Q6",
        "Transactions of TPC-C mostly have one destination, some two, rarely three, and there the daisy chain is "
        "behind Skeen.",
        f"destinations in %: {listed(('one', 'two', 'three'), percent, 2)}; {results.rates()}: {listed(_THREE, rates)}",
        all_of([*near, falls([rates[0], rates[-1]])]),
    )


def _reduced_is_better(results: AtomicResults) -> SourceClaim:
    pair = (DCC, DCC_RV)
    rates = [results.average(_RATE, system, TPCC) for system in pair]
    latencies = [results.average(_LATENCY, system, TPCC) for system in pair]
    trimmed = [results.average("latency_ms_trimmed", system, TPCC) for system in pair]
    return _claim(
        "Q7",
        "Reduced clocks give the daisy chain lower latency and higher throughput (TPC-C).",
        f"{results.rates()}: {listed(pair, rates)}; mean latency in ms: {listed(pair, latencies, 4)}; without the "
        f"highest and the lowest twentieth: {listed(pair, trimmed, 4)}",
        all_of([rises(rates), falls(latencies)]),
    )


def _fewer_servers_are_faster(results: AtomicResults) -> SourceClaim:
    means, tails = (
        [results.average(column, DCC, TPCC, clients=SOME_CLIENTS, servers=servers) for servers in SIZES]
        for column in (_LATENCY, _P99)
    )
    names = [f"{servers} servers" for servers in SIZES]
    return _claim(
        "Q8",
        f"With fewer servers the latency of the daisy chain is lower (TPC-C, {SOME_CLIENTS} clients): mean and 99th "
        "percentile fall from 16 to 8 to 4.",
        f"mean in ms: {listed(names, means, 4)}; 99th percentile in ms: {listed(names, tails, 3)}",
        all_of([rises(means), rises(tails)]),
    )


def _in_groups(results: AtomicResults, system: str, group: str) -> Number:
    return results.average(_RATE, system, group, layout=STRIDED)


def _best_in_groups(results: AtomicResults) -> SourceClaim:
    rates = {group: [_in_groups(results, system, group) for system in _THREE] for group in GROUPS}
    verdicts = [rises([other, rates[group][-1]]) for group in _LARGE_GROUPS for other in rates[group][:-1]]
    texts = [f"{group}: {listed(_THREE, figures)}" for group, figures in rates.items()]
    return _claim(
        "Q9",
        "Where all messages stay in disjoint groups, the daisy chain sustains more than the others in groups of 4 and "
        "of 8.",
        f"{results.rates()}: {'; '.join(texts)}",
        all_of(verdicts),
    )


def _leaving_slows_down(results: AtomicResults) -> SourceClaim:
    verdicts, texts = [], []
    names = [f"{share:.0%}" for share in SHARES]
    for group in GROUPS:
        rates = [results.average(_RATE, DCC_RV, group, layout=STRIDED, random=share) for share in SHARES]
        verdicts.append(falls(rates))
        texts.append(f"{group}: {listed(names, rates)}")
    return _claim(
        "Q10",
        "Messages to random servers among those to groups make the daisy chain visit: its throughput falls with their "
        "share (strided groups, reduced clocks).",
        f"{results.rates()}: {'; '.join(texts)}",
        all_of(verdicts),
    )


def _best_with_many(results: AtomicResults) -> SourceClaim:
    parts = [_gains_on_the_others(results, list(RANDOM), _MANY), _best_in_groups(results)]
    return _claim(
        "Q11",
        "The daisy chain is the best of the three for many destinations and disjoint groups (Q3 and Q9).",
        "; ".join(f"{part.id}: {part.measured}" for part in parts),
        all_of([part.holds for part in parts]),
    )

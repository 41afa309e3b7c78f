"""Decides the claims of figure 5.1: LoCaMu pipelines, Delta-Neighbourhood waits (K1 to K6, K12)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pyarrow as pa

from ordercast.experiments.kit.claims import all_of
from ordercast.experiments.kit.results import (
    Curve,
    Number,
    Verdict,
    falls,
    fit_line,
    listed,
    means,
    measured_at,
    ratio,
    rises,
    within,
)
from ordercast.experiments.kit.study import OURS, PROTOTYPE, Row, SourceClaim
from ordercast.experiments.locamu import reference
from ordercast.experiments.locamu.claims_common import acknowledgements_are_small, claim, promises
from ordercast.experiments.locamu.results import LocamuResults, crossing, flat, ratios, shown
from ordercast.experiments.locamu.runs import CORRECTED, DELTA, LOCAMU, MODEL, PUBLISHED, SENDER, WIRE
from ordercast.experiments.locamu.scales import BANDWIDTHS, PAYLOADS

ONE, ALL = "individual_per_s", "aggregated_per_s"
_NEAR, _ROUGH = 0.05, 0.1
_LINEAR_R2 = 0.99
_MBPS = 100.0
_SIZES = (127.0, 1_023.0)
_DELTA_BY_DEGREE = {3: 62.5, 4: 83.3, 5: 100.0, 6: 125.0, 9: 166.7}
"""One message in twice the depth of a tree of 511 nodes, in milliseconds."""


def single_claims(table: pa.Table) -> list[SourceClaim]:
    """All claims of the study."""
    results = LocamuResults(table)
    return [
        _size(results),
        _publishers(results),
        _bytes_decide(results),
        _bandwidth(results),
        _payload(results),
        _faults(results),
        _degree(results),
        _latency(results),
        _root(results),
        *_references(results),
        _fixed_window(results),
        _own_encoding(results),
        acknowledgements_are_small(results),
        *promises(results),
    ]


def _size(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("a", ONE, protocol, along="nodes") for protocol in (LOCAMU, DELTA))
    small, large = (means(mine).get(nodes) for nodes in _SIZES)
    expected = {point.x: 1e3 / (2 * math.floor(math.log2(point.x))) for point in theirs}
    return claim(
        "K1",
        "Delta-Neighbourhood falls with the size of the system, LoCaMu does not: LoCaMu with 1,023 nodes within 5 % of "
        "127, Delta-Neighbourhood one message in twice the depth of the tree, in milliseconds (within 5 %).",
        f"messages/s of a single publisher by nodes: LoCaMu {listed(mine)}; Delta-Neighbourhood {listed(theirs)}",
        all_of(
            [
                _near(small, large, _NEAR),
                measured_at(theirs, {*_SIZES, *means(mine)}),
                *(within(point.mean, expected[point.x], _NEAR) for point in theirs),
            ]
        ),
    )


def _near(one: Number, other: Number, share: float) -> Verdict:
    return None if one is None or other is None else within(other, one, share)


def _publishers(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("b", ALL, protocol, along="publishers") for protocol in (LOCAMU, DELTA))
    line = fit_line(theirs)
    ends: Verdict = None
    if mine and theirs and mine[-1].x == theirs[-1].x:
        ends = theirs[-1].mean > mine[-1].mean
    passes = crossing(theirs, mine)
    return claim(
        "K2",
        "With more publishers LoCaMu is flat from the first on (within 10 %), Delta-Neighbourhood grows linearly (R² "
        "above 0.99) and ends above.",
        f"deliveries/s by publishers: LoCaMu {listed(mine)}; Delta-Neighbourhood {listed(theirs)}, "
        f"R² {shown(line.r2 if line else None, 5)}; "
        + ("does not pass here" if passes is None else f"passes at {passes:,.0f} publishers"),
        all_of(
            [
                flat(mine, _ROUGH),
                line.r2 > _LINEAR_R2 if line else None,
                ends,
                measured_at(theirs, results.publishers("b")),
                measured_at(mine, [1.0]),
            ]
        ),
    )


def _bytes_decide(results: LocamuResults) -> SourceClaim:
    """Why LoCaMu is not flat."""
    rates, through = (
        means(results.curve("b", column, LOCAMU, along="publishers")) for column in (ALL, "busiest_bytes_per_message")
    )
    nodes = {float(row["nodes"] or 0) for row in results.of("b")}
    found = {x: (bytes_, _MBPS * 1e6 / 8 / bytes_, rates[x] / max(nodes)) for x, bytes_ in through.items()}
    grow = through[max(through)] > through[1.0] if 1.0 in through and len(through) > 1 else None
    return claim(
        "K2-cause",
        "LoCaMu publishes what the bytes at the busiest node allow (within 10 %), and these grow with the publishers.",
        "; ".join(
            f"with {x:g} publishers {bytes_:,.0f} bytes a message, sent and received, allow {allowed:,.0f} messages/s, "
            f"measured {rate:,.0f}"
            for x, (bytes_, allowed, rate) in found.items()
        )
        or "not measured",
        all_of([grow, *(within(rate, allowed, _ROUGH) for _, allowed, rate in found.values())]),
        source=OURS,
    )


def _bandwidth(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("c", ONE, protocol, along="mbps") for protocol in (LOCAMU, DELTA))
    base = means(mine).get(100.0)
    proportional = [within(point.mean, base * point.x / 100, _NEAR) for point in mine] if base else [None]
    return claim(
        "K3",
        "LoCaMu is proportional to the bandwidth (within 5 %), Delta-Neighbourhood does not depend on it (within 10 % "
        "from 50 Mb/s up).",
        f"messages/s by Mb/s: LoCaMu {listed(mine)}; Delta-Neighbourhood {listed(theirs, 1)}",
        all_of(
            [
                *proportional,
                flat([point for point in theirs if point.x >= 50], _ROUGH),
                *(measured_at(points, BANDWIDTHS) for points in (mine, theirs)),
            ]
        ),
    )


def _payload(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("d", ONE, protocol, along="payload") for protocol in (LOCAMU, DELTA))
    factors = ratios(mine, theirs)
    return claim(
        "K4",
        "With larger payloads both behave alike: the ratio of LoCaMu to Delta-Neighbourhood falls with every step (to "
        "a constant near the depth of the tree, not to 1: a pipeline against store and forward).",
        f"messages/s by payload: LoCaMu {listed(mine, 1)}; Delta-Neighbourhood {listed(theirs, 2)}; ratio "
        + ", ".join(f"{x:g}: {factor:.1f}" for x, factor in factors.items()),
        all_of([falls(list(factors.values())), *(measured_at(points, PAYLOADS) for points in (mine, theirs))]),
    )


def _faults(results: LocamuResults) -> SourceClaim:
    theirs = results.curve("e", ONE, DELTA, along="f")
    verdicts: list[Verdict] = [flat(theirs, _NEAR), measured_at(theirs, (1, 2, 3))]
    texts = []
    # The quick scale has the published radii up to f = 2 only.
    for profile, wanted in ((PUBLISHED, (1, 2)), (CORRECTED, (1, 2, 3))):
        rates = by_f(results, ONE, profile)
        steps = [b.mean / a.mean for a, b in pairwise(rates) if b.x <= 3]
        verdicts += [*(step <= 0.5 for step in steps), measured_at(rates, wanted)]
        texts.append(f"LoCaMu, {profile} radii: {listed(rates)}")
    return claim(
        "K5",
        "LoCaMu at least halves with each step of f, up to 3; Delta-Neighbourhood changes by less than 5 %.",
        f"messages/s by f: {'; '.join(texts)}; Delta-Neighbourhood {listed(theirs, 1)}",
        all_of(verdicts),
    )


def by_f(results: LocamuResults, column: str, profile: str) -> Curve:
    """LoCaMu along f. With f = 1 both profiles are the same and were run once."""
    points = results.curve("e", column, LOCAMU, along="f", profile=profile)
    if profile == PUBLISHED:
        points = [*results.curve("e", column, LOCAMU, along="f", profile=CORRECTED, f=1), *points]
    return points


def _degree(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("f", ONE, protocol, along="degree") for protocol in (LOCAMU, DELTA))
    expected = [within(point.mean, _DELTA_BY_DEGREE[int(point.x)], _NEAR) for point in theirs]
    return claim(
        "K6",
        "With more neighbours a node LoCaMu falls and Delta-Neighbourhood rises (62, 83, 100, 125, 167 messages/s for "
        "3, 4, 5, 6, 9, within 5 %).",
        f"messages/s by neighbours: LoCaMu {listed(mine)}; Delta-Neighbourhood {listed(theirs, 1)}",
        all_of(
            [
                falls([p.mean for p in mine]),
                rises([p.mean for p in theirs]),
                *expected,
                *(measured_at(points, _DELTA_BY_DEGREE) for points in (mine, theirs)),
            ]
        ),
    )


def _latency(results: LocamuResults) -> SourceClaim:
    mine, theirs = (results.curve("latency", ALL, protocol, along="latency_ms") for protocol in (LOCAMU, DELTA))
    slower = ratio(theirs[-1].mean, theirs[0].mean) if len(theirs) > 1 else None
    return claim(
        "K12",
        "Latency affects only Delta-Neighbourhood: with all nodes publishing and 10 ms instead of 1 ms a link LoCaMu "
        "changes by less than 5 %.",
        f"deliveries/s by latency in ms: LoCaMu {listed(mine)}; Delta-Neighbourhood {listed(theirs)}",
        all_of([flat(mine, _NEAR), None if slower is None else slower < 1 - _NEAR]),
    )


def _depths(rows: Sequence[Row], publishers: float) -> str:
    """Depths of the busiest nodes."""
    depths = {int(row["busiest_depth"] or 0) for row in rows if row["publishers"] == publishers}
    return " or ".join(map(str, sorted(depths)))


def _root(results: LocamuResults) -> SourceClaim:
    rows = [row for row in results.of("b") if row["protocol"] == LOCAMU and row["sizes"] == MODEL]
    shares = [
        means(results.curve("b", f"{who}_share", LOCAMU, along="publishers"))
        for who in ("root", "child", "last", "busiest")
    ]
    texts = [
        f"with {x:g} publishers the root {{:.0%}}, a child of it {{:.0%}}, a leaf {{:.0%}}, the busiest node, at depth "
        f"{_depths(rows, x)}, {{:.0%}}".format(*[share[x] for share in shares])
        for x in sorted(set.intersection(*map(set, shares)))
    ]
    return claim(
        "root",
        "The root limits the aggregate throughput. (Not expected: in a binary tree it has two neighbours and passes "
        "one copy of a message on, every other inner node has three and passes on two.)",
        f"bytes offered, of what a node can carry: {'; '.join(texts) or 'not measured'}",
        all_of(
            [
                *(row["busiest_depth"] == 0 for row in rows),
                True if len({row["publishers"] for row in rows}) > 1 else None,
            ]
        ),
    )


def _references(results: LocamuResults) -> Iterable[SourceClaim]:
    yield _capacities(results)
    yield _busiest(results)


def _capacities(results: LocamuResults) -> SourceClaim:
    mine = results.value("a", ONE, LOCAMU, nodes=511)
    sender = results.value("sender", ONE, LOCAMU, charge=SENDER, nodes=511)
    theirs, ours = (
        results.curve("b", ALL, protocol, along="publishers", nodes=511) for protocol in (DELTA, LOCAMU)
    )  # fmt: skip
    delta, anywhere = (ratio(means(theirs).get(publishers), 511) for publishers in (511.0, 1.0))
    low, high = reference.DELTA_RANDOM_PER_S
    passes = crossing(theirs, ours)
    tolerance = reference.TOLERANCE
    return claim(
        "capacities",
        "511 nodes, 100 Mb/s: LoCaMu 11.7 k messages/s where both ends pay, 17.5 k where the sender does; "
        "Delta-Neighbourhood 17.2 k with all nodes publishing, 33 to 40 with one anywhere, passing LoCaMu near 345 "
        "publishers (within 10 %).",
        f"LoCaMu {shown(mine)} and {shown(sender)}; Delta-Neighbourhood {shown(delta)}, one publisher "
        f"{shown(anywhere, 1)}, passes at {shown(passes)} publishers",
        all_of(
            [
                within(mine, reference.CAPACITY_PER_S, tolerance),
                within(sender, reference.CAPACITY_SENDER_PER_S, tolerance),
                within(delta, reference.DELTA_ALL_PER_S, tolerance),
                None if anywhere is None else low * (1 - tolerance) <= anywhere <= high * (1 + tolerance),
                within(passes, reference.DELTA_PASSES, tolerance),
            ]
        ),
        source=PROTOTYPE,
    )


def _busiest(results: LocamuResults) -> SourceClaim:
    column = "busiest_sent_bytes_per_message"
    texts, verdicts = [], []
    for (f, profile), expected in reference.BUSIEST_BY_F.items():
        found = means(by_f(results, column, profile)).get(float(f))
        texts.append(f"f = {f}, {profile}: {shown(found)} ({expected:,.0f})")
        verdicts.append(within(found, expected, reference.TOLERANCE))
    for degree, expected in reference.BUSIEST_BY_DEGREE.items():
        found = means(results.curve("f", column, LOCAMU, along="degree")).get(float(degree))
        texts.append(f"{degree} neighbours: {shown(found)} ({expected:,.0f})")
        verdicts.append(within(found, expected, reference.TOLERANCE))
    return claim(
        "busiest-node",
        "What the busiest node sends for a message, payloads included, is what the prototype found (within 10 %).",
        f"bytes, the prototype's in brackets: {'; '.join(texts)}",
        all_of(verdicts),
        source=PROTOTYPE,
    )


def _fixed_window(results: LocamuResults) -> SourceClaim:
    fixed = results.value("window", ONE, LOCAMU)
    wide = means(results.curve("c", ONE, LOCAMU, along="mbps")).get(1_000.0)
    packets = results.value("c", "window", LOCAMU, mbps=1_000.0)
    return claim(
        "window-follows-bandwidth",
        "A publisher with 64 packets a link on their way cannot fill 1,000 Mb/s links with a latency of 1 ms: its "
        "window has to grow with the bandwidth, as it does in the figure.",
        f"messages/s at 1,000 Mb/s: {shown(fixed)} with 64 packets, {shown(wide)} with {shown(packets)}",
        None if fixed is None or wide is None else fixed < 0.9 * wide,
        source=OURS,
    )


def _own_encoding(results: LocamuResults) -> SourceClaim:
    model, wire = (results.curve("a", ONE, LOCAMU, along="nodes", sizes=sizes) for sizes in (MODEL, WIRE))
    factors = ratios(wire, model)
    return claim(
        "own-encoding-is-faster",
        "With the bytes that LoCaMu's packets really have, a publisher gets at least twice as far as with the source's "
        "count (511 nodes).",
        "times as many messages/s, by nodes: " + ", ".join(f"{x:g}: {factor:.2f}" for x, factor in factors.items()),
        None if 511.0 not in factors else factors[511.0] >= 2,
        source=OURS,
    )

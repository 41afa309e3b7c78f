"""Decides the claims of figures 5.2 and 5.3: causal protocols compared, with one and many groups (K7 to K11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import pyarrow as pa

from ordercast.experiments.kit.claims import all_of
from ordercast.experiments.kit.results import Curve, Number, Point, Verdict, listed, means, measured_at, within
from ordercast.experiments.kit.study import OURS, PROTOTYPE, SourceClaim
from ordercast.experiments.locamu import reference
from ordercast.experiments.locamu.claims_common import acknowledgements_are_small, claim, promises
from ordercast.experiments.locamu.results import LocamuResults, crossing, flat, ratios, shown
from ordercast.experiments.locamu.runs import BARRIERS, CBCAST, LOCAMU, MODEL, WIRE

BYTES, ALL = "metadata_bytes", "aggregated_per_s"
FAST, SLOW = "ab", "cd"
"""The sub-figures with 100 and with 10 Mb/s."""
_SAME = 0.1
_FROM = 5
"""Publishers from which Causal Barriers is to be the slowest."""
_PLATEAU = 0.8
"""Points above this share of the largest belong to a plateau."""


def one_group_claims(table: pa.Table) -> list[SourceClaim]:
    """Number 5.2."""
    results = LocamuResults(table)
    return [
        _independent_of_publishers(results),
        _cbcast_overtakes(results),
        _cbcast_decreases(results),
        _barriers_are_largest(results),
        _third_of_the_model(results),
        *_references(results, reference.ONE_GROUP, "one"),
        acknowledgements_are_small(results),
        *promises(results),
    ]


def many_groups_claims(table: pa.Table) -> list[SourceClaim]:
    """Number 5.3."""
    results = LocamuResults(table)
    return [
        _independent_of_publishers(results),
        _independent_of_groups(results),
        _barriers_are_largest(results),
        _groups_cost_cbcast(results),
        _bottleneck(results),
        _third_of_the_model(results),
        *_references(results, reference.MANY_GROUPS, "subtrees"),
        acknowledgements_are_small(results),
        *promises(results),
    ]


def by_publishers(results: LocamuResults, figure: str, column: str, protocol: str, sizes: str = MODEL) -> Curve:
    return results.curve(figure, column, protocol, along="publishers", sizes=sizes)


def _independent_of_publishers(results: LocamuResults) -> SourceClaim:
    fast, slow = (by_publishers(results, figure, BYTES, LOCAMU) for figure in (FAST, SLOW))
    return claim(
        "K7",
        "LoCaMu's metadata does not depend on the number of publishers (within 10 %).",
        f"bytes by publishers: 100 Mb/s {listed(fast)}; 10 Mb/s {listed(slow)}",
        all_of(
            [
                verdict
                for figure, points in ((FAST, fast), (SLOW, slow))
                for verdict in (flat(points, _SAME), measured_at(points, results.publishers(figure)))
            ]
        ),
    )


def _independent_of_groups(results: LocamuResults) -> SourceClaim:
    many, one = (by_publishers(results, figure, BYTES, LOCAMU) for figure in (FAST, "one"))
    shares = ratios(many, one)
    return claim(
        "K7-groups",
        "LoCaMu's metadata does not depend on the number of groups (within 10 %).",
        f"bytes by publishers: many groups {listed(many)}; one group {listed(one)}",
        all_of([*(abs(share - 1) <= _SAME for share in shares.values()), _complete(shares, results.publishers("one"))]),
    )


def _cbcast_overtakes(results: LocamuResults) -> SourceClaim:
    mine, theirs = (by_publishers(results, FAST, BYTES, protocol) for protocol in (LOCAMU, CBCAST))
    passes = crossing(theirs, mine)
    wanted = results.publishers(FAST)
    ends: Verdict = None
    if len(wanted) > 1 and measured_at(mine, wanted) and measured_at(theirs, wanted):
        ends = theirs[0].mean < mine[0].mean and theirs[-1].mean > mine[-1].mean
    return claim(
        "K8",
        "CBCAST's metadata starts below LoCaMu's and ends above.",
        f"bytes by publishers: CBCAST {listed(theirs)}; LoCaMu {listed(mine)}; passes at {shown(passes)}",
        ends,
    )


def _cbcast_decreases(results: LocamuResults) -> SourceClaim:
    mine, theirs = (by_publishers(results, SLOW, ALL, protocol) for protocol in (LOCAMU, CBCAST))
    ours_at_last, theirs_at_last = (results.value("end", ALL, protocol) for protocol in (LOCAMU, CBCAST))
    peaks: Verdict = None
    if len(theirs) > 2 and measured_at(theirs, results.publishers(SLOW)):
        peaks = theirs[0].mean < max(point.mean for point in theirs) > theirs[-1].mean
    return claim(
        "K9",
        "At 10 Mb/s CBCAST's throughput rises, peaks and decreases, and ends below LoCaMu's.",
        f"deliveries/s by publishers: CBCAST {listed(theirs)}; LoCaMu {listed(mine)}; all of {_crowd(results)} nodes: "
        f"CBCAST {shown(theirs_at_last)}, LoCaMu {shown(ours_at_last)}",
        all_of([peaks, _below(theirs_at_last, ours_at_last)]),
    )


def _crowd(results: LocamuResults) -> str:
    return ", ".join(f"{point.x:g}" for point in results.curve("end", ALL, LOCAMU, along="nodes")) or "no"


def _complete(shares: Mapping[float, float], wanted: Set[float]) -> Verdict:
    """None where two curves should have been compared at a point, and were not."""
    return True if wanted and wanted <= shares.keys() else None


def _below(one: Number, other: Number) -> Verdict:
    return None if one is None or other is None else one < other


def _barriers_are_largest(results: LocamuResults) -> SourceClaim:
    verdicts: list[Verdict] = []
    texts = []
    for figure, name in ((FAST, "100 Mb/s"), (SLOW, "10 Mb/s")):
        barriers, bytes_ = (by_publishers(results, figure, column, BARRIERS) for column in (ALL, BYTES))
        wanted = results.publishers(figure)
        for other in (LOCAMU, CBCAST):
            larger = ratios(bytes_, by_publishers(results, figure, BYTES, other))
            slower = ratios(barriers, by_publishers(results, figure, ALL, other))
            verdicts += [share > 1 for share in larger.values()]
            verdicts += [share < 1 for publishers, share in slower.items() if publishers >= _FROM]
            verdicts += [_complete(larger, wanted), _complete(slower, wanted)]
        texts.append(f"{name}: {listed(bytes_)} bytes, {listed(barriers)} deliveries/s")
    return claim(
        "K10",
        "Causal Barriers has the largest metadata at every point and the lowest throughput from 5 publishers on.",
        f"by publishers: {'; '.join(texts)}",
        all_of(verdicts),
    )


def _groups_cost_cbcast(results: LocamuResults) -> SourceClaim:
    shares = {
        protocol: ratios(by_publishers(results, FAST, BYTES, protocol), by_publishers(results, "one", BYTES, protocol))
        for protocol in (CBCAST, BARRIERS)
    }
    mine, theirs = (by_publishers(results, SLOW, ALL, protocol) for protocol in (LOCAMU, CBCAST))
    ours_at_last, theirs_at_last = (results.value("end", ALL, protocol) for protocol in (LOCAMU, CBCAST))
    keeps = collapses = None
    wanted = results.publishers(SLOW)
    if len(wanted) > 1 and measured_at(mine, wanted) and measured_at(theirs, wanted):
        keeps = mine[-1].mean >= _PLATEAU * max(point.mean for point in mine)
        collapses = theirs[-1].mean < _PLATEAU * max(point.mean for point in theirs)
    texts = [
        f"{protocol} " + ", ".join(f"{x:g}: {share:.2f}" for x, share in found.items())
        for protocol, found in shares.items()
    ]
    return claim(
        "K11",
        "With many groups CBCAST's metadata exceeds its own with one group at the same number of publishers; at 10 "
        f"Mb/s LoCaMu ends within {1 - _PLATEAU:.0%} of its best, CBCAST below {_PLATEAU:.0%} of its own and below "
        "LoCaMu.",
        f"metadata over that with one group, by publishers: {'; '.join(texts)}; deliveries/s at 10 Mb/s: LoCaMu "
        f"{listed(mine)}; CBCAST {listed(theirs)}; all of {_crowd(results)} nodes: LoCaMu "
        f"{shown(ours_at_last)}, CBCAST {shown(theirs_at_last)}",
        all_of(
            [
                *(share > 1 for share in shares[CBCAST].values()),
                _complete(shares[CBCAST], results.publishers("one")),
                keeps,
                collapses,
                _below(theirs_at_last, ours_at_last),
            ]
        ),
    )


def _bottleneck(results: LocamuResults) -> SourceClaim:
    """A claim about the busiest nodes, where publishers choose among their own groups and among all."""
    texts, depths = [], []
    for figure, name in ((SLOW, "their own groups"), ("any", "all groups")):
        rows = [row for row in results.of(figure) if row["protocol"] == LOCAMU and row["sizes"] == MODEL]
        rows = [row for row in rows if row["mbps"] == 10.0]
        row = max(rows, key=lambda row: int(row["publishers"] or 0), default=None)
        if row is not None:
            depths.append(row["busiest_depth"])
            texts.append(
                f"{name}: busiest at depth {row['busiest_depth']} with {float(row['busiest_share'] or 0):.0%} of what "
                f"it can carry offered, root {float(row['root_share'] or 0):.0%}"
            )
    return claim(
        "root",
        "The root limits the throughput. (Not expected where publishers choose among their own groups, most of which "
        "are small; rather near the top where they choose among all.)",
        "; ".join(texts) or "not measured",
        all_of([*(depth == 0 for depth in depths), True if len(depths) == 2 else None]),
    )


def _third_of_the_model(results: LocamuResults) -> SourceClaim:
    model, wire = (by_publishers(results, FAST, BYTES, LOCAMU, sizes) for sizes in (MODEL, WIRE))
    shares = ratios(wire, model)
    wanted = results.publishers(FAST, WIRE)
    return claim(
        "wire-below-a-third",
        "What LoCaMu really puts on the wire, all but the payload, is less than a third of the source's count at every "
        f"number of publishers that both were run with ({len(wanted)}, 100 Mb/s).",
        f"bytes by publishers: encoded {listed(wire, 1)}; counted {listed(model)}; share "
        + ", ".join(f"{x:g}: {share:.2f}" for x, share in shares.items()),
        all_of(
            [
                *(share < 1 / 3 for share in shares.values()),
                _complete(shares, wanted),
                True if len(wanted) > 1 else None,
            ]
        ),
        source=OURS,
    )


def _references(results: LocamuResults, expected: dict[str, dict[int, float]], groups: str) -> Iterable[SourceClaim]:
    for protocol, sizes in expected.items():
        found = means(by_publishers(results, "reference", BYTES, protocol))
        measured = {publishers: found.get(float(publishers)) for publishers in sizes}
        known = {publishers: value for publishers, value in measured.items() if value is not None}
        texts = [f"{publishers}: {shown(measured[publishers])} ({size:,.0f})" for publishers, size in sizes.items()]
        yield claim(
            f"size-{protocol}",
            f"Metadata of {protocol} in 511 nodes without limits of bandwidth is what the prototype found (within "
            "10 %).",
            f"{len(known)} of {len(sizes)} reference points measured; bytes by publishers, the prototype's in "
            f"brackets: {', '.join(texts)}",
            all_of(
                [
                    *(within(value, sizes[publishers], reference.TOLERANCE) for publishers, value in known.items()),
                    True if len(known) > 1 else None,
                ]
            ),
            source=PROTOTYPE,
        )
    yield _crossing(results, groups)


def _crossing(results: LocamuResults, groups: str) -> SourceClaim:
    mine, theirs = (by_publishers(results, "reference", BYTES, protocol) for protocol in (LOCAMU, CBCAST))
    # LoCaMu's is flat: its last value does for the points that it was not measured at.
    level = [Point(point.x, mine[-1].mean, 0.0) for point in theirs] if mine else []
    passes = crossing(theirs, level)
    expected = reference.CROSSING[groups]
    return claim(
        "crossing",
        f"CBCAST's metadata passes LoCaMu's at about {expected} publishers of 511 (within 10 %, interpolated between "
        "the points that were measured).",
        f"at {shown(passes)} publishers",
        within(passes, expected, reference.TOLERANCE),
        source=PROTOTYPE,
    )

"""Figure 5.4: the closed forms are what counting gives, and its claims can hold and can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ordercast.experiments.kit.study import Row, SourceClaim
from ordercast.experiments.locamu_scale import WORST_CASE_STUDY, zipf
from ordercast.experiments.locamu_scale.closed_forms import locamu_memory, within
from ordercast.experiments.locamu_scale.worst_cases import FORM, RUN, bound, measure, scenario
from ordercast.overlay.graphs import build_graph
from ordercast.overlay.groups import build_groups
from ordercast.protocols.locamu.rules import radii
from ordercast.protocols.locamu.sizes import streams_around


def computed() -> list[Row]:
    return [{"id": "x", **row, **measure(row)} for row in WORST_CASE_STUDY.scales["quick"] if row["part"] == FORM]


def simulated() -> list[Row]:
    """Runs as the claims would have them."""
    common: Row = {"model_most": 1, "model_mean": 1.0, "wire_most": 1, "wire_mean": 1.0, "judged": "held"}
    return [
        {"id": "x", **row, **common, "bound": bound(row), "failed_checks": ""}
        for row in WORST_CASE_STUDY.scales["quick"]
        if row["part"] == RUN
    ]


def table(rows: list[Row]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def judged(rows: list[Row]) -> dict[str, SourceClaim]:
    return {claim.id: claim for claim in WORST_CASE_STUDY.claims(table(rows))}


@pytest.mark.parametrize(("nodes", "members", "groups"), [(1_024, 3_864, 445), (65_536, 259_019, 1_500)])
def test_zipf_groups_have_the_members_that_the_formula_gives(nodes: int, members: int, groups: int) -> None:
    sizes = zipf.group_sizes(nodes)
    assert sum(sizes) == members
    assert sum(size > 0 for size in sizes) == groups


def test_the_printed_total_of_the_zipf_groups_belongs_to_no_number_of_nodes() -> None:
    enough = zipf.nodes_for(zipf.PRINTED_MEMBERS)
    assert zipf.members(enough - 1) < zipf.PRINTED_MEMBERS < zipf.members(enough)


def test_simulated_groups_have_the_members_of_the_closed_form() -> None:
    planned = scenario({
        "protocol": "cbcast", "nodes": 63, "bursts": 1, "seed": 0, "headers": "whole", "degree": 3, "groups": "zipf",
    })  # fmt: skip
    groups = build_groups(planned.groups, build_graph(planned.overlay, 0), 0)
    assert sorted(map(len, groups.values()), reverse=True) == [size for size in zipf.group_sizes(63) if size]


def streams_by_counting(degree: int, f: int, profile: str) -> int:
    """Every pair of nodes of a neighbourhood, one by one."""
    reach = radii(f, profile)
    near: list[list[int]] = [[]]
    rim = [0]
    for _ in range(reach.window):
        outer = []
        for node in rim:
            for _ in range(degree - len(near[node])):
                near[node].append(len(near))
                outer.append(len(near))
                near.append([node])
        rim = outer
    found = 0
    for start in range(len(near)):
        edge = [(start, -1)]
        for _ in range(reach.numbering):
            edge = [(other, node) for node, before in edge for other in near[node] if other != before]
            found += len(edge)
    return found


@pytest.mark.parametrize(
    ("degree", "f", "profile"), [(2, 1, "corrected"), (3, 1, "corrected"), (3, 2, "corrected"), (3, 3, "published"),
                                 (4, 2, "corrected"), (5, 1, "corrected")],
)  # fmt: skip
def test_streams_of_a_neighbourhood_are_as_many_as_counted(degree: int, f: int, profile: str) -> None:
    assert streams_around(degree, radii(f, profile)) == streams_by_counting(degree, f, profile)


def test_memory_of_a_locamu_node_is_its_streams_for_itself_and_each_link() -> None:
    assert within(3, 2) == 9
    assert locamu_memory(3, 1, "corrected") == 4 * 102 * (1 + 9) + 12 * 21


def test_every_claim_is_decided_and_only_the_misprints_fail() -> None:
    claims = judged(computed() + simulated())
    assert {claim.id for claim in claims.values() if claim.holds is None} == set()
    assert {claim.id for claim in claims.values() if claim.holds is False} == {"zipf-total", "degree-of-the-caption"}
    assert "259,019" in claims["zipf-total"].measured
    assert "540" in claims["K13"].measured


@pytest.mark.parametrize(
    ("claim", "column", "value"),
    [
        ("K13", "cbcast", 4_095),
        ("K14-growth", "locamu_memory", 7),
        ("K14-below-causal-barriers", "barriers", 500),
        ("locamu-passes-cbcast", "locamu_formula", 1),
        ("locamu-within-worst-case", "model_most", 10**9),
        ("cbcast-within-worst-case", "model_most", 10**9),
        ("causal-barriers-within-worst-case", "model_most", 10**9),
        ("differences-within-worst-case", "model_most", 10**9),
        ("guarantees-hold", "judged", "violated"),
    ],
)
def test_a_claim_that_the_results_contradict_does_not_hold(claim: str, column: str, value: int | str) -> None:
    rows = computed() + simulated()
    spoiled = [{**row, column: value} if column in row and _is_meant(claim, row) else row for row in rows]
    assert judged(spoiled)[claim].holds is False


def _is_meant(claim: str, row: Row) -> bool:
    return claim != "K14-growth" or row["nodes"] == 1_024


@pytest.mark.parametrize("rows", [computed, simulated])
def test_half_of_the_results_decides_what_it_can(rows: Callable[[], list[Row]]) -> None:
    claims = judged(rows())
    assert (claims["K13"].holds is None) == (rows is simulated)
    assert (claims["guarantees-hold"].holds is None) == (rows is computed)


@pytest.mark.parametrize(
    "left_out", [{"nodes": 65_536, "f": 8}, {"nodes": 65_536, "f": 5}, {"nodes": 8_192}, {"degree": 9}]
)
def test_what_is_said_of_the_whole_figure_needs_all_of_it(left_out: Row) -> None:
    claims = judged([row for row in computed() if not left_out.items() <= row.items()])
    names = ("K14-growth", "K14-below-causal-barriers", "locamu-passes-cbcast")
    assert [claims[name].holds for name in names] == [None] * 3


def test_figures_are_drawn_and_repeat_byte_for_byte(tmp_path: Path) -> None:
    results = table(computed() + simulated())
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first, second = WORST_CASE_STUDY.figures(results, one), WORST_CASE_STUDY.figures(results, two)
    assert [one.file.name for one in first] == ["figure-5.4.svg", "largest-headers.svg"]
    assert [one.file.read_bytes() for one in first] == [one.file.read_bytes() for one in second]


def test_headers_of_a_burst_come_near_the_worst_case_of_causal_barriers_and_stay_below() -> None:
    row = measure({
        "part": RUN, "protocol": "causal-barriers", "groups": "one", "nodes": 15, "f": 1, "degree": 3,
        "headers": "whole", "bursts": 2, "seed": 0,
    })  # fmt: skip
    assert row["judged"] == "held"
    assert 0.8 * 8 * 15**2 < int(str(row["model_most"])) <= 8 * 15**2


def test_what_another_document_says_is_not_a_claim_of_the_source() -> None:
    claims = judged([*computed(), *simulated()])
    assert (claims["zipf-total"].of_source, claims["zipf-total-of-scribe"].of_source) == (True, False)

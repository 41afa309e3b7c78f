"""The part of the page about brokers: the tree before and after, who is down, every repair, every replica."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.report.page import RunReport, render
from ordercast.report.trees import layout
from ordercast.verify.metrics.values import MeasuredRepair, ReplicaDigest, RunMetrics, TimelineMark, Topology
from tests.unit.report.builders import full_metrics, manifest, verdict
from tests.unit.report.test_page import Page

TREE = Topology(
    before={"b0": "", "b1": "b0", "b2": "b0"},
    after={"b1": "", "b2": "b1"},
    clients_before={"cho": "b2"},
    clients_after={"cho": "b1"},
    dead=["b0"],
    repaired=True,
)
REPAIRS = [
    MeasuredRepair("b1", False, "b0", 1.0, 0, attached_ms=40.0, role="root", rounds=1, election_ms=39.5, term="2:b1"),
    MeasuredRepair("b2", False, "b0", 1.0, 0, attached_ms=60.0, synchronised_ms=80.0, parent="b1", rounds=2),
    MeasuredRepair("cho", True, "b2", 1.2, 0, attached_ms=30.0, parent="b1"),
    MeasuredRepair("dan", True, "b2", 1.2, 0),
]


def broker_run(**changes: object) -> RunMetrics:
    about = {
        "topology": TREE,
        "repairs": REPAIRS,
        "digests": [ReplicaDigest("cho", "t", "d1"), ReplicaDigest("dan", "t", "d1")],
    }
    return full_metrics(marks=[TimelineMark(0.9, "crash", "b0", None)], **{**about, **changes})


def page_of(metrics: RunMetrics) -> Page:
    return Page(render([RunReport(manifest(), verdict(), metrics)]))


def test_the_page_shows_the_tree_before_and_at_the_end_with_the_dead_marked() -> None:
    text = page_of(broker_run()).text
    assert "before the first fault" in text
    assert "The tree of brokers : 2 brokers at the end, root b1; down: b0 (which was the root); clients 1." in text
    assert "✕ b0 (root)" in text
    assert text.count("✕ b0") == 4  # In both trees, and on the lines of its crash in time and among the repairs.


def test_the_story_names_who_was_killed_when_and_what_it_took() -> None:
    text = page_of(broker_run()).text
    assert "Killed: b0 (the root) at 900 ms." in text
    assert "2 brokers lost their parent and found another, the slowest after 60 ms." in text
    assert "2 clients lost their broker and found another after 30 ms; 1 found none until the end." in text


def test_a_run_without_faults_has_one_tree() -> None:
    calm = Topology(before=TREE.before, after=TREE.before)
    text = page_of(broker_run(topology=calm, repairs=[])).text
    assert "before the first fault" not in text
    assert "3 brokers at the end, root b0" in text


def test_a_client_that_nobody_saw_move_is_named() -> None:
    lost = msgspec.structs.replace(TREE, clients_after={"cho": "b0"})
    assert "clients 1; last seen at a broker that is down: cho." in page_of(broker_run(topology=lost)).text


def test_every_repair_is_told_with_what_it_took() -> None:
    text = page_of(broker_run()).text
    assert "b1 b0 root 1 s 40 ms — 1 39.5 ms 2:b1" in text
    assert "b2 b0 child of b1 1 s 60 ms 80 ms 2 — —" in text
    assert "cho b2 client of b1 1.2 s 30 ms" in text
    assert "dan b2 — 1.2 s never" in text


@pytest.mark.parametrize(("other", "words"), [("d1", "equal"), ("d2", "2 different states")])
def test_replicas_are_compared(other: str, words: str) -> None:
    text = page_of(broker_run(digests=[ReplicaDigest("cho", "t", "d1"), ReplicaDigest("dan", "t", other)])).text
    assert f"t cho d1 {words} t dan {other} {words}" in text


def test_a_run_without_brokers_has_none_of_it() -> None:
    text = page_of(full_metrics()).text
    assert not {"Topology", "Repairs", "Replicas"} & set(text.split())


def test_parents_stand_above_the_middle_of_their_children_and_nobody_on_anybody() -> None:
    spots = layout({"b0": "", "b1": "b0", "b2": "b0", "b3": "b1", "b4": "b1"}, {"cho": "b2"})
    assert spots["b1"].x == (spots["b3"].x + spots["b4"].x) / 2
    assert [spots[name].depth for name in ("b0", "b1", "b3", "cho")] == [0, 1, 2, 2]
    assert len({(spot.x, spot.depth) for spot in spots.values()}) == len(spots)


def test_a_circle_or_a_missing_parent_is_drawn_and_does_not_hang() -> None:
    spots = layout({"b1": "b2", "b2": "b1", "b3": "gone"}, {"cho": "nowhere"})
    assert set(spots) == {"b1", "b2", "b3"}


def test_many_clients_are_a_number() -> None:
    spots = layout({"b0": ""}, {f"c{n}": "b0" for n in range(30)})
    assert set(spots) == {"b0", "30 clients of b0"}

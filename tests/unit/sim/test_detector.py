"""The failure detector: the truth after a delay, and lies only when asked for."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from tests.support.plain_flood import Silent, protocol_of
from tests.support.sim_lab import MS, Lab, scenario

LINE = {"kind": "line", "nodes": 3}


class Watcher(Silent):
    """Writes down whom it trusts again; suspicions are in the trace anyway."""

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        out.note("leave", {"peer": peer})

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        out.note("join", {"peer": peer})


def _story(*faults: dict[str, object], **changes: object) -> list[tuple[float, str, str, str]]:
    """Time, who, suspects or trusts, whom."""
    asked = scenario(**{"overlay": LINE, "fault": list(faults), "detector": {"delay_ms": 50}, **changes})
    words = {"leave": "suspects", "join": "trusts"}
    lab = Lab(asked, protocol_of(Watcher))
    assert len(lab.of("suspect")) == len(lab.of("leave"))
    rows = sorted((r for r in lab.rows if r["kind"] in words), key=lambda r: (r["time_ns"], r["node"]))
    return [(r["time_ns"] / MS, r["node"], words[r["kind"]], r["peer"]) for r in rows]


def test_neighbours_suspect_a_crashed_node_after_the_delay_and_for_good() -> None:
    crash = {"kind": "crash", "node": "n1", "at_ms": 100}
    assert _story(crash) == [(150, "n0", "suspects", "n1"), (150, "n2", "suspects", "n1")]


def test_a_node_may_take_another_time_to_notice() -> None:
    crash = {"kind": "crash", "node": "n1", "at_ms": 100}
    story = _story(crash, detector={"delay_ms": 50, "by": {"n2": 5}})
    assert story == [(105, "n2", "suspects", "n1"), (150, "n0", "suspects", "n1")]


@pytest.mark.parametrize(
    ("by", "words"), [({"n9": 5}, "detector.by: unknown node"), ({"n1": -1}, "detector.by.n1: -1")]
)
def test_a_detector_that_makes_no_sense_is_refused(by: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _story(detector={"delay_ms": 50, "by": by})


def test_only_neighbours_watch_a_node() -> None:
    assert _story({"kind": "crash", "node": "n2", "at_ms": 100}) == [(150, "n1", "suspects", "n2")]


def test_a_node_that_is_back_is_trusted_after_the_delay() -> None:
    crash = {"kind": "crash", "node": "n2", "at_ms": 100, "recover_ms": 300}
    assert _story(crash) == [(150, "n1", "suspects", "n2"), (350, "n1", "trusts", "n2")]


def test_a_node_that_is_back_before_the_delay_was_never_suspected() -> None:
    assert _story({"kind": "crash", "node": "n2", "at_ms": 100, "recover_ms": 120}) == []


def test_a_recovered_node_finds_out_for_itself_who_is_dead() -> None:
    early = {"kind": "crash", "node": "n1", "at_ms": 100}
    late = {"kind": "crash", "node": "n0", "at_ms": 110, "recover_ms": 300}
    assert _story(early, late) == [(150, "n2", "suspects", "n1"), (350, "n0", "suspects", "n1")]


def test_a_partition_makes_both_ends_suspect_each_other_until_it_heals() -> None:
    cut = {"kind": "partition", "sides": [["n0"], ["n1", "n2"]], "at_ms": 100, "until_ms": 300}
    assert _story(cut) == [
        (150, "n0", "suspects", "n1"),
        (150, "n1", "suspects", "n0"),
        (350, "n0", "trusts", "n1"),
        (350, "n1", "trusts", "n0"),
    ]


def test_in_a_one_way_partition_only_the_deaf_side_suspects() -> None:
    cut = {"kind": "partition", "sides": [["n0"], ["n1"]], "at_ms": 100, "until_ms": 300, "one_way": True}
    assert _story(cut) == [(150, "n1", "suspects", "n0"), (350, "n1", "trusts", "n0")]


def test_a_false_suspicion_begins_and_ends_when_the_scenario_says() -> None:
    lie = {"kind": "suspicion", "node": "n1", "at_ms": 100, "until_ms": 200}
    assert _story(lie) == [
        (100, "n0", "suspects", "n1"),
        (100, "n2", "suspects", "n1"),
        (200, "n0", "trusts", "n1"),
        (200, "n2", "trusts", "n1"),
    ]


def test_a_false_suspicion_can_be_one_node_s_own() -> None:
    lie = {"kind": "suspicion", "node": "n1", "by": "n2", "at_ms": 100, "until_ms": 200}
    assert _story(lie) == [(100, "n2", "suspects", "n1"), (200, "n2", "trusts", "n1")]


def test_a_false_suspicion_of_a_node_that_then_crashes_stays() -> None:
    lie = {"kind": "suspicion", "node": "n2", "at_ms": 100, "until_ms": 200}
    assert _story(lie, {"kind": "crash", "node": "n2", "at_ms": 150}) == [(100, "n1", "suspects", "n2")]


def test_a_pause_is_not_noticed() -> None:
    """The detector is told of crashes and cuts; a node that only stands still keeps its connections."""
    assert _story({"kind": "pause", "node": "n1", "at_ms": 100, "until_ms": 900}) == []


def test_a_crash_at_the_very_end_is_noticed_in_the_drain() -> None:
    assert _story({"kind": "crash", "node": "n2", "at_ms": 1000}) == [(1050, "n1", "suspects", "n2")]

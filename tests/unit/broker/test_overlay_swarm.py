"""Random trees and faults. BRK-G8, BRK-I1: checked at every event; one tree in the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ordercast.broker.tree.election import Election
from ordercast.broker.tree.lease import RootLease
from ordercast.broker.tree.parenting import Parenting
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import ParentRequest
from ordercast.sim.connections import Timing
from tests.support.overlay_lab import Lab
from tests.support.overlay_swarm import excluded_run, half_down_run, joining_run, primary_run
from tests.support.seeds import fixed_and_todays


@pytest.mark.parametrize("seed", fixed_and_todays(50, 20))
def test_crashes_of_all_but_one_leave_one_tree(seed: int) -> None:
    assert excluded_run(seed).world.peer_errors == []


@pytest.mark.parametrize("seed", fixed_and_todays(30, 15))
def test_partitions_pauses_and_crashes_of_a_minority_leave_one_deciding_root(seed: int) -> None:
    assert primary_run(seed).world.peer_errors == []


@pytest.mark.parametrize("seed", fixed_and_todays(30, 15))
def test_brokers_join_and_leave_while_others_crash(seed: int) -> None:
    assert joining_run(seed).world.peer_errors == []


@pytest.mark.parametrize("seed", fixed_and_todays(20, 10))
def test_a_bare_majority_that_answers_in_step_finds_a_root(seed: int) -> None:
    assert half_down_run(seed).world.peer_errors == []


def test_without_a_pause_two_who_claim_in_step_starve_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Election, highest: int) -> None:
        self.terms.learn_of(highest)
        self.start()

    monkeypatch.setattr(Election, "_outdated", at_once)
    _fails_somewhere(half_down_run, 20, "no tree after")


def _fails_somewhere(run: Callable[[int], Lab], seeds: int, what: str) -> None:
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError as error:
            if what in str(error):
                return
    raise AssertionError(f"the rule is off, and yet never {what!r}")


def test_without_the_root_check_there_are_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    # F-REQ-5
    asked = Parenting.asked

    def without_check(parenting: Parenting, line: Connection, node: NodeId, packet: ParentRequest) -> None:
        if parenting.state.parent is None or parenting.state.parent_name == node:
            asked(parenting, line, node, packet)
        elif parenting._is_newest(node, packet):
            parenting._accept(line, node, packet.request)

    monkeypatch.setattr(Parenting, "asked", without_check)
    _fails_somewhere(excluded_run, 100, "a cycle")


def test_without_the_word_of_the_others_there_are_two_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    # F-ELE-2

    def proclaim(election: Election) -> None:
        election._become_root(1 + election.terms.highest)

    monkeypatch.setattr(Election, "start", proclaim)
    _fails_somewhere(excluded_run, 100, "two roots")


def test_without_waiting_for_the_old_lease_two_roots_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """BRK-PC2, BRK-PC3: the majority notices the partition long before the lease of the root behind it has run out."""
    tree: dict[str, str | None] = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1", "b4": "b2"}

    def part() -> None:
        lab = Lab(tree, BrokerSettings(lease_ms=5000), timing=Timing(silence_ms=300, dial_timeout_ms=300))
        lab.world.partition(["b0", "b2"], ["b1", "b3", "b4"])
        lab.run(10_000)
        assert any(lab.overlay(node).decides for node in ("b1", "b3", "b4"))

    part()
    elected = RootLease.elected
    monkeypatch.setattr(
        RootLease, "elected", lambda lease, at, **_: elected(lease, at, somebody_before=False, helped_ns=0)
    )
    with pytest.raises(AssertionError, match="two deciding roots"):
        part()

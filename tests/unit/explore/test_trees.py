"""Groups on trees: what goes wrong when packets overtake each other, get lost, and nodes are suspected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.state import State
from ordercast.explore import Exploration, Faults, PlannedPublication, Toggle, explore, replay, write_schedule
from ordercast.explore.machines.actors import Rememberers
from ordercast.explore.machines.behaviour import Behaviour
from ordercast.explore.machines.setting import APPLICATION, Setting
from ordercast.explore.machines.settling import Settling
from ordercast.explore.scope.faults import DetectorChange
from ordercast.explore.scope.publications import Groups, configuration_of
from ordercast.explore.search.breadth_first import Judge
from ordercast.explore.search.faulty import FaultySearch
from ordercast.explore.stage.faulty_stage import FaultyStage
from ordercast.explore.stage.schedule import NodeStep
from ordercast.protocols import lookup
from ordercast.protocols.locamu.node import Locamu
from tests.properties.locamu_scopes import FORK, SCOPES, SPIDER, TreeScope
from tests.unit.explore import tree_toys
from tests.unit.explore.tree_toys import toy

LINE_3 = ((0, 1), (1, 2))


def the_check(found: Exploration) -> str:
    assert found.verdict == "violated"
    assert found.counterexample is not None
    return found.counterexample.violation.check


def small(build: Any, **more: Any) -> Exploration:
    """A toy on a line of two, with one publication."""
    return explore(toy(build), nodes=2, overlay="line", publications=[PlannedPublication(0, "t0")], fifo=False, **more)


# Losses, suspicions, conditions, ends


def test_a_lost_packet_that_nobody_sends_again_is_missed() -> None:
    assert small(tree_toys.Once).verdict == "holds"

    found = small(tree_toys.Once, faults=Faults(losses=1))

    assert the_check(found) == "agreement"
    assert found.counterexample is not None
    assert found.counterexample.schedule.steps == ["n0 publishes", "n0 -> n1 is lost", "everyone settles"]


def test_what_is_sent_again_survives_as_many_losses_as_there_are() -> None:
    assert small(tree_toys.Again, faults=Faults(losses=5)).verdict == "holds"


def test_a_protocol_that_never_ends_is_not_called_correct() -> None:
    assert the_check(small(tree_toys.Endless)) == "rest"


def test_a_suspicion_may_come_at_any_time() -> None:
    assert small(tree_toys.Sulking).verdict == "holds"

    scripted = small(tree_toys.Sulking, faults=Faults(toggles=(Toggle(0, (1,)),)))
    free = small(tree_toys.Sulking, faults=Faults(suspicions=1))

    assert the_check(scripted) == the_check(free) == "agreement"
    assert scripted.counterexample is not None
    assert free.counterexample is not None
    assert scripted.counterexample.schedule.steps[:2] == ["n0 suspects n1", "n0 publishes"]
    assert free.counterexample.schedule.steps == scripted.counterexample.schedule.steps


def test_free_suspicions_are_counted() -> None:
    counts = [small(tree_toys.Once, faults=Faults(suspicions=k)).states for k in (0, 1, 2)]

    # Three moments of two nodes; each change doubles who may think what of whom.
    assert counts == [3, 3 + 3 * 2, 3 + 3 * 2 + 3 * 2]


def test_packets_of_a_type_can_be_left_to_the_end() -> None:
    everything = small(tree_toys.Again)
    letters_only = small(tree_toys.Again, faults=Faults(without=("Receipt",)))

    assert letters_only.verdict == everything.verdict == "holds"
    assert letters_only.states < everything.states


def test_a_publication_waits_for_what_it_follows() -> None:
    groups = {"a": (1,), "b": (0, 2)}
    free = [PlannedPublication(0, "a"), PlannedPublication(1, "b")]
    after = [PlannedPublication(0, "a"), PlannedPublication(1, "b", (0,))]

    wild = explore(toy(tree_toys.Once), nodes=3, edges=LINE_3, groups=groups, publications=free)
    tame = explore(toy(tree_toys.Once), nodes=3, edges=LINE_3, groups=groups, publications=after)

    assert tame.verdict == wild.verdict == "holds"
    assert tame.outcomes == 1
    assert wild.outcomes == 3  # Either is published first at both nodes, or each node publishes before it delivers.


def test_causal_order_counts_through_nodes_that_are_no_members() -> None:
    groups = {"a": (1, 2), "b": (1,)}
    chain = [PlannedPublication(0, "a"), PlannedPublication(0, "b"), PlannedPublication(1, "a", (1,))]

    found = explore(toy(tree_toys.Once), nodes=3, edges=((0, 1), (1, 2), (0, 2)), groups=groups, publications=chain)

    assert the_check(found) == "causal"
    assert found.counterexample is not None
    assert found.counterexample.violation.detail == "n2 delivers m3 without m1, which was published before it"


def test_all_publications_of_a_small_scope_are_tried() -> None:
    found = explore("cbcast", nodes=2, messages=2, groups={"a": (0, 1), "b": (1,)}, fifo=False)

    assert found.verdict == "holds"
    assert [size.configurations for size in found.sizes] == [2 * 2, 3 * 2 * 2]


# The search against schedules performed one by one


def every_ending(setting: Setting, groups: Groups, publications: list[PlannedPublication]) -> set[Any]:
    """Every order of packets, publications and toggles, from its beginning on fresh machines; histories at the end."""
    configuration = configuration_of(len(setting.servers), groups, publications)
    toggles = [
        [NodeStep(setting.servers[toggle.node], about=tuple(map(setting.servers.__getitem__, i.peers)), suspects=i.on)
         for i in toggle.inputs()]
        for toggle in setting.faults.toggles
    ]  # fmt: skip
    endings = set()
    schedules: list[tuple[list[NodeStep], list[int]]] = [([], [0] * len(toggles))]
    while schedules:
        steps, done = schedules.pop()
        stage = FaultyStage(setting, configuration)
        for step in steps:
            stage.take(step)
            assert stage.violation is None
        waiting = sorted(stage.waiting.items())
        for (node, peer), queue in waiting:
            for position in range(1, 2 if peer == APPLICATION else len(queue) + 1):
                name = setting.servers[peer] if peer != APPLICATION else ""
                schedules.append(([*steps, NodeStep(setting.servers[node], name, position=position)], done))
        for i, script in enumerate(toggles):
            if done[i] < len(script):
                schedules.append(([*steps, script[done[i]]], [*done[:i], done[i] + 1, *done[i + 1 :]]))
        if not waiting:
            stage.take(NodeStep(""))
            assert stage.violation is None
            endings.add(tuple(stage.histories))
    return endings


@pytest.mark.parametrize("idle_at_once", [False, True])
@pytest.mark.parametrize(
    ("protocol", "publishers", "toggles"),
    [
        ("cbcast", (0, 1), ()),
        ("cbcast", (0,), (Toggle(0, (1,)), Toggle(1, (2,)))),
        ("locamu", (0, 1), ()),
        ("locamu", (0,), (Toggle(0, (1,)), Toggle(1, (2,), stays=True))),
    ],
)
def test_the_search_reaches_exactly_the_ends_of_all_schedules(
    protocol: str, publishers: tuple[int, ...], toggles: tuple[Toggle, ...], idle_at_once: bool
) -> None:
    groups = {"a": (1, 2)}
    publications = [PlannedPublication(publisher, "a") for publisher in publishers]
    faults = Faults(toggles=toggles, without=("Ack",))
    info = lookup(protocol)
    setting = Setting(info, {}, 3, 0, edges=LINE_3, groups=groups, faults=faults)
    configuration = configuration_of(3, groups, publications)
    behaviour = Behaviour(setting, fifo=False, idle_at_once=idle_at_once)
    judge = Judge(behaviour, configuration, info.guarantee)
    search = FaultySearch(behaviour, judge, lambda _states: None, configuration)

    assert search.run(search.start()) is None
    assert {judge.histories(numbers) for numbers in judge.outcomes} == every_ending(setting, groups, publications)


# LoCaMu


@pytest.mark.parametrize("name", [name for name, scope in SCOPES.items() if not scope.large])
def test_locamu_holds_in_every_order_of_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LCM-P1, LCM-P2 and LCM-P3; and in the end nobody keeps anything (LCM-D1)."""
    kept: list[Any] = []
    settle = Settling.run

    def watched(self: Settling, *arguments: Any) -> Any:
        fault = settle(self, *arguments)
        assert isinstance(self.actors, Rememberers)
        kept.extend(machine for machine in self.actors.machines() if machine.store.entries or machine.held.copies)
        return fault

    monkeypatch.setattr(Settling, "run", watched)
    found = SCOPES[name].explore()

    assert found.verdict == "holds"
    assert not kept


def test_what_a_node_calls_its_streams_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that differ only in such names are taken for one; the ends are the same as if they were not."""
    scope = TreeScope("0-1,1-2,2-3", "a:2,3;b:1,3", "0>a,3>b", ("0:1",))
    canonical = scope.explore()
    monkeypatch.setattr(Locamu, "frozen", State.frozen)
    exact = scope.explore()

    assert canonical.verdict == exact.verdict == "holds"
    assert canonical.outcomes == exact.outcomes
    assert canonical.states < exact.states


def test_locamu_holds_when_acknowledgements_arrive_at_any_time_too() -> None:
    scope = TreeScope("0-1,1-2,2-3", "a:1,2,3", "0>a", ("0:1", "1:2"), losses=1)

    assert scope.explore(every_packet=True).verdict == "holds"


def test_locamu_holds_with_differences_of_pasts_on_its_links() -> None:
    scope = TreeScope("0-1,1-2", "a:1,2;b:2", "0>a,0>b", ("0:1",), losses=2, options={"delta": True})

    assert scope.explore(every_packet=True).verdict == "holds"


def test_published_radii_break_causal_order_on_the_spider_in_six_steps(tmp_path: Path) -> None:
    """LCM-C13, S-SPIDER."""
    spider = TreeScope(SPIDER, "a:4,5;b:4", "0>a,5>b", ("0:1,2", "5:2,3"), options={"f": 2})

    found = spider.explore("locamu-published", idle_at_once=False)
    radii_only = spider.explore("locamu", options={"f": 2, "profile": "published"})

    assert the_check(found) == the_check(radii_only) == "causal"
    assert found.counterexample is not None
    assert found.counterexample.schedule.steps == [
        "n0 suspects n1,n2",
        "n0 publishes",
        "n5 suspects n2,n3",
        "n0 -> n5",
        "n5 publishes",
        "n5 -> n4",
    ]
    assert found.counterexample.violation.detail == "n4 delivers m2 without m1, which was published before it"
    path = tmp_path / "spider.schedule.toml"
    write_schedule(path, found.counterexample.schedule, found.counterexample.story)
    again = replay(path)
    assert again.violation == found.counterexample.violation
    assert again.story == found.counterexample.story


def test_the_printed_algorithm_breaks_on_the_tree_of_the_gap(tmp_path: Path) -> None:
    """A neighbour's minimum hides what was never received (LCM-C11); the end of the schedule is a settling."""
    gap = TreeScope(FORK, "m:1,2,3,4;x:3,4;y:3", "0>m,1>x,4>y after m1 + m2", ("0:1 stays", "2:3"))

    found = gap.explore("locamu-published")

    assert the_check(found) == "causal"
    assert found.counterexample is not None
    assert found.counterexample.schedule.steps[-1] == "everyone settles"
    path = tmp_path / "gap.schedule.toml"
    write_schedule(path, found.counterexample.schedule, found.counterexample.story)
    assert replay(path).violation == found.counterexample.violation


# Baselines


@pytest.mark.parametrize("protocol", ["cbcast", "causal-barriers"])
def test_baselines_hold_under_losses_and_suspicions(protocol: str) -> None:
    scope = TreeScope("0-1,1-2,2-3", "a:1,2,3;b:0,3", "0>a,1>b,3>a", ("1:2",), losses=1)

    assert scope.explore(protocol).verdict == "holds"


def test_delta_neighbourhood_may_miss_a_node_that_is_suspected_wrongly() -> None:
    """Its known limit: who is passed over need not get what passed by."""
    calm = TreeScope("0-1,1-2,2-3", "a:1,2,3", "0>a").explore("delta-neighbourhood", every_packet=True)
    found = TreeScope("0-1,1-2,2-3", "a:1,2,3", "0>a", ("1:2",)).explore("delta-neighbourhood", every_packet=True)

    assert calm.verdict == "holds"
    assert the_check(found) == "agreement"


# What makes no sense


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"edges": [(0, 1), (1, 2), (2, 0)]}, "cycle"),
        ({"edges": [(0, 1)]}, "edges: they are about 2 nodes, not 3"),
        ({"nodes": 4, "edges": [(0, 1), (2, 3)]}, "edges: not connected: n2 cannot be reached from n0"),
        ({"edges": [(0, 0), (1, 2)]}, "edges: 0-0"),
        ({"groups": {"a": (0, 7)}}, "7"),
        ({"groups": {"a": ()}}, "not nodes"),
        ({"publications": [PlannedPublication(0, "b")]}, "unknown group 'b'"),
        ({"publications": [PlannedPublication(0, "t0", (0,))]}, "m1 is not an earlier message"),
        (
            {
                "groups": {"a": (1,), "b": (2,)},
                "publications": [PlannedPublication(0, "a"), PlannedPublication(2, "b", (0,))],
            },
            "n2 never has m1",
        ),
        ({"faults": Faults(losses=1)}, "losses: only where packets may overtake"),
        ({"faults": Faults(losses=-1), "fifo": False}, "losses: -1"),
        ({"faults": Faults(suspicions=-1)}, "suspicions: -1"),
        ({"faults": Faults(toggles=(Toggle(0, (0,)),))}, "n0 is not linked to n0"),
        ({"faults": Faults(without=("Akk",))}, "did you mean 'Ack'"),
        ({"idle_at_once": True}, "idle_at_once"),
        ({"ascending": True}, "ascending"),
        ({"destinations": [[0, 1]]}, "destinations"),
        ({"overlay": "clique"}, "needs a tree"),
        ({"options": {"f": 4}}, "f: 4 is too large"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        explore("locamu", **({"nodes": 3} | arguments))


def test_groups_are_not_for_clients() -> None:
    with pytest.raises(UsageError, match="come from clients"):
        explore("skeen", nodes=3, groups={"a": (0, 1)})


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (NodeStep("n0", timer="tick"), "only when everyone settles"),
        (NodeStep("n0", about=("n0",), suspects=True), "not linked"),
        (NodeStep("n0", about=("n9",), suspects=True), "'n9'"),
        (NodeStep("n1"), "must have m1 before"),
        (NodeStep("n0", "n1", lost=True), "nothing is on its way"),
    ],
)
def test_a_step_that_cannot_be_is_refused(step: NodeStep, problem: str) -> None:
    groups = {"a": (0, 1)}
    setting = Setting(lookup("cbcast"), {}, 2, 0, overlay="line", groups=groups)
    stage = FaultyStage(
        setting, configuration_of(2, groups, [PlannedPublication(0, "a"), PlannedPublication(1, "a", (0,))])
    )

    with pytest.raises(UsageError, match=problem):
        stage.take(step)


def test_a_toggle_that_stays_is_not_taken_back() -> None:
    assert Toggle(0, (1, 2), stays=True).inputs() == [DetectorChange((1, 2), on=True)]

"""`partitions = "primary"`: connections break between brokers that live, processes stand still, networks part."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.pubsub.settings import BrokerSettings
from ordercast.sim.connections import Timing, same_everywhere
from tests.support.overlay_lab import FakeTopics, Lab

FIVE: dict[str, str | None] = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1", "b4": "b2"}
PRIMARY = BrokerSettings(lease_ms=1000)


def five(**more: object) -> Lab:
    options = {"latency": same_everywhere(5.0), "timing": Timing(silence_ms=500), "durable": True, **more}
    return Lab(FIVE, PRIMARY, seed=3, **options)  # type: ignore[arg-type]


def told(lab: Lab, node: str) -> list[str]:
    topics = lab.overlay(node).topics
    assert isinstance(topics, FakeTopics)
    return topics.told


def test_the_first_root_decides_as_soon_as_a_majority_is_there() -> None:
    """BRK-PC4: nobody's lease has to be waited for."""
    lab = five(start=False)
    lab.world.start("b0")
    lab.run(50)
    assert lab.overlay("b0").is_root
    assert not lab.overlay("b0").decides

    for node in ("b1", "b2"):
        lab.world.start(node)
    lab.run(100)

    assert lab.overlay("b0").decides
    assert told(lab, "b0") == ["became_root", "may_decide"]


def test_a_root_alone_in_the_directory_decides_at_once() -> None:
    lab = Lab({"b0": None}, PRIMARY)

    assert lab.overlay("b0").decides


def test_the_others_elect_when_the_configured_root_does_not_come_up() -> None:
    """BRK-O1 ends with `startup_grace_ms`; then a majority is enough, and the late root is one of them."""
    lab = five(start=False)
    for node in ("b1", "b2", "b3", "b4"):
        lab.world.start(node)
    lab.run(9000)
    assert all(overlay.seeking for overlay in lab.living().values())

    lab.settle(10_000)
    first = lab.root()
    lab.world.start("b0")
    lab.run(30)
    assert lab.overlay("b0").is_root
    assert not lab.overlay("b0").decides, "a root that nobody stands behind"
    lab.run(15_000)

    assert lab.root() == first
    assert lab.defects() == []


def test_a_new_root_waits_out_the_lease_of_the_old_one() -> None:
    lab = five()

    lab.world.crash("b0")
    lab.run(400)
    new = lab.root()
    assert not lab.overlay(new).decides
    lab.run(400)
    assert not lab.overlay(new).decides
    lab.run(600)

    assert lab.overlay(new).decides
    assert told(lab, new)[-2:] == ["became_root", "may_decide"]


def test_a_root_without_its_majority_steps_down_and_keeps_its_children() -> None:
    lab = five()

    lab.world.partition(["b0", "b2"], ["b1", "b3", "b4"])
    lab.run(2000)

    assert lab.overlay("b0").seeking
    assert not lab.overlay("b0").decides
    assert list(lab.overlay("b0").children.values()) == ["b2"]
    assert told(lab, "b0")[-1] == "stepped_down"
    lab.run(10_000)
    majority = [node for node in ("b1", "b3", "b4") if lab.overlay(node).decides]
    assert len(majority) == 1
    assert not lab.overlay("b2").decides


def test_a_lease_that_is_shorter_than_the_way_through_a_deep_tree_grows() -> None:
    """BRK-PC3: otherwise it is over whenever a majority has given it, and nobody ever decides."""
    deep = {f"b{i}": f"b{i - 1}" if i else None for i in range(7)}
    settings = BrokerSettings(partitions="primary", lease_ms=300, total_degree=2)
    lab = Lab(deep, settings, latency=lambda _source, _target: 60.0)
    lab.run(30_000)
    assert lab.overlay(lab.root()).decides
    lab.world.crash(lab.root())
    lab.settle(60_000)
    assert lab.overlay(lab.root()).decides


def test_a_minority_never_elects() -> None:
    lab = five()

    for node in ("b0", "b1", "b2"):
        lab.world.crash(node)
    lab.run(30_000)
    assert not any(overlay.is_root for overlay in lab.living().values())

    lab.world.start("b1")
    lab.settle()
    assert set(lab.tree()) == {"b1", "b3", "b4"}


def test_both_sides_of_a_healed_partition_are_one_tree_again() -> None:
    lab = five()
    number = lab.world.partition(["b0", "b2"], ["b1", "b3", "b4"])
    lab.run(10_000)

    lab.world.heal(number)
    lab.settle()

    assert set(lab.tree()) == set(FIVE)


def test_a_broker_cut_off_from_its_parent_only_finds_another_way_without_unsettling_the_root() -> None:
    lab = five()
    term = lab.overlay("b0").term

    lab.world.partition(["b0"], ["b1"])
    lab.run(1500)
    lab.settle()

    assert lab.root() == "b0"
    assert lab.overlay("b0").term == term
    assert lab.tree()["b1"] not in ("b0", None)


def test_a_connection_that_breaks_is_simply_made_again() -> None:
    """A claim would unsettle a root that lives."""
    lab = five()
    term = lab.overlay("b0").term

    lab.world.cut("b0", "b1")
    lab.settle()

    assert lab.tree() == FIVE
    assert lab.overlay("b0").term == term


@pytest.mark.parametrize("seconds", [1, 4, 20])
def test_a_root_that_stood_still_wakes_up_without_deciding(seconds: int) -> None:
    """The clock is looked at before anything that arrived meanwhile."""
    lab = five()
    lab.world.pause("b0")
    lab.run(1000 * seconds)

    lab.world.resume("b0")  # The invariant is checked after every event: at most one root decides.
    lab.run(10)
    if seconds > 1:
        assert not lab.overlay("b0").decides
    lab.settle()

    assert set(lab.tree()) == set(FIVE)


def test_a_parent_that_stands_still_without_closing_anything_is_left() -> None:
    """No connection ends: silence must do."""
    lab = five(timing=Timing(silence_ms=60_000))

    lab.world.pause("b1")
    lab.run(3000)

    assert lab.tree()["b3"] not in ("b1", None)
    assert "b1" not in lab.overlay("b0").children.values()


def test_a_broker_that_forgot_its_promises_counts_again_when_a_majority_has_told_it_theirs() -> None:
    """Without a data directory a former life may have promised what this one must not contradict."""
    lab = five(durable=False)
    lab.world.crash("b4")
    lab.world.partition(["b4"], ["b1", "b2", "b3"])
    lab.world.start("b4")
    lab.run(1000)
    assert lab.overlay("b4").recovery.forgetful

    lab.world.crash("b4")
    lab.world.heal(1)
    lab.world.start("b4")
    lab.run(30)

    assert not lab.overlay("b4").recovery.forgetful
    assert lab.overlay("b4").terms.promised == lab.overlay("b0").term[0]


def test_a_broker_whose_log_was_salvaged_asks_what_it_may_have_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term that it reads may not be the last one that it wrote."""
    lab = five(durable=True)
    lab.world.partition(["b4"], ["b0", "b1", "b2", "b3"])
    for whole in (True, False):
        lab.world.crash("b4")
        saved = msgspec.structs.replace(lab.disks["b4"].saved(), whole=whole)
        assert saved.term_number > 0
        monkeypatch.setattr(lab.disks["b4"], "saved", lambda saved=saved: saved)
        lab.world.start("b4")
        assert lab.overlay("b4").recovery.forgetful is not whole


def test_a_broker_that_can_ask_nobody_counts_again_after_a_while() -> None:
    lab = five(durable=False)
    lab.world.partition(["b4"], ["b0", "b1", "b2", "b3"])
    lab.world.crash("b4")
    lab.world.start("b4")

    lab.run(2900)
    assert lab.overlay("b4").recovery.forgetful
    lab.run(500)

    assert not lab.overlay("b4").recovery.forgetful


def test_a_cluster_that_starts_without_any_memory_decides_at_once() -> None:
    """Over TCP a broker that has no record of a first life takes none for granted."""
    lab = five(start=False, durable=False)
    lab.world.start("b0", life=0)
    for node in ("b1", "b2", "b3", "b4"):
        lab.world.start(node, life=1_000_000)

    lab.run(1000)

    assert lab.overlay("b0").decides
    lab.settle()
    assert lab.tree() == FIVE


def test_brokers_that_know_of_no_tree_wait_for_the_configured_root() -> None:
    """BRK-O1, whatever their lives are numbered: it starts later than they."""
    for partitions in ("excluded", "primary"):
        settings = BrokerSettings(partitions=partitions)  # type: ignore[arg-type]
        lab = Lab(FIVE, settings, latency=same_everywhere(5.0), start=False)
        for node in ("b1", "b2", "b3", "b4"):
            lab.world.start(node, life=1_000_000)
        lab.run(4000)
        assert not any(overlay.is_root for overlay in lab.living().values())

        lab.world.start("b0", life=0)
        lab.settle()

        assert lab.root() == "b0"

"""Shared work under crashes at every step: no key reordered, nothing lost, nothing done twice beyond what is stated."""

from __future__ import annotations

import random
from functools import partial

import pytest
from msgspec.structs import replace

from ordercast.client.work.leader import WorkLeader
from ordercast.client.work.member import WorkMember
from ordercast.client.work.words import GroupProgress, Orders, Report
from ordercast.core.ids import Origin
from tests.support.work_lab import MS, SETTINGS, WorkLab, problems

SEEDS = range(60)


def troubled_run(seed: int, leader: type[WorkLeader] = WorkLeader) -> WorkLab:
    """Members come, leave, stall and die, leaders among them, while work arrives."""
    draw = random.Random(f"shared-work {seed}")
    lab = WorkLab(seed, leader=leader)
    for i in range(draw.randrange(1, 4)):
        lab.start(f"m{i}")
    for _ in range(draw.randrange(20, 60)):
        keys = tuple(sorted({f"k{draw.randrange(4)}" for _ in range(draw.choice((0, 1, 1, 1, 2)))}))
        lab.at(draw.randrange(3000) * MS, partial(lab.publish, keys, f"p{draw.randrange(2)}"))
    for i in range(draw.randrange(7)):
        victim, when = f"m{draw.randrange(3)}", draw.randrange(4000) * MS
        lab.at(when, partial(_trouble, lab, draw.randrange(5), victim, i))
    lab.at(4500 * MS, lambda: lab.start("last"))
    lab.run(30_000 * MS)
    return lab


def _trouble(lab: WorkLab, kind: int, victim: str, i: int) -> None:
    process = lab.processes.get(victim)
    if kind == 0 or process is None or not process.alive:
        lab.start(f"new{i}")
    elif kind == 1:
        lab.kill(victim)
        lab.start(victim, session=i + 1)
    elif kind == 4:
        lab.kill(victim)
    elif kind == 2:
        lab.stall(victim, 900 * MS)
    else:
        lab.leave(victim)


@pytest.mark.parametrize("block", range(6))
def test_whatever_happens_to_members_the_promises_hold(block: int) -> None:
    handed = 0
    for seed in list(SEEDS)[block::6]:
        lab = troubled_run(seed)
        handed += len(lab.history)
        assert not problems(lab), f"seed {seed}: {problems(lab)[:5]}"
    assert handed > 200


class Hasty(WorkLeader):
    """Does not ask what members of the former leader hold."""

    def _look(self) -> None:
        for member in self.members.values():
            member.reported = True
        super()._look()


class Forgetful(WorkLeader):
    """Writes down what is done, and not who may hold work."""

    def progress(self) -> GroupProgress | None:
        progress = super().progress()
        return replace(progress, members=()) if progress is not None else None


class Unkind(WorkLeader):
    """Gives up nobody: what the dead hold stays with them."""

    def tick(self, now_ns: int) -> None:
        for member in self.members.values():
            member.heard_ns = now_ns
        super().tick(now_ns)


class Careless(WorkLeader):
    """Sends what came back from the dead to others behind what it has of the same key."""

    def _goes(self, name: str, *, begun: bool) -> None:
        desk = self.lanes.desk(name)
        held = list(desk.held.values()) if desk is not None else []
        super()._goes(name, begun=begun)
        for unit in held:
            for key in unit.keys:
                lane = self.lanes._lanes.get(key)
                if lane is not None and unit in lane.unsent:
                    lane.unsent.rotate(-1)


@pytest.mark.parametrize(("mutant", "seed"), [(Hasty, 4), (Forgetful, 2), (Unkind, 4), (Careless, 58)])
def test_a_leader_with_a_fault_is_found_out(mutant: type[WorkLeader], seed: int) -> None:
    assert problems(troubled_run(seed, mutant))
    assert not problems(troubled_run(seed))


def test_what_only_the_former_leader_has_heard_is_not_confirmed() -> None:
    """SHW-6: report 15 said that something is done and died with that leader; 16 alone proves nothing."""
    leader = WorkLeader(2, GroupProgress(1, {}, ("m0/1",)), SETTINGS, 0)
    leader.report(Report("m0/1", 1, 16))
    assert leader.progress() is not None
    leader.recorded(leader.version)

    assert [orders.confirmed for orders in leader.orders()] == [0]
    leader.report(Report("m0/1", 2, 17, {Origin("p"): (1,)}, holding=()))
    assert leader.progress() is not None
    leader.recorded(leader.version)
    assert [orders.confirmed for orders in leader.orders()] == [17]


def test_members_that_find_no_leader_do_not_take_over_from_each_other_for_ever() -> None:
    """SHW-1: taking over takes time. Whoever tries in vain waits longer each time, and two do not wait equally long."""
    waits = {}
    for name in ("m0", "m1"):
        member = WorkMember(name, SETTINGS, 0)
        for _ in range(4):
            member.tries_to_lead(0)
        waits[name] = next(now for now in range(0, 20_000 * MS, MS) if member.wants_to_lead(now))

    assert min(waits.values()) > 2 * SETTINGS.silent_ns
    assert abs(waits["m0"] - waits["m1"]) > SETTINGS.beat_ns


def test_a_member_begins_nothing_after_the_leader_may_have_given_it_up() -> None:
    """SHW-8: `silent_ms` after the last report that the leader is known to have."""
    member = WorkMember("m0", SETTINGS, 0)
    assert member.report(0) is not None
    assert member.report(100 * MS) is not None
    member.orders(Orders(1, "m0/1", heard=1), 150 * MS)

    assert 0 < member.safe_until_ns <= SETTINGS.silent_ns
    member.orders(Orders(1, "m0/1", heard=2), 160 * MS)
    assert 100 * MS < member.safe_until_ns <= 100 * MS + SETTINGS.silent_ns

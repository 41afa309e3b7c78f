"""What a group has done of sessions that are over is not counted one by one (SHW-12)."""

from __future__ import annotations

from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.publications import Publication


def work(ticket: int, number: int) -> Publication:
    return Publication(Origin(f"ann~{ticket}.{ticket}.0.b1"), number, Topic("orders"), b"", keys=("k",))


def leader_of(last: WorkLeader | None = None) -> WorkLeader:
    return WorkLeader(1 if last is None else 2, last.progress() if last is not None else None, WorkSettings(), 0)


def do(leader: WorkLeader, *units: Publication) -> None:
    leader.skip((unit.origin, unit.number) for unit in units)


def test_sessions_of_which_all_is_done_are_one_interval_and_the_others_stay() -> None:
    leader = leader_of()
    for ticket in range(1, 101):
        leader.arrive([work(ticket, 1), work(ticket, 2)])
        do(leader, work(ticket, 1), *([work(ticket, 2)] if ticket != 50 else []))
    leader.fold({"0.b1": (1, 101)})
    assert leader.done.low == {"~1.0.b1": 49, "~51.0.b1": 100, work(50, 1).origin: 1}
    do(leader, work(50, 2))
    leader.fold({"0.b1": (1, 101)})
    assert leader.done.low == {"~1.0.b1": 100}


def test_what_is_done_of_a_session_that_is_folded_is_nobodys_work_for_the_next_leader_either() -> None:
    leader = leader_of()
    do(leader, work(1, 1))
    leader.fold({"0.b1": (1, 2)})
    after = leader_of(leader)
    after.arrive([work(1, 1), work(2, 1)])
    assert after.waiting == 1
    assert after._is_done((work(1, 1).origin, 1))


def test_a_set_without_some_sessions_has_gaps_there() -> None:
    closed = ClosedSessions({"0.b1": (1, 6), "0.b2": (3, 4)})
    assert closed.but([work(1, 1).origin, work(3, 1).origin, work(5, 1).origin]) == {
        "0.b1": (2, 3, 4, 5),
        "0.b2": (3, 4),
    }
    assert closed.but([Origin("ann~0.3.0.b2"), Origin("ann"), work(9, 1).origin]) == {"0.b1": (1, 6)}

"""Virtual time."""

from __future__ import annotations

from typing import Any

from ordercast.sim.clock import Scheduler, ns


def _logging(clock: Scheduler) -> tuple[list[tuple[int, Any]], Any]:
    log: list[tuple[int, Any]] = []
    return log, lambda a, _b: log.append((clock.now, a))


def test_events_happen_in_order_of_time_whatever_order_they_were_planned_in() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    for time in (30, 10, 20):
        clock.at(time, action, f"at {time}")
    clock.run_until(100)
    assert log == [(10, "at 10"), (20, "at 20"), (30, "at 30")]


def test_events_of_one_instant_happen_in_order_of_planning() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    for name in "abc":
        clock.at(7, action, name)
    clock.run_until(7)
    assert [name for _, name in log] == ["a", "b", "c"]


def test_what_is_planned_for_the_past_happens_now() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.run_until(50)
    clock.at(10, action, "late")
    clock.run_until(50)
    assert log == [(50, "late")]


def test_run_until_stops_after_the_last_event_of_its_time() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.at(10, action, "in")
    clock.at(11, action, "out")
    assert clock.run_until(10) == 1
    assert [name for _, name in log] == ["in"]
    assert clock.now == 10


def test_rest_does_not_wait_for_background_events() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.at(5, action, "work")
    clock.in_background(9, action, "heartbeat")
    clock.run_to_rest(100)
    assert clock.at_rest
    assert [name for _, name in log] == ["work"]


def test_background_events_happen_at_their_time_after_the_others_of_their_instant() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.in_background(5, action, "beat 5")
    clock.in_background(20, action, "beat 20")
    clock.in_background(7, action, "beat 7")
    for time in (3, 5, 9):
        clock.at(time, action, f"work {time}")
    clock.run_until(15)
    assert [name for _, name in log] == ["work 3", "work 5", "beat 5", "beat 7", "work 9"]
    clock.run_until(30)
    assert log[-1] == (20, "beat 20")


def test_a_background_event_can_wake_the_run_again() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.in_background(5, lambda _a, _b: clock.at(6, action, "woken"))
    clock.run_until(10)
    assert log == [(6, "woken")]


def test_an_event_planned_for_its_own_instant_happens_in_it() -> None:
    clock = Scheduler()
    log, action = _logging(clock)
    clock.at(5, lambda _a, _b: clock.at(5, action, "child"))
    clock.at(5, action, "sibling")
    clock.at(6, action, "later")
    assert clock.run_until(6) == 4
    assert log == [(5, "sibling"), (5, "child"), (6, "later")]


def test_what_is_still_to_come_leaves_out_what_has_happened_in_this_instant() -> None:
    clock = Scheduler()
    seen: list[list[str]] = []

    def look(_a: Any, _b: Any) -> None:
        seen.append(sorted(a for _, a, _ in clock.pending()))

    clock.at(5, lambda _a, _b: None, "before")
    clock.at(5, look, "look")
    clock.at(5, lambda _a, _b: None, "after")
    clock.at(9, lambda _a, _b: None, "later")
    clock.run_until(10)
    assert seen == [["after", "later"]]


def test_a_run_that_never_rests_ends_at_the_deadline() -> None:
    clock = Scheduler()

    def again(_a: None, _b: None) -> None:
        clock.at(clock.now + 10, again)

    clock.at(0, again)
    clock.run_to_rest(1000)
    assert not clock.at_rest
    assert clock.now == 1000


def test_milliseconds_become_whole_nanoseconds() -> None:
    assert ns(1.5) == 1_500_000
    assert ns(0.1 + 0.2) == 300_000


def test_once_the_background_is_over_nothing_is_planned_in_it_any_more() -> None:
    clock = Scheduler()
    happened: list[int] = []
    clock.in_background(1, lambda *_: happened.append(1))
    clock.drop_background()
    clock.in_background(2, lambda *_: happened.append(2))
    clock.run_until(3)
    assert happened == []

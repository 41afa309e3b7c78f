"""The checker of shared work under chaos finds each fault that is planted in the books, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.work_books import Facts, Line, Problem, WorkBooks, read_books

S = 1_000_000_000
TOPIC, RECORD = "jobs", "groups.jobs.workers"
FACTS = Facts({TOPIC: ("b1", "b2"), RECORD: ("b2", "b3")}, TOPIC, RECORD, kept=frozenset({"p:0", "p:1"}))
SOUND = (
    (1, "p@1", "ask", "p:0"), (2, "p@1", "safe", "p:0"), (3, "p@1", "ask", "p:1"), (4, "p@1", "safe", "p:1"),
    (10, "w0@2", "take", "p:0"), (11, "w0@2", "said", "p:0"), (12, "w0@2", "done", "p:0"),
    (20, "w1@3", "take", "p:1"), (21, "w1@3", "said", "p:1"), (22, "w1@3", "done", "p:1"),
    (30, "w0@2", "heart", "-"), (30, "w1@3", "heart", "-"),
)  # fmt: skip
Row = tuple[float, str, str, str]


def judged(rows: Iterable[Row], facts: Facts = FACTS) -> list[Problem]:
    """Units are all of one key."""
    lines = [
        Line(int(at * S), who, word, unit, ("k",) if word in ("ask", "take") else ()) for at, who, word, unit in rows
    ]
    return WorkBooks(sorted(lines, key=lambda line: line.at), facts).problems()


def without(*lost: tuple[str, str]) -> list[Row]:
    return [row for row in SOUND if (row[2], row[3]) not in lost]


def kinds(problems: list[Problem]) -> set[str]:
    return {problem.kind for problem in problems}


def test_a_run_that_kept_all_promises_has_no_problems() -> None:
    assert judged(SOUND) == []


UNDONE = without(("take", "p:1"), ("said", "p:1"), ("done", "p:1"))


def test_a_unit_that_is_gone_is_found() -> None:
    assert kinds(judged(UNDONE, replace(FACTS, kept=frozenset({"p:0"})))) == {"gone"}


def test_a_unit_that_is_done_and_gone_from_the_history_is_found() -> None:
    """ARC-G5: done or not, whoever comes late reads it."""
    assert kinds(judged(SOUND, replace(FACTS, kept=frozenset({"p:0"})))) == {"gone"}


def test_a_history_that_cannot_be_read_is_found() -> None:
    assert kinds(judged(SOUND, replace(FACTS, kept=None))) == {"no history"}


def test_a_unit_that_a_waiting_member_was_never_handed_is_found() -> None:
    assert kinds(judged(UNDONE)) == {"not handed out"}


def test_a_unit_without_anybody_there_is_not_the_groups_fault() -> None:
    rows = [row for row in UNDONE if row[2] != "heart"]
    assert kinds(judged([*rows, (60, "p@1", "ask", "p:2")])) == {"nobody there"}


def test_a_unit_that_was_never_acknowledged_is_owed_to_nobody() -> None:
    assert judged([row for row in UNDONE if (row[2], row[3]) != ("safe", "p:1")]) == []


AGAIN: list[Row] = [(25, "w1@3", "take", "p:0"), (26, "w1@3", "said", "p:0"), (27, "w1@3", "done", "p:0")]


def test_a_unit_that_is_done_for_ever_and_done_again_is_found() -> None:
    assert kinds(judged([*SOUND, *AGAIN])) == {"done for ever and handed out again"}


@pytest.mark.parametrize("what", ["killed", "lost", "left"])
def test_a_unit_may_be_done_again_if_its_holder_was_lost(what: str) -> None:
    rows = without(("done", "p:0"))
    end: dict[str, Row] = {
        "killed": (15, "driver", "killed", "w0@2"), "lost": (15, "w0@2", "lost", "p:0"),
        "left": (15, "w0@2", "left", "-"),
    }  # fmt: skip
    assert judged([*rows, end[what], *AGAIN]) == []


def test_a_unit_that_is_handed_out_twice_while_its_holder_lives_is_found() -> None:
    rows = [row for row in SOUND if row[3] != "p:0" or row[2] in ("ask", "safe", "take")]
    problems = judged([*rows, (11, "w1@3", "take", "p:0"), (12, "w1@3", "said", "p:0"), (13, "w1@3", "done", "p:0")])
    assert "handed out twice although its holder lives" in kinds(problems)


BEATS: list[Row] = [(9.9 + i / 5, "w0@2", "heart", "-") for i in range(100)]
FAR: dict[str, list[tuple[int, int]]] = {"b9": [(0, 5 * S), (60 * S, 70 * S)]}
NEAR: dict[str, list[tuple[int, int]]] = {"b9": [(0, 8 * S)]}


@pytest.mark.parametrize(("out", "excused"), [({}, False), (FAR, False), (NEAR, True)])
def test_a_holder_that_is_given_up_although_nothing_was_wrong_is_found(
    out: dict[str, list[tuple[int, int]]], excused: bool
) -> None:
    """Before and after it there may have been as many faults as there like."""
    rows = [*without(("done", "p:0")), *BEATS, (12, "w0@2", "lost", "p:0"), *AGAIN]
    found = kinds(judged(rows, replace(FACTS, out=out)))
    assert found == (set() if excused else {"handed out twice although nothing was wrong"})


GIVEN_UP: list[Row] = [*without(("done", "p:0")), (15, "w0@2", "lost", "p:0")]


@pytest.mark.parametrize(("written", "found"), [(11.2, set()), (14.5, {"not handed out"}), (0, {"not handed out"})])
def test_a_unit_whose_worker_was_given_up_counts_as_done_only_if_its_word_was_written_down_at_once(
    written: float, found: set[str]
) -> None:
    """SHW-G4: it was not told so in time. What a leader counts later may be what it takes for gone."""
    facts = replace(FACTS, written={"p:0": int(written * S)} if written else {})
    assert kinds(judged(GIVEN_UP, facts)) == found


@pytest.mark.parametrize(("written", "found"), [(21.2, False), (20.5, True)])
def test_a_unit_that_a_leader_counts_as_done_before_anybody_said_so_is_found(written: float, found: bool) -> None:
    facts = replace(FACTS, written={"p:0": 11 * S, "p:1": int(written * S)})
    assert kinds(judged(SOUND, facts)) == ({"counted as done, and nobody had said so"} if found else set())


def test_a_buried_unit_may_be_counted_as_done_though_nobody_did_it() -> None:
    facts = replace(FACTS, written={"p:1": 23 * S})
    assert judged([*UNDONE, (24, "u@5", "dead", "p:1")], facts) == []


def _swapped(row: Row) -> Row:
    other = {"p:0": "p:1", "p:1": "p:0"}
    return (*row[:3], other[row[3]]) if row[2] in ("take", "said", "done") else row


def test_a_key_out_of_order_is_found() -> None:
    assert kinds(judged([_swapped(row) for row in SOUND])) == {"out of order"}


def test_two_holders_of_a_key_at_once_are_found() -> None:
    rows = [(10.5, *row[1:]) if row[2:] == ("take", "p:1") else row for row in SOUND]
    assert kinds(judged(rows)) == {"two at one time", "out of order"}


OUT_TOGETHER = {"b1": [(0, 5 * S)], "b2": [(3 * S, 6 * S)]}
OUT_IN_TURN = {"b1": [(0, 4 * S)], "b2": [(4 * S, 9 * S)]}
OUT_LATER = {"b1": [(5 * S, 7 * S)], "b2": [(5 * S, 9 * S)]}


@pytest.mark.parametrize(("out", "excused"), [(OUT_TOGETHER, True), (OUT_IN_TURN, False), (OUT_LATER, False)])
def test_what_is_gone_is_excused_only_if_no_copy_was_there_when_it_was_published(
    out: dict[str, list[tuple[int, int]]], excused: bool
) -> None:
    (problem,) = judged(UNDONE, replace(FACTS, out=out, kept=frozenset({"p:0"})))
    assert bool(problem.excuse) is excused


@pytest.mark.parametrize(("when", "excused"), [(11, True), (13, False), (40, False)])
def test_what_is_done_again_is_excused_only_if_no_copy_of_the_record_was_there_when_it_was_written(
    when: int, excused: bool
) -> None:
    """SHW-13. Later, or that those of the topic were away together, says nothing."""
    out = {"b1": [(11 * S, 14 * S)], "b2": [(when * S, (when + 2) * S)], "b3": [(0, 99 * S)]}
    (problem,) = judged([*SOUND, *AGAIN], replace(FACTS, out=out))
    assert bool(problem.excuse) is excused


def test_a_line_that_its_writer_was_killed_in_is_no_line(tmp_path: Path) -> None:
    """The books can be read while they are written."""
    (tmp_path / "w0@2.book").write_text("10 take p:0 k\n11 said p:0 -\n12 do")
    assert [line.word for line in read_books(tmp_path)] == ["take", "said"]

"""One delivery taken out of a correct run, swapped or doubled is noticed, however the run ended for its receiver."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from ordercast.verify.verdict import EXCUSED, HELD, UNDECIDED, VIOLATED
from tests.support.random_traces import Row
from tests.support.trace_builder import judged, manifest

SEEDS = range(60)
ENDINGS = {
    "drain": [],
    "close": [("leave", {"end": "true"})],
    "leave": [("leave", None)],
    "unsubscribe": [("unsubscribe", None)],
    "crash": [("crash", None)],
    "crash and back without state": [("crash", None), ("recover", {"state": "lost"}), ("leave", None)],
    "session given up": [("leave", {"lost": "absent for too long"})],
}
STAYS = ("drain", "close")
"""Endings after which everything is owed."""


@dataclass
class Run:
    """A group that agrees on one order: everybody delivers what is in one log, from its coming to its going."""

    ending: str
    rng: random.Random
    rows: list[Row] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    reads_from: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def add(self, node: str, kind: str, **more: Any) -> None:
        self.rows.append({"run": "r", "node": node, "kind": kind, "time_ns": 10 * len(self.rows), **more})

    def publish(self, node: str, guarantee: str) -> None:
        self.log.append(f"m{len(self.log)}")
        self.add(node, "publish", msg=self.log[-1], topic="t", guarantee=guarantee)

    def deliver(self, node: str) -> bool:
        at = self.reads_from[node]
        if at == len(self.log):
            return False
        self.reads_from[node] = at + 1
        self.add(node, "deliver", msg=self.log[at])
        return True

    def depart(self, node: str) -> None:
        self.gone.add(node)
        for kind, info in ENDINGS[self.ending]:
            self.add(node, kind, info=info, topic="t" if kind == "unsubscribe" else None)


def correct_run(seed: int, ending: str) -> Run:
    rng = random.Random(f"{ending} {seed}")
    run = Run(ending, rng)
    nodes = [f"n{i}" for i in range(rng.randint(4, 5))]
    publishers, guarantee = (nodes, "total") if rng.random() < 0.5 else (nodes[:1], rng.choice(["fifo", "causal"]))
    run.reads_from = dict.fromkeys(nodes[:-1], 0)
    for _ in range(3):
        run.publish(nodes[0], guarantee)
    for _ in range(rng.randint(20, 60)):
        node = rng.choice(nodes)
        if node in run.gone:
            continue
        if node not in run.reads_from:
            run.reads_from[node] = len(run.log)
            run.add(node, "subscribe", topic="t")
        elif node in publishers and rng.random() < 0.35:
            run.publish(node, guarantee)
        elif ending not in STAYS and node not in nodes[:2] and rng.random() < 0.12:
            run.depart(node)
        else:
            run.deliver(node)
    for node in [node for node in run.reads_from if node not in run.gone]:
        while run.deliver(node):
            pass
    if ending == "close":
        for node in run.reads_from:
            run.depart(node)
    return run


def verdict_on(run: Run, rows: list[Row], clock: str = "global") -> Any:
    seqs: dict[str, int] = {}
    numbered = []
    for row in rows:
        numbered.append(row | {"seq": seqs.get(row["node"], 0)})
        seqs[row["node"]] = numbered[-1]["seq"] + 1
    members = sorted(node for node in run.reads_from if not any(_subscribes(row, node) for row in rows))
    about = manifest(groups={"t": members}, clock=clock, drained=None if run.ending == "close" else True)
    return judged(numbered, about)


def _subscribes(row: Row, node: str) -> bool:
    return bool(row["node"] == node and row["kind"] == "subscribe")


def chosen_delivery(run: Run) -> tuple[int, int | None]:
    """The row of some delivery, and that of the next one at the same node, if there is one."""
    at = run.rng.choice([i for i, row in enumerate(run.rows) if row["kind"] == "deliver"])
    later = (i for i in range(at + 1, len(run.rows)) if run.rows[i]["node"] == run.rows[at]["node"])
    following = next((i for i in later if run.rows[i]["kind"] != "publish"), None)
    return at, following if following is not None and run.rows[following]["kind"] == "deliver" else None


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_correct_run_is_held(ending: str) -> None:
    outcomes = [verdict_on(run, run.rows) for run in (correct_run(seed, ending) for seed in SEEDS) if run.log]
    assert {verdict.exit_code() for verdict in outcomes} == {HELD}
    assert ending in STAYS or sum(int(verdict.facts[EXCUSED]) for verdict in outcomes) > 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_delivery_that_is_taken_out_is_found_unless_it_could_have_been_on_its_way(ending: str) -> None:
    found = excused = 0
    for run in (correct_run(seed, ending) for seed in SEEDS):
        at, following = chosen_delivery(run)
        late = any(_subscribes(row, run.rows[at]["node"]) for row in run.rows)
        clock = "global" if late else run.rng.choice(["global", "local"])  # Its coming is dated by nothing else.
        whole = verdict_on(run, run.rows, clock)
        verdict = verdict_on(run, [row for i, row in enumerate(run.rows) if i != at], clock)
        if following is None and run.rows[at]["node"] in run.gone and ending not in STAYS:
            assert verdict.exit_code() == HELD, "it had gone before this came"
            assert int(verdict.facts[EXCUSED]) == int(whole.facts[EXCUSED]) + 1
            excused += 1
        else:
            expected = UNDECIDED if ending == "close" and following is None else VIOLATED
            assert verdict.exit_code() == expected, run.rows[at]
            found += 1
    assert found > len(SEEDS) // 2
    assert (excused > 0) == (ending not in STAYS)


@pytest.mark.parametrize("ending", ENDINGS)
def test_two_deliveries_that_are_swapped_are_found(ending: str) -> None:
    tried = 0
    for run in (correct_run(seed, ending) for seed in SEEDS):
        at, following = chosen_delivery(run)
        if following is not None:
            rows = [dict(row) for row in run.rows]
            rows[at]["msg"], rows[following]["msg"] = rows[following]["msg"], rows[at]["msg"]
            assert verdict_on(run, rows).exit_code() == VIOLATED, run.rows[at]
            tried += 1
    assert tried > len(SEEDS) // 2


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_delivery_that_is_doubled_made_up_or_of_a_stranger_is_found(ending: str) -> None:
    for run in (correct_run(seed, ending) for seed in SEEDS):
        at, _ = chosen_delivery(run)
        delivery = run.rows[at]
        clock = run.rng.choice(["global", "local"])
        for wrong in (delivery, delivery | {"msg": "ghost"}, delivery | {"node": "stranger"}):
            assert verdict_on(run, [*run.rows[: at + 1], wrong, *run.rows[at + 1 :]], clock).exit_code() == VIOLATED


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_reader_of_whom_nobody_hears_owes_what_follows_the_first_that_it_has_read(ending: str) -> None:
    """No clock and no publication of its own say when it came: what it has heard of a publisher does."""
    for seed in SEEDS[:15]:
        run = Run(ending, random.Random(seed), reads_from={"w": 0})
        for _ in range(8):
            run.publish("w", "fifo")
            run.deliver("w")
        run.add("reader", "subscribe", topic="t")
        run.reads_from["reader"] = run.rng.randrange(4)
        while run.deliver("reader"):
            pass
        first, *others = [i for i, row in enumerate(run.rows) if row["node"] == "reader" and row["kind"] == "deliver"]
        run.depart("reader")
        assert verdict_on(run, run.rows, "local").exit_code() == HELD
        gap = run.rng.choice(others[:-1])
        assert verdict_on(run, run.rows[:gap] + run.rows[gap + 1 :], "local").exit_code() == VIOLATED
        shorter = verdict_on(run, run.rows[:first] + run.rows[first + 1 :], "local")
        assert shorter.exit_code() == HELD, "it may have come only then"

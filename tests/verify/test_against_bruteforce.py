"""The judge finds exactly what the definitions find, violation by violation, on thousands of random executions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from ordercast.verify.build import prepare
from ordercast.verify.kernels import (
    acyclic,
    causal,
    departed,
    fifo,
    happened,
    integrity,
    lines,
    prefix,
    real_time,
    realize,
    total,
)
from ordercast.verify.tasks import merge, plan, run_task
from ordercast.verify.verdict import CHECKS, Witness
from ordercast.verify.witness import witnesses
from tests.support.findings import Case, case, found
from tests.support.mutation import install, mutate

TRACES = 5000
BLOCKS = (128, 1, 2, 3)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [drawn for seed in range(TRACES) if (drawn := case(seed)) is not None]


def differs(case: Case) -> bool:
    return found(case, block=BLOCKS[case.seed % len(BLOCKS)]) != case.expected


def test_every_check_finds_what_its_definition_says_and_nothing_else(cases: list[Case]) -> None:
    broken: Counter[str] = Counter()
    for one in cases:
        assert found(one, block=BLOCKS[one.seed % len(BLOCKS)]) == one.expected, f"seed {one.seed}"
        broken.update(check for check in one.violated)
        broken.update({what for what, *_ in one.expected.get("integrity", ())})
    # Not vacuous: every kind of violation occurred, and clean executions did too.
    assert min(broken.values()) >= 40, broken
    assert {
        "early",
        "invented",
        "republished",
        "duplicate",
        "not for it",
        "total (cycle)",
        "total",
        "before by clock",
    } <= set(broken)
    clean = sum(1 for one in cases if not one.violated)
    assert clean >= TRACES // 10


def stories(case: Case) -> dict[str, list[Witness]]:
    columns = prepare(case.trace, case.asked)
    merged = merge([run_task(columns, task, cap=3) for task in plan(columns)], cap=3)
    return {check: witnesses(columns, check, part.findings) for check, part in merged.items()}


def test_every_finding_has_a_story_that_names_its_messages(cases: list[Case]) -> None:
    told: Counter[str] = Counter()
    for one in cases[:600]:
        for check, found_stories in stories(one).items():
            for witness in found_stories:
                assert all(any(name in line for line in witness.story) for name in [*witness.messages, witness.node])
                told[check] += 1
    assert min(told.values()) >= 5, told
    assert len(told) == len(CHECKS)


def test_causal_chains_are_real_and_as_short_as_they_can_be(cases: list[Case]) -> None:
    lengths: Counter[int] = Counter()
    for one in [one for one in cases if one.expected.get("causal") or one.expected.get("optimistic-causal")][:300]:
        definition = one.definition
        told = stories(one)
        for witness in told.get("causal", []) + told.get("optimistic-causal", []):
            check = witness.check
            assert all(definition.directly_before(a, b) for a, b in pairwise(witness.messages))
            violating = {p for m, p in one.expected[check] if m == witness.messages[-1] and p[0] == witness.node}
            shortest = {definition.shortest_chain(p, witness.messages[-1], check) for p in violating}
            assert len(witness.messages) in shortest
            lengths[len(witness.messages)] += 1
    assert lengths[2] >= 50
    assert sum(lengths.values()) - lengths[2] >= 10, lengths  # also through messages in between


def test_cycles_are_real_and_as_short_as_they_can_be(cases: list[Case]) -> None:
    lengths: Counter[int] = Counter()
    for one in [one for one in cases if one.expected.get("acyclic")][:150]:
        definition = one.definition
        (witness,) = stories(one)["acyclic"]
        assert len(witness.messages) == len(witness.story) == definition.shortest_cycle(definition.held("acyclic"))
        lengths[len(witness.messages)] += 1
    assert lengths[2] >= 50


MUTANTS = {
    "previous publication forgotten": (causal, "past[:] = store[before[r]]", "past[:] = -1"),
    "comparison changed": (causal, "past[c] > position[i]", "past[c] > position[i] + 2"),
    "own position not folded in": (causal, "past[column[i]] = max(past[column[i]], position[i])", "pass"),
    "row freed while it is still read": (happened, "if left[e] == 0:", "if left[e] <= 1:"),
    "row taken over while it is still read": (happened, "left[p] == 0", "left[p] >= 0"),
    "first edge dropped": (causal, "range(edge_off[r], edge_off[r + 1])", "range(edge_off[r] + 1, edge_off[r + 1])"),
    "what is missed counts as early": (causal, "MISSED + m if", "0 if"),
    "who left owes to the end in causal order": (causal, "2 * due[i] - 1", "MISSED + m"),
    "who left owes nothing in causal order": (causal, "2 * due[i] - 1", "-1"),
    "what is missed counts as delivered": (causal, "position[i] % 2 == 0", "position[i] > -2"),
    "pruning keeps the last delivered": (happened, "elif e > edges[where[g]]:", "else:"),
    "slice off by one": (happened, "start = i + 1", "start = i + 2"),
    "topics not told apart": (happened, "t = topic[ev[i] if ev[i] >= 0 else ~ev[i]]", "t = 0"),
    "knowledge does not travel": (happened, "bits |= store[edges[i]]", "pass"),
    "subscription known too early": (happened, "place[m] >= mark[k]", "place[m] + 1 >= mark[k]"),
    "early deliveries not seen": (realize, "early[cursor[c]] = 1", "early[cursor[c]] = 0"),
    "bystanders accused of preceding their publication": (realize, "return lowest", "return start"),
    "duplicates not seen": (integrity, "again[i] = stamp[ev[i]] == c", "again[i] = 0"),
    "what may be delivered must be": (integrity, "if what < MUST:", "if what < MAY:"),
    "what may be delivered must not be": (integrity, "what == MUST_NOT", "what < MUST"),
    "who left is owed as if it had stayed": (integrity, "= stay_asked[member_stay[j] + what - OWED]", "= 1"),
    "who stayed is excused": (integrity, "= stay_asked[member_stay[j] + what - OWED]", "= 0"),
    "the dead are asked in the end": (integrity, "asked[count] = alive[c]", "asked[count] = 1"),
    "the dead are excused for what came after them": (integrity, "published_ns[m] <= gone_ns[c]", "True"),
    "what the departed knew is forgotten": (departed, "store[edges[i]] |= bits", "pass"),
    "what the departed knew is said of others": (departed, "store[row[r]] = 0", "pass"),
    "what the departed delivered last is not looked at": (
        departed,
        "range(begins[s], ends[s])",
        "range(begins[s], ends[s] - 1)",
    ),
    "the departed answer for other publishers": (departed, "latest[lines[j]] > m", "latest.max() > m"),
    "FIFO gaps not seen": (fifo, "if held[m] and (seen", "if held[m] and m < 0 and (seen"),
    "FIFO owed too long": (fifo, "due[waits] > i - off[c]", "due[waits] >= i - off[c]"),
    "FIFO stops one short": (fifo, "range(off[c + 1] - 1, off[c] - 1, -1)", "range(off[c + 1] - 2, off[c] - 1, -1)"),
    "a key's earlier publication forgotten": (lines, "edges[k] = 2 * earlier + 1", "edges[k] = 2 * m"),
    "the first publication of a key stays its latest": (lines, "last[lines[j]] = m", "last[lines[j]] = 0"),
    "publications of other keys count": (lines, "row_prev[2 * m] = 2 * prev[m]", "row_prev[2 * m] = 2 * prev[m] + 1"),
    "what was delivered earlier is forgotten": (lines, "row_prev[2 * m] = 2 * prev[m]", "pass"),
    "every publication counts as echoed": (lines, "echo[earlier] < at[m]", "echo[earlier] <= log.size"),
    "pruned by what came earlier": (lines, "latest[lines[j]] > e", "latest[lines[j]] >= e"),
    "FIFO looks at one key": (
        fifo,
        "for j in range(line_off[m], line_off[m + 1]):",
        "for j in range(line_off[m], line_off[m] + 1):",
    ),
    "real time: any time will do": (
        real_time,
        "first_ns[later] < published_ns[m]",
        "first_ns[later] <= published_ns[m]",
    ),
    "real time: the last remembered": (real_time, "if later < 0 or first_ns[m] < first_ns[later]:", "if True:"),
    "real time: gaps not seen": (real_time, "if held[m] and (oldest", "if held[m] and m < 0 and (oldest"),
    "real time: topics not told apart": (real_time, "topic[m]", "0"),
    "Kahn without obligations": (acyclic, "for m in owed:", "for m in owed[:0]:"),
    "Kahn places too soon": (acyclic, "if need[m] == 0:", "if need[m] <= 1:"),
    "never is not last": (prefix, "far[lacking[k]] = NEVER", "far[lacking[k]] = 0"),
    "only delivered pairs compared": (prefix, "range(held + owed_off[p + 1] - owed_off[p])", "range(held)"),
    "slots not raised": (total, "low[m] = max(low[m], latest)", "low[m] = latest"),
    "slots not lowered": (total, "high[m] = min(high[m], coming)", "high[m] = coming"),
    "total messages before not marked": (total, "before[message[i]] = r", "pass"),
    "total messages after not marked": (total, "after[message[i]] = r", "pass"),
    "skipped messages forgiven": (total, "result = (SKIPPED, t, after[t], lacking[k])", "pass"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_found_out(name: str, cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new = MUTANTS[name]
    install(monkeypatch, module, mutate(module, old, new))
    assert any(_noticed(one) for one in cases), f"{len(cases)} traces do not tell the mutant from the judge"


def _noticed(case: Case) -> bool:
    try:
        return differs(case)
    except (IndexError, ValueError, AssertionError):
        return True  # It ran off an array: noticed, if rudely.

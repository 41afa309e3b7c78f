"""What the judge found, by name, in the form in which the brute force names it; and one case to compare them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ordercast.verify.asked import JudgeOptions
from ordercast.verify.build import BEFORE_BY_CLOCK, DUPLICATE, EARLY, INVENTED, NOT_FOR_IT, REPUBLISHED, prepare
from ordercast.verify.kernels.total import CYCLE
from ordercast.verify.load import LoadedTrace, normalised
from ordercast.verify.tasks import merge, plan, run_task
from ordercast.verify.verdict import CHECKS, EXCUSED, MADE, MISSING, OWED
from tests.support.bruteforce import Definition
from tests.support.random_traces import draw, order_scope_of, said_of, table_of

if TYPE_CHECKING:
    from ordercast.verify.columns import Columns

ALL = 1 << 12
ODD = {
    INVENTED: "invented",
    REPUBLISHED: "republished",
    DUPLICATE: "duplicate",
    EARLY: "early",
    NOT_FOR_IT: "not for it",
    BEFORE_BY_CLOCK: "before by clock",
}


@dataclass(frozen=True)
class Case:
    """A random trace, with all that its definition says is wrong with it, by check."""

    seed: int
    trace: LoadedTrace
    asked: JudgeOptions
    definition: Definition
    expected: dict[str, Any]
    early: set[tuple[str, Any, int]]
    """Deliveries that precede their own publication. The judge names at least one of them, and nothing else."""

    @property
    def violated(self) -> list[str]:
        return [check for check, found in self.expected.items() if found and check != "counts"]


def case(seed: int) -> Case | None:
    """The case of a seed; None if nothing happened in it."""
    rows, manifest = draw(seed)
    if not rows:
        return None
    scope = manifest.scope if manifest else "global"
    trace = LoadedTrace("random", "r", manifest, normalised(table_of(rows), "random"))
    order_scope = order_scope_of(seed)
    members, own = said_of(seed, manifest)
    definition = Definition(rows, manifest, scope, order_scope, members, own)
    asked = JudgeOptions(scope=scope, order_scope=order_scope, members=members, own_deliveries=own)
    return Case(seed, trace, asked, definition, expected(definition), definition.early())


def expected(definition: Definition) -> dict[str, Any]:
    """By the definitions. Where a delivery precedes its own publication, order means nothing, and only that is told."""
    if definition.early():
        return {"early": True}
    definition.decide_duties()
    cyclic_keys, torn = definition.total()
    return {
        "early": False,
        "counts": definition.counts(),
        "integrity": definition.integrity,
        "agreement": definition.agreement(),
        "fifo": definition.fifo(),
        "causal": definition.causal(),
        "optimistic-causal": definition.optimistic(),
        "total (cycle)": cyclic_keys,
        "total": torn,
        "prefix": definition.prefix(),
        "acyclic": definition.acyclic(),
        "genuine": definition.genuine(),
        "total-topic": definition.total_topic(),
        "real-time": definition.real_time(),
        "one-order": definition.one_order(),
        "convergence": {topic for topic, digests in definition.diverged().items() if len(digests) > 1},
    }


def found(case: Case, *, block: int) -> dict[str, Any]:
    """By the judge, with tasks of `block` receivers or keys each."""
    columns = prepare(case.trace, case.asked)
    merged = merge([run_task(columns, task, cap=ALL) for task in plan(columns, block=block)], cap=ALL)
    findings = {check: merged[check].findings if check in merged else [] for check in CHECKS}
    names = _Names(columns)
    integrity = {(ODD[kind], names.message(m), names.receivers[r], seq) for m, r, seq, kind in findings["integrity"]}
    early = {(m, receiver, seq) for what, m, receiver, seq in integrity if what == "early"}
    assert early <= case.early, "accused of preceding its own publication, and does not"
    if case.early:
        return {"early": bool(early)}
    in_order = ("agreement", "fifo", "causal", "optimistic-causal", "prefix", "real-time")
    pairs = {check: {(names.message(f[0]), names.receivers[f[1]]) for f in findings[check]} for check in in_order}
    total = findings["total"]
    return {
        "early": bool(early),
        "counts": {name: columns.about.facts[name] for name in (OWED, MADE, MISSING, EXCUSED)},
        "integrity": integrity,
        **pairs,
        "total (cycle)": {names.keys[f[2]] for f in total if f[3] == CYCLE},
        "total": {(names.message(f[0]), names.keys[f[2]]) for f in total if f[3] != CYCLE},
        "acyclic": {names.message(f[0]) for f in findings["acyclic"]},
        "total-topic": {names.message(f[0]) for f in findings["total-topic"]},
        "one-order": {names.message(f[0]) for f in findings["one-order"]},
        "genuine": {(names.message(f[0]), names.nodes[f[1]]) for f in findings["genuine"]},
        "convergence": {columns.about.digests[f[0]].topic for f in findings["convergence"]},
    }


class _Names:
    def __init__(self, columns: Columns) -> None:
        self._messages = columns.names.messages.to_pylist()
        self.nodes = columns.names.nodes.to_pylist()
        lives: dict[int, int] = {}
        self.receivers = []
        for node in columns.arrays.node.tolist():
            self.receivers.append((self.nodes[node], lives.get(node, 0)))
            lives[node] = lives.get(node, 0) + 1
        topics = [*columns.names.topics.to_pylist(), None]
        of = columns.arrays.key_topic.tolist()
        self.keys = [(topics[topic], key) for topic, key in zip(of, columns.names.keys.to_pylist(), strict=True)]

    def message(self, number: int) -> str:
        return str(self._messages[number])

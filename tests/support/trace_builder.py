"""Traces by hand, as short as the story they tell: `trace("a publishes m1", "b delivers m1", ...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.trace.store import Manifest
from ordercast.verify.judge import judge_table
from tests.support.random_traces import Row, table_of

if TYPE_CHECKING:
    from ordercast.verify.verdict import CheckResult, Verdict

_KINDS = {
    "publishes": "publish",
    "delivers": "deliver",
    "sends": "send",
    "receives": "receive",
    "subscribes": "subscribe",
    "unsubscribes": "unsubscribe",
    "joins": "join",
    "leaves": "leave",
    "crashes": "crash",
    "recovers": "recover",
    "ends": "repair_end",
}


def rows(*lines: str, **of_message: dict[str, Any]) -> list[Row]:
    """One row a line: node, verb, message (or topic, or state, or digest). `of_message` adds fields to publications."""
    next_seq: dict[str, int] = {}
    made = []
    for time_ns, line in enumerate(lines):
        node, verb, *rest = line.split()
        what = rest[0] if rest else None
        row: Row = {"run": "r", "node": node, "kind": _KINDS[verb], "time_ns": time_ns}
        row["seq"] = next_seq.get(node, 0)
        next_seq[node] = row["seq"] + 1
        if verb in ("subscribes", "unsubscribes"):
            row["topic"] = what
        elif verb == "recovers":
            row["info"] = {"state": what}
        elif verb == "ends":
            row["info"] = {"digest": what}
        elif what is not None:
            row["msg"] = what
        if verb == "publishes" and what is not None:
            row |= {"topic": "t"} | of_message.get(what, {})
        made.append(row)
    return made


def manifest(**fields: Any) -> Manifest:
    """A manifest of a run that was drained, with fields to taste."""
    return Manifest(**{"run_id": "r", "protocol": "by hand", "guarantee": "mixed", "drained": True} | fields)


def judged(made: list[Row], about: Manifest | None = None, **options: Any) -> Verdict:
    """The verdict on one run."""
    (verdict,) = judge_table(table_of(made), about, **options)
    return verdict


def result(verdict: Verdict, check: str) -> CheckResult:
    return next(result for result in verdict.results if result.check == check)


def story(verdict: Verdict, check: str) -> list[str]:
    """The lines of the first witness of a check that failed."""
    found = result(verdict, check)
    assert found.verdict == "fail", found
    return found.witnesses[0].story

"""Tells a run in a few sentences: who did how much, who was killed when, and how it went on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.report import rows
from ordercast.verify.verdict import EXCUSED, MISSING, OWED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ordercast.verify.metrics.values import MeasuredRepair, RunMetrics, TimelineMark
    from ordercast.verify.verdict import Verdict

_NAMED = 8
"""So many kills or returns are named one by one; more are a number."""


def sentences(metrics: RunMetrics, verdict: Verdict) -> list[str]:
    """The story, a sentence each; what was not recorded is left out."""
    told = [_work(metrics), *_owed(verdict), _faults("Killed", "crash", metrics), _faults("Back", "recover", metrics)]
    told += [_mended(metrics.repairs, client=False), _mended(metrics.repairs, client=True)]
    return [sentence for sentence in told if sentence]


def roots(metrics: RunMetrics) -> list[str]:
    """The brokers without a parent, before the first fault."""
    return [broker for broker, parent in metrics.topology.before.items() if not parent] if metrics.topology else []


def killed(metrics: RunMetrics) -> list[str]:
    """Every node that crashed, in the order of the first times."""
    return list(dict.fromkeys(mark.node for mark in _marks(metrics, "crash")))


def _work(metrics: RunMetrics) -> str:
    took = "" if metrics.duration_s is None else f" in {rows.milliseconds(metrics.duration_s * 1000)}"
    return (
        f"{rows.number(metrics.nodes)} nodes; {rows.number(metrics.published)} messages were published and "
        f"{rows.number(metrics.delivered)} deliveries made{took}."
    )


def _owed(verdict: Verdict) -> list[str]:
    if OWED not in verdict.facts:
        return []
    missing, excused = int(verdict.facts[MISSING]), int(verdict.facts[EXCUSED])
    words = f"{rows.number(int(verdict.facts[OWED]))} deliveries were owed; "
    words += f"{rows.number(missing)} of them are missing" if missing else "none of them is missing"
    if excused:
        words += f", and {rows.number(excused)} nobody can ask for: their receiver, or all who had them, went away"
    return [f"{words}."]


def _marks(metrics: RunMetrics, kind: str) -> list[TimelineMark]:
    return sorted((mark for mark in metrics.marks if mark.kind == kind), key=lambda mark: mark.time_s)


def _faults(verb: str, kind: str, metrics: RunMetrics) -> str:
    marks = _marks(metrics, kind)
    if not marks:
        return ""
    top = roots(metrics)
    named = [
        f"{mark.node}{' (the root)' if mark.node in top and kind == 'crash' else ''} "
        f"at {rows.milliseconds(mark.time_s * 1000)}"
        for mark in marks[:_NAMED]
    ]
    more = f" and {len(marks) - _NAMED} more" if len(marks) > _NAMED else ""
    return f"{verb}: {', '.join(named)}{more}."


def _mended(repairs: Sequence[MeasuredRepair], *, client: bool) -> str:
    of_kind = [repair for repair in repairs if repair.client is client]
    if not of_kind:
        return ""
    took = [repair.attached_ms for repair in of_kind if repair.attached_ms is not None]
    one = len(of_kind) == 1
    who = ("client" if one else "clients") if client else ("broker" if one else "brokers")
    words = f"{len(of_kind)} {who} {'lost its' if one else 'lost their'} {'broker' if client else 'parent'}"
    if took:
        words += f" and found another, the slowest after {rows.milliseconds(max(took))}" if len(took) > 1 else ""
        words += f" and found another after {rows.milliseconds(took[0])}" if len(took) == 1 else ""
    never = len(of_kind) - len(took)
    return f"{words}; {never} found none until the end." if never else f"{words}."

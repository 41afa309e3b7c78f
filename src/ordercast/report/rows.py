"""Verdicts and metrics as words, for every table that shows them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ordercast.verify.metrics.values import ALL
from ordercast.verify.verdict import EXCUSED, HELD, MADE, MISSING, OWED, UNDECIDED, VIOLATED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ordercast.verify.metrics.values import Distribution, MeasuredRepair, RunMetrics
    from ordercast.verify.verdict import Verdict, Witness

NONE = "—"
_OF_ORDER = ("agreement", "fifo", "causal", "optimistic-causal", "total", "real-time")
"""Checks whose stories begin with the message that a node let be overtaken, or lacks."""
OUTCOMES = {HELD: "held", VIOLATED: "violated", UNDECIDED: "undecided"}
DISTRIBUTION_HEADERS = ("", "count", "mean", "p50", "p90", "p99", "p99.9", "max")
COMPARISON_HEADERS = (
    "run",
    "protocol",
    "deliveries",
    "deliveries per second",
    "latency p50",
    "latency p99",
    "header mean",
    "copies per delivery",
    "hold-back p99",
    "repair max",
)


def outcome(verdict: Verdict) -> str:
    """The run's verdict in one word."""
    return OUTCOMES[verdict.exit_code()]


def owed(verdict: Verdict) -> str:
    """The duties of receivers and what became of them, in one line."""
    parts = ", ".join(f"{number(int(verdict.facts[name]))} {name}" for name in (MADE, MISSING, EXCUSED))
    return f"deliveries owed: {number(int(verdict.facts[OWED]))} ({parts})"


def stories(verdict: Verdict) -> list[tuple[list[str], Witness]]:
    """Every story once, with all the checks that it breaks: that of a node that let a message be overtaken or lacks it.

    Of several tellings that is taken which names the most messages, and the last of those: it says most about why.
    """
    told: dict[tuple[str, ...], tuple[list[str], Witness]] = {}
    for result in verdict.results:
        seen: Counter[str] = Counter()
        for n, witness in enumerate(result.witnesses):
            about = (witness.node, *witness.messages[:1])
            seen[str(about)] += 1
            key = (*about, str(seen[str(about)])) if result.check in _OF_ORDER else (result.check, str(n))
            checks, best = told.get(key, ([], witness))
            fuller = len(witness.messages) >= len(best.messages)
            told[key] = [*checks, result.check], witness if fuller else best
    return list(told.values())


def untold(verdict: Verdict) -> str:
    """How many violations there are besides those whose stories are told; empty if there are none."""
    more = {result.check: result.violations - len(result.witnesses) for result in verdict.results}
    told = ", ".join(f"{number(count)} more of {check}" for check, count in more.items() if count > 0)
    return f"… and {told}" if told else ""


def known_columns(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without columns in which nobody has a value."""
    kept = [n for n in range(len(headers)) if n == 0 or any(row[n] not in (NONE, "") for row in cells)]
    return [headers[n] for n in kept], [[row[n] for n in kept] for row in cells]


def number(value: float | None) -> str:
    """Three significant digits; whole numbers in full, with their thousands apart."""
    if value is None:
        return NONE
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def milliseconds(value: float | None) -> str:
    """A time in the unit that people would say it in."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if abs(value) < 1:
        return f"{value * 1000:.3g} µs"
    if abs(value) < 1000:
        return f"{value:.3g} ms"
    return f"{number(value / 1000)} s"


def size(value: float | None) -> str:
    """Bytes."""
    return NONE if value is None else f"{number(value)} B"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def scalars(metrics: RunMetrics) -> list[tuple[str, str]]:
    """The metrics that are one number each; those that are missing are left to `reasons`."""
    seconds = [None if value is None else value * 1000 for value in (metrics.duration_s, metrics.active_s)]
    known = [
        ("messages published", number(metrics.published)),
        ("deliveries", number(metrics.delivered)),
        ("nodes", number(metrics.nodes)),
        ("duration", milliseconds(seconds[0])),
        ("first publication to last delivery", milliseconds(seconds[1])),
        ("deliveries per second", number(metrics.deliveries_per_s)),
        ("messages per second", number(metrics.messages_per_s)),
        ("packets sent", number(metrics.packets_sent)),
        ("of these, without a message", number(metrics.control_packets_sent)),
        ("message copies per delivery", number(metrics.copies_per_delivery)),
        ("header bytes sent", size(metrics.header_total_bytes)),
        ("payload bytes sent", size(metrics.payload_total_bytes)),
        ("received messages that had to wait", share(metrics.held_share)),
        ("packets dropped", number(metrics.drops)),
    ]
    return [(name, value) for name, value in known if value != NONE]


def distributions(metrics: RunMetrics) -> list[tuple[str, ...]]:
    """The metrics that spread, a row each; those that are missing are left to `reasons`."""
    rows = []
    for guarantee, spread in (metrics.latency_ms or {}).items():
        rows.append(_spread(f"latency, {guarantee}", spread, milliseconds))
    if metrics.hold_back_ms:
        rows.append(_spread("hold-back", metrics.hold_back_ms, milliseconds))
    if metrics.header_bytes:
        rows.append(_spread("header of a message copy", metrics.header_bytes, size))
    for packet, spread in metrics.header_bytes_by_packet.items():
        rows.append(_spread(f"header of {packet}", spread, size))
    if metrics.detection_ms:
        rows.append(_spread("crash to suspicion", metrics.detection_ms, milliseconds))
    if metrics.repair_ms:
        rows.append(_spread("repair", metrics.repair_ms, milliseconds))
    if metrics.failover_ms:
        rows.append(_spread("client failover", metrics.failover_ms, milliseconds))
    return rows


REPAIR_HEADERS = ("node", "lost", "now", "began", "attached after", "synchronised after", "rounds", "election", "term")


def repairs(metrics: RunMetrics) -> list[tuple[str, ...]]:
    """Every repair and failover, in the columns of REPAIR_HEADERS."""
    return [
        (
            repair.node,
            repair.lost or NONE,
            _place(repair),
            milliseconds(repair.start_s * 1000),
            milliseconds(repair.attached_ms) if repair.attached_ms is not None else "never",
            milliseconds(repair.synchronised_ms),
            NONE if repair.rounds is None else f"{repair.rounds:g}",
            milliseconds(repair.election_ms),
            repair.term or NONE,
        )
        for repair in metrics.repairs
    ]


def _place(repair: MeasuredRepair) -> str:
    """The place where a repair or failover ended."""
    if repair.attached_ms is None:
        return NONE
    if repair.client:
        return f"client of {repair.parent}" if repair.parent else "client"
    return f"child of {repair.parent}" if repair.parent else repair.role or "root"


def reasons(metrics: RunMetrics) -> list[tuple[str, str]]:
    """Why something is missing: the metrics of one reason together."""
    together: dict[str, list[str]] = {}
    for name, reason in metrics.missing.items():
        together.setdefault(reason, []).append(name)
    return [(", ".join(names), reason) for reason, names in together.items()]


def comparison(all_metrics: Sequence[RunMetrics]) -> list[tuple[str, ...]]:
    """One row a run, in the columns of COMPARISON_HEADERS."""
    return [
        (
            metrics.run,
            metrics.protocol,
            number(metrics.delivered),
            number(metrics.deliveries_per_s),
            milliseconds(latency.p50 if latency else None),
            milliseconds(latency.p99 if latency else None),
            size(metrics.header_bytes.mean if metrics.header_bytes else None),
            number(metrics.copies_per_delivery),
            milliseconds(metrics.hold_back_ms.p99 if metrics.hold_back_ms else None),
            milliseconds(metrics.repair_ms.max if metrics.repair_ms else None),
        )
        for metrics in all_metrics
        for latency in [overall_latency(metrics)]
    ]


def overall_latency(metrics: RunMetrics) -> Distribution | None:
    """Latency over all guarantees; a run of one guarantee has only that one."""
    if not metrics.latency_ms:
        return None
    return metrics.latency_ms.get(ALL) or next(iter(metrics.latency_ms.values()))


def _spread(name: str, spread: Distribution, unit: Callable[[float], str]) -> tuple[str, ...]:
    values = (spread.mean, spread.p50, spread.p90, spread.p99, spread.p999, spread.max)
    return (name, number(spread.count), *(unit(value) for value in values))

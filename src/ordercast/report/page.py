"""The report of runs: did each hold, what was run, what it cost, and how they compare. One file that needs no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ordercast.report import rows
from ordercast.report.brokers import broker_sections, repair_table
from ordercast.report.figures import SERIES, cumulative, over_time
from ordercast.report.html import Markup, definitions, figure, page, table, tag, write_page
from ordercast.report.overlays import overlay_sections
from ordercast.report.spacetime import diagram
from ordercast.report.story import killed, sentences
from ordercast.trace.store import Manifest
from ordercast.verify.metrics.values import RunMetrics
from ordercast.verify.verdict import ASSUMED, FAIL, NOT_APPLICABLE, PASS, UNKNOWN, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ordercast.verify.metrics.values import Distribution
    from ordercast.verify.verdict import Witness

_SYMBOLS = {PASS: "✓", FAIL: "✗", UNKNOWN: "?", NOT_APPLICABLE: "—"}
_OPEN_WITNESSES = 3
_FIGURES_UP_TO = 20
"""With more runs than this a page would take minutes to draw and megabytes to hold; the tables stay."""
_LATENCY = "Latency from publication to delivery"
_HEADERS = "Header bytes of each message copy on a link"
_HOLD_BACK = "Time that received messages were held back before delivery"


class RunReport(msgspec.Struct):
    """All that the report tells about one run. A trace that others wrote has no manifest."""

    manifest: Manifest | None
    verdict: Verdict
    metrics: RunMetrics


def write_report(out: Path, runs: Sequence[RunReport]) -> None:
    """Write the page about `runs` to `out`, whole or not at all; the same runs give the same bytes."""
    write_page(out, render(runs))


def render(runs: Sequence[RunReport]) -> str:
    """The page as text."""
    title = f"Ordercast: {runs[0].verdict.run}" if len(runs) == 1 else f"Ordercast: {len(runs)} runs"
    sections = [tag("h1", title), _summary(runs)]
    if len(runs) > 1:
        sections.append(_overview(runs))
    for index, run in enumerate(runs):
        if len(runs) > 1:
            sections += [tag("h2", f"Run {run.verdict.run}", id=f"run-{index}"), _headline(run)]
        sections.append(_run(f"run-{index}", run, drawn=len(runs) <= _FIGURES_UP_TO))
    return page(title, *sections)


def _summary(runs: Sequence[RunReport]) -> Markup:
    """One sentence for those who read only one."""
    counts = {word: sum(rows.outcome(run.verdict) == word for run in runs) for word in rows.OUTCOMES.values()}
    if len(runs) == 1:
        return _headline(runs[0])
    worst = next((word for word in ("violated", "undecided", "held") if counts[word]), "undecided")
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return tag("p", tag("strong", told.capitalize()), class_=f"headline {worst}")


def _headline(run: RunReport) -> Markup:
    outcome = rows.outcome(run.verdict)
    words = tag("strong", f"{outcome.capitalize()}: "), tag("span", _because(run))
    return tag("p", *words, class_=f"headline {outcome}")


def _because(run: RunReport) -> str:
    """Why the headline says what it says."""
    verdict, outcome = run.verdict, rows.outcome(run.verdict)
    of_verdict = {
        word: [result.check for result in verdict.results if result.verdict == word] for word in (PASS, FAIL, UNKNOWN)
    }
    if outcome == "violated":
        return ", ".join(of_verdict[FAIL])
    if outcome == "held":
        return f"{', '.join(of_verdict[PASS])}, over {rows.number(run.metrics.delivered)} deliveries"
    return verdict.reason or ", ".join(of_verdict[UNKNOWN]) or "nothing was judged"


def _overview(runs: Sequence[RunReport]) -> Markup:
    """All runs side by side, and their curves in one figure while colours last."""
    verdicts = [
        (
            tag("a", label, href=f"#run-{index}"),
            run.verdict.protocol,
            run.verdict.guarantee,
            _badge(rows.outcome(run.verdict), rows.outcome(run.verdict)),
            _because(run),
        )
        for index, (label, run) in enumerate(zip(_labels(runs), runs, strict=True))
    ]
    metrics = [run.metrics for run in runs]
    parts = [
        tag("h2", "All runs"),
        table("Verdicts", ("run", "protocol", "guarantee", "outcome", "why"), verdicts, numeric_from=5),
        table("Metrics", *rows.known_columns(rows.COMPARISON_HEADERS, rows.comparison(metrics)), numeric_from=2),
    ]
    if len(runs) <= SERIES:
        by_label = dict(zip(_labels(runs), metrics, strict=True))
        latencies = {label: rows.overall_latency(run) for label, run in by_label.items()}
        parts.append(_curves("all-latency", latencies, _LATENCY, "ms"))
        headers = {label: run.header_bytes for label, run in by_label.items()}
        parts.append(_curves("all-header", headers, _HEADERS, "bytes"))
    return tag("section", *parts)


def _labels(runs: Sequence[RunReport]) -> list[str]:
    """A label for each run: its id, or its path where ids repeat."""
    ids = [run.verdict.run for run in runs]
    return ids if len(set(ids)) == len(ids) else [run.verdict.path for run in runs]


def _run(name: str, run: RunReport, *, drawn: bool) -> Markup:
    """One run: what happened first, then how it looked, and behind that everything that was counted."""
    metrics = run.metrics
    return tag(
        "section",
        tag("p", " ".join(sentences(metrics, run.verdict))),
        *_witnesses(name, run.verdict),
        *(_timeline(name, metrics) if drawn else []),
        *broker_sections(name, metrics, drawn=drawn),
        *overlay_sections(name, metrics, drawn=drawn),
        tag("h3", "Details"),
        _folded("What was run, and how to run it again", _what_was_run(run)),
        _folded("Every check, and over how much", *_verdicts(run.verdict)),
        _folded("Numbers", *_metrics(metrics)),
        *([_folded("How latency, headers and hold-back spread", *_figures(name, metrics))] if drawn else []),
        *([_folded("Every repair", repair_table(metrics))] if metrics.repairs else []),
    )


def _folded(words: str, *parts: Markup) -> Markup:
    return tag("details", tag("summary", words), *parts)


def _what_was_run(run: RunReport) -> Markup:
    verdict, manifest = run.verdict, run.manifest
    told = [("protocol", verdict.protocol), ("claims", verdict.guarantee), ("scope of causal order", verdict.scope)]
    if verdict.order_scope != "session":
        told.append(("scope of a publisher's own order", verdict.order_scope))
    if manifest is not None:
        drained = {True: "came to rest", False: "did not come to rest", None: "not stated"}[manifest.drained]
        told += [
            ("scenario", manifest.scenario or "not stated"),
            ("seed", str(manifest.seed)),
            ("nodes", rows.number(len(manifest.nodes))),
            ("faults that fired", _pairs(manifest.faults) or _crashes(run.metrics) or "none"),
            ("drain at the end", drained),
            ("claims besides", ", ".join(manifest.claims)),
            ("options", _pairs(manifest.options)),
            ("recorded by", f"ordercast {manifest.version}" if manifest.version else "not stated"),
        ]
    facts = {name: fact for name, fact in verdict.facts.items() if name != ASSUMED}
    told += [
        ("assumed", str(verdict.facts.get(ASSUMED, ""))),
        ("judge's facts", _pairs(facts)),
        ("path", verdict.path),
    ]
    return definitions((name, value) for name, value in told if value)


def _crashes(metrics: RunMetrics) -> str:
    """Crashes from the trace where the manifest does not count them."""
    crashes = sum(mark.kind == "crash" for mark in metrics.marks)
    return f"crash {crashes}" if crashes else ""


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _verdicts(verdict: Verdict) -> list[Markup]:
    """A row for each check that says something, and a sentence about those that do not apply."""
    cells = [
        (
            result.check,
            _badge(f"{_SYMBOLS.get(result.verdict, '')} {result.verdict}", result.verdict),
            "yes" if result.claimed else "no",
            result.reason,
            rows.number(result.deliveries),
            rows.number(result.violations),
        )
        for result in verdict.results
        if result.claimed or result.verdict != NOT_APPLICABLE
    ]
    headers = "check", "verdict", "claimed", "reason", "looked at", "violations"
    caption = "What the judge found; a check that goes by key or by pair looks at a delivery as often as it needs"
    parts = [table(caption, headers, cells, numeric_from=4)] if cells else []
    idle = [result.check for result in verdict.results if result.verdict == NOT_APPLICABLE and not result.claimed]
    return (
        [*parts, tag("p", f"Not claimed, and nothing to look at: {', '.join(idle)}.", class_="soft")] if idle else parts
    )


def _badge(words: str, kind: str) -> Markup:
    return tag("span", words, class_=f"verdict {kind.replace(' ', '-')}")


def _witnesses(name: str, verdict: Verdict) -> list[Markup]:
    """Each violation as its story and its drawing; the first ones are open, so that paper shows them too."""
    stories = rows.stories(verdict)
    if not stories:
        return []
    shown = [
        _witness(f"{name}-witness-{index}", checks, witness, shown=index < _OPEN_WITNESSES)
        for index, (checks, witness) in enumerate(stories)
    ]
    more = rows.untold(verdict)
    return [tag("h3", "What went wrong"), *shown, *([tag("p", more, class_="soft")] if more else [])]


def _witness(name: str, checks: list[str], witness: Witness, *, shown: bool) -> Markup:
    about = f" on {', '.join(witness.messages)}" if witness.messages else ""
    summary = tag("summary", f"{', '.join(checks)} broken at {witness.node}{about}")
    story = tag("ol", *(tag("li", line) for line in witness.story))
    return tag("details", summary, diagram(name, witness), story, **({"open": "open"} if shown else {}))


def _metrics(metrics: RunMetrics) -> list[Markup]:
    parts = [table("Totals and rates", ("", "value"), rows.scalars(metrics))]
    spreads = rows.distributions(metrics)
    if spreads:
        parts.append(table("Distributions", rows.DISTRIBUTION_HEADERS, spreads))
    reasons = rows.reasons(metrics)
    if reasons:
        parts.append(table("Not measured", ("metric", "because"), reasons, numeric_from=2))
    return parts


def _timeline(name: str, metrics: RunMetrics) -> list[Markup]:
    if not metrics.timeline or not metrics.duration_s:
        return []
    title = "Deliveries per second and p99 latency over the run"
    words = f"{rows.number(metrics.delivered)} deliveries in {rows.number(metrics.duration_s)} s"
    words += f"; killed: {', '.join(killed(metrics))}" if killed(metrics) else ""
    return [figure(over_time(f"{name}-time", metrics, f"{title}: {words}"), title, words)]


def _figures(name: str, metrics: RunMetrics) -> list[Markup]:
    return [
        _curves(f"{name}-latency", metrics.latency_ms or {}, _LATENCY, "ms"),
        _curves(f"{name}-header", {"": metrics.header_bytes}, _HEADERS, "bytes"),
        _curves(f"{name}-hold", {"": metrics.hold_back_ms}, _HOLD_BACK, "ms"),
    ]


def _curves(name: str, spreads: Mapping[str, Distribution | None], title: str, unit: str) -> Markup:
    """A figure of distributions with its numbers in words; nothing where there are none, or nothing but zeros."""
    known = {label: spread for label, spread in spreads.items() if spread is not None and spread.max > 0}
    if not known:
        return Markup("")
    told = [
        f"{f'{label}: ' if label else ''}median {rows.number(spread.p50)} {unit}, p99 {rows.number(spread.p99)} {unit}"
        for label, spread in known.items()
    ]
    words = "; ".join(told)
    return figure(cumulative(name, known, unit, f"{title}: {words}"), title, words)

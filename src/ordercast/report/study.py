"""The report of a study: what was swept, which claims of the source it bears out, and the figures behind."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Any

import msgspec

from ordercast.report.html import Markup, definitions, page, table, tag, write_page
from ordercast.report.rows import NONE, number
from ordercast.trace.store import TraceError

_FEW_COLUMNS = 10
"""So many fit side by side."""
_HOLDS = {True: ("✓ holds", "pass"), False: ("✗ does not hold", "fail"), None: ("? not decided", "unknown")}


class ResultTable(msgspec.Struct):
    """Results as they are to be shown: in the order of what they mean, the parameters first."""

    headers: list[str]
    parameters: int
    """So many of the columns say what was run."""
    rows: list[list[Any]]


class StudyReport(msgspec.Struct):
    """A study's results as plain data."""

    name: str
    source: str
    description: str
    words: dict[str, str]
    """Abbreviations and terms, and what they stand for."""
    scale: str
    runs: str
    """How many runs are behind a point."""
    claims: list[dict[str, Any]]
    """Each with `id`, `source`, `of_source`, `statement`, `measured` and `holds` (true, false or null)."""
    figures: list[tuple[Path, str]]
    """PNG or SVG files, each with its caption."""
    failed: list[dict[str, Any]]
    """Configurations that gave no result: their parameters, and `error`."""
    table: ResultTable
    command: str
    """What to type to repeat the study."""


def write_study_report(out: Path, study: StudyReport) -> None:
    """Write the page about `study` to `out`, whole or not at all; the same results give the same bytes."""
    write_page(out, render_study(study))


def render_study(study: StudyReport) -> str:
    """The page as text."""
    title = f"Ordercast study: {study.name}"
    facts = [("scale", study.scale), ("runs", study.runs), ("repeat with", study.command)]
    return page(
        title,
        tag("h1", title),
        _headline(study),
        *(tag("p", paragraph) for paragraph in study.description.split("\n\n") if paragraph.strip()),
        definitions([("source", study.source), *((name, tag("code", value)) for name, value in facts)]),
        *_words_of(study.words),
        *_claims(study.claims),
        *_figures(study.figures),
        *_results(study.table),
        *_failed(study.failed),
    )


def _words_of(words: dict[str, str]) -> list[Markup]:
    return [tag("h2", "Words and abbreviations"), definitions(words.items())] if words else []


def _headline(study: StudyReport) -> Markup:
    broken = [str(claim["id"]) for claim in study.claims if claim["holds"] is False]
    open_claims = [str(claim["id"]) for claim in study.claims if claim["holds"] is None]
    held = any(claim["holds"] for claim in study.claims)
    kind = "violated" if broken else "undecided" if open_claims or study.failed or not held else "held"
    more = [f"do not hold: {', '.join(broken)}"] if broken else []
    more += [f"undecided: {', '.join(open_claims)}"] if open_claims else []
    more += [f"failed configurations: {len(study.failed)}"] if study.failed else []
    told = ", ".join(f"{_count(claims)} {whose}" for whose, claims in _by_origin(study.claims).items())
    strong = tag("strong", f"Claims that hold: {told or 'none were made'}")
    return tag("p", strong, *(tag("span", f"; {words}") for words in more), class_=f"headline {kind}")


def _by_origin(claims: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The claims of the source apart from our own: that ours hold says nothing about the source."""
    found = {
        "of the source": [claim for claim in claims if claim["of_source"]],
        "of our own": [claim for claim in claims if not claim["of_source"]],
    }
    return {whose: some for whose, some in found.items() if some}


def _count(claims: list[dict[str, Any]]) -> str:
    return f"{sum(claim['holds'] is True for claim in claims)} of {len(claims)}"


def _claims(claims: list[dict[str, Any]]) -> list[Markup]:
    found = []
    for whose, some in _by_origin(claims).items():
        cells = []
        for claim in some:
            words, kind = _HOLDS[claim["holds"]]
            badge = tag("span", words, class_=f"verdict {kind}")
            told = (_words(claim[key]) for key in ("statement", "measured", "source"))
            cells.append((_words(claim["id"]), badge, *told))
        headers = "claim", "here", "statement", "measured", "source"
        found.append(tag("h2", f"Claims {whose}"))
        found.append(table(f"{_count(some)} hold", headers, cells, numeric_from=5))
    return found


def _figures(figures: list[tuple[Path, str]]) -> list[Markup]:
    if not figures:
        return []
    return [tag("h2", "Figures"), *(_inlined(path, caption) for path, caption in figures)]


def _inlined(path: Path, caption: str) -> Markup:
    """An image inside the page. As a data URI even an SVG can neither load anything nor clash with another's ids."""
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    image = tag("img", src=f"data:{kind};base64,{data}", alt=caption)
    return tag("figure", image, tag("figcaption", caption))


def _results(results: ResultTable) -> list[Markup]:
    """Tables of what differs between the runs and what was measured, a few columns at a time: none is cut off."""
    if not results.rows:
        return []
    columns = dict(zip(results.headers, zip(*results.rows, strict=True), strict=True))
    same = {name: values[0] for name, values in columns.items() if len(set(values)) == 1}
    varied = [name for name in results.headers[: results.parameters] if name not in same]
    measured = [name for name in results.headers[results.parameters :] if name not in same]
    known = "; ".join(f"{name} {_words(value)}" for name, value in same.items() if value not in (None, ""))
    told = tag("p", f"The same in every row: {known}")
    return [tag("h2", "Results"), *([told] if known else []), *_blocks(columns, varied, measured)]


def _blocks(columns: dict[str, tuple[Any, ...]], varied: list[str], measured: list[str]) -> list[Markup]:
    beside = max(_FEW_COLUMNS - len(varied), 3)
    found = []
    for start in range(0, max(len(measured), 1), beside):
        names = [*varied, *measured[start : start + beside]]
        cells = [[_words(value) for value in row] for row in zip(*(columns[name] for name in names), strict=True)]
        shown = ", ".join(measured[start : start + beside]) or "what was run"
        found.append(tag("details", tag("summary", shown), table("One row a configuration", names, cells)))
    return found


def _failed(failed: list[dict[str, Any]]) -> list[Markup]:
    if not failed:
        return []
    cells = [
        (
            ", ".join(f"{name}={value}" for name, value in entry.items() if name != "error"),
            _words(entry.get("error", "")),
        )
        for entry in failed
    ]
    headers = "configuration", "error"
    return [tag("h2", "Failed configurations"), table("These gave no result", headers, cells, numeric_from=2)]


def _words(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number(value)
    return NONE if value is None else str(value)

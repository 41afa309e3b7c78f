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

_HOLDS = {True: ("✓ holds", "pass"), False: ("✗ does not hold", "fail"), None: ("? not decided", "unknown")}


class Table(msgspec.Struct):
    """Results as they are to be shown."""

    headers: list[str]
    rows: list[list[Any]]


class StudyReport(msgspec.Struct):
    """A study's results as plain data."""

    name: str
    description: str
    scale: str
    claims: list[dict[str, Any]]
    """Each with `id`, `source`, `statement`, `measured` and `holds` (true, false or null)."""
    figures: list[Path]
    """PNG or SVG files; the file's stem is the caption."""
    failed: list[dict[str, Any]]
    """Configurations that gave no result: their parameters, and `error`."""
    table: Table
    command: str
    """What to type to repeat the study."""


def write_study_report(out: Path, study: StudyReport) -> None:
    """Write the page about `study` to `out`, whole or not at all; the same results give the same bytes."""
    write_page(out, render_study(study))


def render_study(study: StudyReport) -> str:
    """The page as text."""
    title = f"Ordercast study: {study.name}"
    facts = [("scale", study.scale), ("repeat with", study.command)]
    return page(
        title,
        tag("h1", title),
        _headline(study),
        *(tag("p", paragraph) for paragraph in study.description.split("\n\n") if paragraph.strip()),
        definitions((name, tag("code", value)) for name, value in facts),
        *_claims(study.claims),
        *_figures(study.figures),
        *_results(study.table),
        *_failed(study.failed),
    )


def _headline(study: StudyReport) -> Markup:
    broken = [str(claim["id"]) for claim in study.claims if claim["holds"] is False]
    open_claims = [str(claim["id"]) for claim in study.claims if claim["holds"] is None]
    held = sum(claim["holds"] is True for claim in study.claims)
    kind = "violated" if broken else "undecided" if open_claims or study.failed or not held else "held"
    more = [f"do not hold: {', '.join(broken)}"] if broken else []
    more += [f"undecided: {', '.join(open_claims)}"] if open_claims else []
    more += [f"failed configurations: {len(study.failed)}"] if study.failed else []
    told = tag("strong", f"Claims that hold: {held} of {len(study.claims)}")
    return tag("p", told, *(tag("span", f"; {words}") for words in more), class_=f"headline {kind}")


def _claims(claims: list[dict[str, Any]]) -> list[Markup]:
    if not claims:
        return []
    cells = []
    for claim in claims:
        words, kind = _HOLDS[claim["holds"]]
        badge = tag("span", words, class_=f"verdict {kind}")
        cells.append((_words(claim["id"]), badge, *(_words(claim[key]) for key in ("statement", "measured", "source"))))
    headers = "claim", "here", "statement", "measured", "source"
    return [
        tag("h2", "Claims"),
        table("Statements of the source, and what was measured", headers, cells, numeric_from=5),
    ]


def _figures(figures: list[Path]) -> list[Markup]:
    if not figures:
        return []
    return [tag("h2", "Figures"), *(_inlined(figure) for figure in figures)]


def _inlined(path: Path) -> Markup:
    """An image inside the page. As a data URI even an SVG can neither load anything nor clash with another's ids."""
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    caption = path.stem.replace("_", " ").replace("-", " ")
    image = tag("img", src=f"data:{kind};base64,{data}", alt=caption)
    return tag("figure", image, tag("figcaption", caption))


def _results(results: Table) -> list[Markup]:
    if not results.rows:
        return []
    cells = [[_words(value) for value in row] for row in results.rows]
    return [tag("h2", "Results"), table("One row a configuration", results.headers, cells)]


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

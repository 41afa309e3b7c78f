"""The report of a study: what was swept, which claims of the source it bears out, and the figures behind."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.report.html import Markup, definitions, join, page, table, tag, write_page
from ordercast.report.rows import NONE, number
from ordercast.trace.store import TraceError

_LETTERS = 98
"""So many fit side by side on a wide screen, the space between columns included."""
_BETWEEN = 1.6
_BOLD = 1.1
"""How much wider a letter of a header is than one below it."""
_FOR_MEASURED = 40
"""So many letters parameters must leave if they are to stand beside what was measured."""
_LONGEST_CELL = 24
"""Words of more letters go on in the next line."""
_ROW = "row"
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
        *(tag("p", _prose(paragraph)) for paragraph in study.description.split("\n\n") if paragraph.strip()),
        definitions([("source", study.source), *((name, tag("code", value)) for name, value in facts)]),
        *_words_of(study.words),
        *_claims(study.claims),
        *_figures(study.figures),
        *_results(study.table),
        *_failed(study.failed),
    )


def _prose(text: str) -> Markup:
    """Text in which what is between two backticks is code; one that is alone stays."""
    first, *rest = text.split("`")
    pieces: list[str] = [first]
    for quoted, plain in zip(rest[::2], rest[1::2], strict=False):
        pieces += [tag("code", quoted), plain]
    return join([*pieces, *(["`", rest[-1]] if len(rest) % 2 else [])])


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
            told = (_prose(_words(claim[key])) for key in ("statement", "measured", "source"))
            cells.append((_words(claim["id"]), badge, *told))
        headers = "claim", "here", "statement", "measured", "source"
        found.append(tag("h2", f"Claims {whose}"))
        found.append(table(f"{_count(some)} hold", headers, cells, numeric=(), stacked=True))
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
    """As many columns beside each other as fit. Where the parameters alone take all the room, rows have numbers."""
    beside = varied
    if _LETTERS - sum(_width(name, columns[name]) for name in varied) < _FOR_MEASURED:
        columns = {_ROW: tuple(range(1, len(next(iter(columns.values()))) + 1)), **columns}
        beside, measured = [_ROW], [*varied, *measured]
    room = _LETTERS - sum(_width(name, columns[name]) for name in beside)
    found = []
    for names in _packed({name: _width(name, columns[name]) for name in measured}, room) or [[]]:
        shown = [*beside, *names]
        cells = [[_words(value) for value in row] for row in zip(*(columns[name] for name in shown), strict=True)]
        headers = [join(_breakable(name)) for name in shown]
        numeric = [place for place, name in enumerate(shown) if _is_numeric(columns[name])]
        caption = "One row a configuration" + (", which has the same number in every table" if beside == [_ROW] else "")
        summary = tag("summary", ", ".join(names) or "what was run")
        found.append(tag("details", summary, table(caption, headers, cells, numeric=numeric)))
    return found


def _packed(widths: dict[str, float], room: float) -> list[list[str]]:
    """The columns in their order, in groups that fit into the room; one that fits nowhere is alone."""
    groups: list[list[str]] = []
    left = 0.0
    for name, width in widths.items():
        if not groups or width > left:
            groups.append([])
            left = room
        groups[-1].append(name)
        left -= width
    return groups


def _width(name: str, values: Sequence[Any]) -> float:
    """Letters that a column needs; its name may be broken after an underscore, and long words go on below."""
    longest = max((len(_words(value)) for value in values), default=0)
    if not _is_numeric(values):
        longest = min(longest, _LONGEST_CELL)
    return max(longest, _BOLD * max(map(len, name.split("_")))) + _BETWEEN


def _breakable(name: str) -> list[str]:
    """The name and where it may be broken."""
    *parts, last = name.split("_")
    return [piece for part in parts for piece in (f"{part}_", tag("wbr"))] + [last]


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


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
    return [tag("h2", "Failed configurations"), table("These gave no result", headers, cells, numeric=(), stacked=True)]


def _words(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number(value)
    return NONE if value is None else str(value)

"""HTML by construction: every string is escaped unless it is Markup already, and a page needs nothing but itself."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.trace.store import TraceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_VOID = frozenset({"br", "hr", "img", "meta", "wbr"})


class Markup(str):
    """Text that is HTML and must not be escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element. A trailing underscore keeps an attribute from being a Python keyword: `class_`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    """Children one after the other, strings escaped."""
    return Markup("".join(child if isinstance(child, Markup) else html.escape(child) for child in children))


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric_from: int = 1,
    numeric: Collection[int] | None = None,
    stacked: bool = False,
) -> Markup:
    """A table whose first column names the row; columns from `numeric_from` on, or the `numeric` ones, hold numbers.

    A `stacked` one, of sentences, puts the cells of a row one under the other where the screen is narrow.
    """
    aligned = range(numeric_from, len(headers)) if numeric is None else numeric
    head = tag("tr", *(_cell("th", header, index in aligned, scope="col") for index, header in enumerate(headers)))
    body = [
        tag(
            "tr",
            _cell("th", row[0], 0 in aligned, scope="row"),
            *(
                _cell("td", value, index in aligned, **({"data_label": headers[index]} if stacked else {}))
                for index, value in enumerate(row[1:], 1)
            ),
        )
        for row in rows
    ]
    parts = tag("caption", caption), tag("thead", head), tag("tbody", *body)
    return tag("div", tag("table", *parts, **({"class_": "stacked"} if stacked else {})), class_="wide")


def _cell(name: str, value: str, is_number: bool, /, **attributes: str) -> Markup:
    if is_number:
        attributes["class_"] = "number"
    return tag(name, value, **attributes)


def definitions(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Names and what they stand for."""
    return tag("dl", *(join((tag("dt", name), tag("dd", value))) for name, value in pairs))


def figure(drawing: Markup, title: str, words: str) -> Markup:
    """A drawing with its title and what it shows in words."""
    return tag("figure", drawing, tag("figcaption", tag("strong", title), f": {words}."))


def page(title: str, *sections: str) -> str:
    """A whole document: no script, no font, no image from elsewhere."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(_STYLE)),
    )
    body = tag("body", tag("main", *sections))
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def write_page(out: Path, document: str) -> None:
    """Put the page at `out` whole or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=out.parent, prefix=f".{out.name}.", suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            temporary = Path(file.name)
            try:
                file.write(document)
                file.flush()
                temporary.chmod(0o644)
                temporary.replace(out)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise TraceError(f"{out}: cannot be written: {error.strerror}") from None


_STYLE = """
:root { --paper: #fcfcfa; --ink: #1d2129; --soft: #5b6472; --line: #d9dce1; --panel: #f2f3f0;
  --good: #1a7340; --bad: #b3261e; --open: #8a5a00;
  --s0: #2563a8; --s1: #c2571a; --s2: #2c7d59;
  --s3: #8446a8; --s4: #9a7400; --s5: #b5386b; --s6: #4c6a78; --s7: #6b5b3e; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #15181d; --ink: #e6e8eb; --soft: #a0a8b4; --line: #363c46;
  --panel: #1d2128; --good: #5cc98a; --bad: #ff8a80; --open: #e5b454;
  --s0: #74aef0; --s1: #f29a63; --s2: #6fcf9f;
  --s3: #c99ae8; --s4: #dcb83f; --s5: #f088b0; --s6: #9dbccb; --s7: #c8b48c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.4rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, ol, ul, dl { max-width: 46rem; }
.soft { color: var(--soft); }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .92rem; min-width: 24rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { padding: .35rem .9rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
thead th.number { white-space: normal; }
a { color: inherit; }
tbody th { font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { font-weight: 650; white-space: nowrap; }
.not-applicable { color: var(--soft); font-weight: 400; }
.pass, .held { color: var(--good); }
.fail, .violated { color: var(--bad); } .unknown, .undecided { color: var(--open); }
.headline { font-size: 1.15rem; padding: .6rem .9rem; background: var(--panel); border-left: .35rem solid; }
.headline span { color: var(--ink); }
details { margin: .75rem 0; padding: .5rem .9rem; background: var(--panel); }
summary { cursor: pointer; font-weight: 550; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: .9em ui-monospace, "Cascadia Code", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
figure { margin: 1.25rem 0 1.75rem; } figcaption { color: var(--soft); font-size: .92rem; max-width: 52rem; }
figcaption strong { color: var(--ink); font-weight: 600; }
.spacetime { display: block; width: 100%; height: auto; font-size: 12px; }
.spacetime text { fill: var(--ink); text-anchor: middle; stroke: var(--panel); stroke-width: 4px; paint-order: stroke; }
.spacetime .node { text-anchor: start; font-weight: 600; }
.spacetime .seq { fill: var(--soft); font-size: 11px; }
.spacetime .message.wrong { fill: var(--bad); font-weight: 650; }
.lifeline { stroke: var(--line); stroke-width: 2; } .arrow { stroke: var(--soft); stroke-width: 1.5; }
.arrow.wrong, .cross { stroke: var(--bad); stroke-width: 2.4; } .arrow.never { stroke-dasharray: 6 4; }
.arrowhead { fill: var(--soft); } .arrowhead.wrong { fill: var(--bad); } .cross { fill: none; }
.spacetime .publish { fill: var(--s0); stroke: var(--s0); stroke-width: 2; }
.spacetime .deliver { fill: var(--paper); stroke: var(--s0); stroke-width: 2; }
.spacetime .deliver.wrong { stroke: var(--bad); stroke-width: 2.6; }
figure svg, figure img { display: block; width: 100%; max-width: 52rem; height: auto; }
figure img { background: #fff; padding: .5rem; }
footer { margin-top: 3rem; color: var(--soft); font-size: .9rem; }
@media screen and (max-width: 40rem) { main { padding: 1.2rem .8rem 3rem; } h1 { font-size: 1.4rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dt { margin-top: .5rem; } th, td { padding-right: .6rem; }
  table { min-width: 0; } figure { overflow-x: auto; } figure svg, figure img { min-width: 34rem; }
  .stacked, .stacked caption, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; }
  .stacked thead { display: none; } .stacked tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .stacked th, .stacked td { border: 0; padding: .1rem 0; overflow-wrap: anywhere; }
  .stacked td::before { content: attr(data-label) " "; color: var(--soft); } }
@media print { body { background: #fff; font-size: 11pt; } main { max-width: none; padding: 0; }
  h2 { break-before: auto; } figure, table, details { break-inside: avoid; } .wide { overflow: visible; } }
"""

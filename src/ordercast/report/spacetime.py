"""A violation as a space-time diagram: a line a node, time to the right, an arrow a message, the wrong one in red."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.report.html import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ordercast.verify.verdict import Witness, WitnessEvent

_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 70, 30, 32
_STEP, _ROW = 84, 74
_DOT = 6
_MOST_EVENTS = 40
"""With more, a drawing could not be read; the words of the story stay."""

Places = dict["WitnessEvent", tuple[int, int]]
"""Event to its column and its row."""


def diagram(name: str, witness: Witness) -> Markup:
    """The drawing; nothing for a story that has no events, or too many of them."""
    events = _in_time(witness.events)
    if not 1 < len(events) <= _MOST_EVENTS:
        return Markup("")
    nodes = list(dict.fromkeys(event.node for event in events))
    places = {event: (column, nodes.index(event.node)) for column, event in enumerate(events)}
    width, height = _LEFT + _STEP * (len(events) - 1) + _RIGHT, _TOP + _ROW * (len(nodes) - 1) + _BOTTOM
    parts = [
        *(_lifeline(node, row, width) for row, node in enumerate(nodes)),
        *(_arrow(name, one, other, witness, places) for one, other in _arrows(events)),
        *(_event(event, witness, places) for event in events),
    ]
    words = f"Space-time diagram: {'; '.join(witness.story)}"
    size = {"viewBox": f"0 0 {width} {height}", "style": f"min-width: {_least_width(width)}px; max-width: {width}px"}
    drawing = tag("svg", tag("title", words), _heads(name), *parts, role="img", class_="spacetime", **size)
    return tag("div", drawing, class_="wide")


def _in_time(events: Sequence[WitnessEvent]) -> list[WitnessEvent]:
    """An order in which every node goes through its own history, and messages are published before they are delivered.

    Where both cannot be had, because that is what went wrong, every node's own history is kept.
    """
    left = sorted(events, key=lambda event: (event.seq is None, event.seq or 0, event.node, event.kind))
    placed: list[WitnessEvent] = []
    while left:
        chosen = next((event for event in left if not _waits(event, left)), left[0])
        left.remove(chosen)
        placed.append(chosen)
    return placed


def _waits(event: WitnessEvent, left: Sequence[WitnessEvent]) -> bool:
    """Whether something that is not placed yet comes before this event."""
    if event.seq is None:
        return any(other.seq is not None for other in left)  # What never came, never came until the end.
    for other in left:
        if other.node == event.node and other.seq is not None and other.seq < event.seq:
            return True
        if event.kind == "deliver" and other.kind == "publish" and other.message == event.message:
            return True
    return False


def _arrows(events: Sequence[WitnessEvent]) -> list[tuple[WitnessEvent, WitnessEvent]]:
    """From each publication to the deliveries of its message at other nodes."""
    published = {event.message: event for event in events if event.kind == "publish"}
    return [
        (published[event.message], event)
        for event in events
        if event.kind == "deliver" and event.message in published and published[event.message].node != event.node
    ]


def _is_wrong(event: WitnessEvent, witness: Witness) -> bool:
    return event.kind == "deliver" and event.node == witness.node and event.message == witness.wrong


def _at(place: tuple[int, int]) -> tuple[float, float]:
    column, row = place
    return _LEFT + _STEP * column, _TOP + _ROW * row


def _least_width(width: int) -> int:
    """A small diagram fits on a phone; a large one is scrolled before its letters are too small to read."""
    return min(width, 280) if width <= 480 else min(int(width * 0.7), 560)


def _lifeline(node: str, row: int, width: int) -> Markup:
    _, y = _at((0, row))
    line = tag("line", x1=str(_LEFT - 16), x2=str(width - 12), y1=f"{y}", y2=f"{y}", class_="lifeline")
    return tag("g", line, tag("text", _short(node, 11), x="4", y=f"{y + 4}", class_="node"))


def _arrow(name: str, start: WitnessEvent, end: WitnessEvent, witness: Witness, places: Places) -> Markup:
    """Ends at the rim of the dot, so that its head is seen."""
    (x1, y1), (x2, y2) = _at(places[start]), _at(places[end])
    length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1.0)
    back = (_DOT + 3) / length
    wrong = _is_wrong(end, witness)
    attributes = {
        "x1": f"{x1:.1f}", "y1": f"{y1:.1f}",
        "x2": f"{x2 - (x2 - x1) * back:.1f}", "y2": f"{y2 - (y2 - y1) * back:.1f}",
        "class_": f"arrow{' wrong' if wrong else ''}{' never' if end.seq is None else ''}",
        "marker_end": f"url(#{name}-{'wrong' if wrong else 'head'})",
    }  # fmt: skip
    return tag("line", **attributes)


def _event(event: WitnessEvent, witness: Witness, places: Places) -> Markup:
    """A full dot where a message was published, a ring where it was delivered, a cross where it never was."""
    x, y = _at(places[event])
    wrong = _is_wrong(event, witness)
    kind = f"{event.kind}{' wrong' if wrong else ''}"
    if event.seq is None:
        d = f"M{x - _DOT} {y - _DOT}l{2 * _DOT} {2 * _DOT}m0 {-2 * _DOT}l{-2 * _DOT} {2 * _DOT}"
        mark, under = tag("path", d=d, class_="cross wrong"), "never delivered"
    else:
        mark, under = tag("circle", cx=f"{x}", cy=f"{y}", r=f"{_DOT}", class_=kind), f"seq {event.seq}"
    above = tag(
        "text", _short(event.message, 13), x=f"{x}", y=f"{y - 12}", class_=f"message{' wrong' if wrong else ''}"
    )
    below = tag("text", under, x=f"{x}", y=f"{y + 21}", class_="seq")
    return tag("g", tag("title", f"{event.node}: {event.kind} {event.message}, {under}"), mark, above, below)


def _heads(name: str) -> Markup:
    """Heads of arrows; SVG has no shape that follows the colour of its line."""
    return tag("defs", *(_head(f"{name}-{kind}", kind) for kind in ("head", "wrong")))


def _head(id_: str, kind: str) -> Markup:
    shape = tag("path", d="M0 0L8 4L0 8z", class_=f"arrowhead {kind}")
    return tag("marker", shape, id=id_, viewBox="0 0 8 8", refX="7", refY="4", markerWidth="7", markerHeight="7",
               orient="auto-start-reverse")  # fmt: skip


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"

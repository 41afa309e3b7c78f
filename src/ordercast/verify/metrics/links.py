"""The links of an overlay that chooses them, before processes came or went and at the end, from its `link` rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.trace.schema import INFO_END
from ordercast.verify.metrics.overlay import natural
from ordercast.verify.metrics.values import LinkGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ordercast.verify.metrics.overlay import ToldOfTree

_ENDS = ("closed", "failed")
_ORDER = {"crash": 0, "leave": 0, "recover": 0, "join": 0}


def link_graph_of(rows: Sequence[ToldOfTree], *, one_clock: bool) -> LinkGraph | None:
    """None if no node told of a link."""
    if not any(row.kind == "link" for row in rows):
        return None
    changes = [row for row in rows if row.kind in _ORDER and INFO_END not in row.info]
    first_ns = min((row.time_ns for row in changes), default=None)
    before, there = _play([row for row in rows if first_ns is None or row.time_ns < first_ns])
    after, left = _play(rows)
    moved = one_clock and (bool(changes) or before != after)
    return LinkGraph(before=before if moved else [], after=after, nodes_before=there if moved else [], nodes_after=left)


def _play(rows: Sequence[ToldOfTree]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Links (from, to, state) and living nodes after all the rows."""
    links: dict[tuple[str, str], str] = {}
    nodes: dict[str, bool] = {}
    for row in sorted(rows, key=lambda row: (row.time_ns, row.node, row.seq)):
        if row.kind in ("crash", "leave") and INFO_END not in row.info:
            nodes[row.node] = False
            links = {pair: state for pair, state in links.items() if row.node not in pair}
        else:
            nodes[row.node] = True
        if row.kind == "link" and row.peer:
            if row.info.get("state", "") in _ENDS:
                links.pop((row.node, row.peer), None)
            else:
                links[row.node, row.peer] = row.info.get("state", "")
    living = sorted((name for name, alive in nodes.items() if alive), key=natural)
    return [(a, b, state) for (a, b), state in sorted(links.items())], living

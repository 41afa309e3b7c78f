"""Drawings of a tree of brokers: where everybody stood before the faults and at the end, and each repair in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ordercast.report.figures import DRAWING, STAND_INS, element, name_crashes
from ordercast.verify.metrics.overlay import natural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from ordercast.report.html import Markup
    from ordercast.verify.metrics.values import MeasuredRepair, TimelineMark, Topology

_WIDTH_IN = 8.2
_LEVEL_IN = 0.62
_SIDE_BY_SIDE = 9
"""Leaves up to which two trees fit beside each other."""
_NAMED_CLIENTS = 4
"""Clients of one broker that are drawn by name; more are a number."""
_BAR_IN = 0.32


class Spot(NamedTuple):
    """The place where a broker, or its clients, are drawn; `above` is the name it hangs from."""

    x: float
    depth: int
    above: str
    client: bool


def layout(parents: dict[str, str], clients: dict[str, str]) -> dict[str, Spot]:
    """Every leaf its own column, every inner broker above the middle of its children; several roots side by side."""
    below: dict[str, list[tuple[str, bool]]] = {}
    for node, parent in sorted(parents.items(), key=lambda item: natural(item[0])):
        below.setdefault(parent if parent in parents else "", []).append((node, False))
    for label, edge in _client_labels(clients).items():
        if edge in parents:
            below.setdefault(edge, []).append((label, True))
    spots: dict[str, Spot] = {}
    column = [0]

    def place(name: str, depth: int, above: str, client: bool) -> float:
        children = below.get(name, []) if not client and name not in spots else []
        spots[name] = Spot(0.0, depth, above, client)  # A place of its own before its children's: no circle is endless.
        centres = [place(child, depth + 1, name, is_client) for child, is_client in children if child not in spots]
        if centres:
            x = (centres[0] + centres[-1]) / 2
        else:
            x = float(column[0])
            column[0] += 1
        spots[name] = Spot(x, depth, above, client)
        return x

    for root, _ in below.get("", []):
        place(root, 0, "", False)
    for rest in sorted(set(parents) - set(spots), key=natural):
        if rest not in spots:
            place(rest, 0, "", False)
    return spots


def _client_labels(clients: dict[str, str]) -> dict[str, str]:
    """Labels of the clients, with the broker that each hangs from."""
    of_broker: dict[str, list[str]] = {}
    for client, edge in clients.items():
        of_broker.setdefault(edge, []).append(client)
    labels: dict[str, str] = {}
    for edge, names in of_broker.items():
        if len(names) <= _NAMED_CLIENTS:
            labels |= dict.fromkeys(names, edge)
        else:
            labels[f"{len(names)} clients of {edge}"] = edge
    return labels


def trees(name: str, topology: Topology, description: str, *, killed: Sequence[str] = ()) -> Markup:
    """The tree before and after; only one if there was no fault. Before, all are crossed that will be killed."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = [("before the first fault", topology.before, topology.clients_before)] if topology.repaired else []
    drawn.append(("at the end", topology.after, topology.clients_after))
    spots = [layout(parents, clients) for _, parents, clients in drawn]
    leaves = max(1 + max((spot.x for spot in one.values()), default=0.0) for one in spots)
    depth = max(max((spot.depth for spot in one.values()), default=0) for one in spots) + 1
    beside = len(drawn) == 1 or leaves <= _SIDE_BY_SIDE
    rows, columns = (1, len(drawn)) if beside else (len(drawn), 1)
    with mpl.rc_context(DRAWING):
        figure = Figure(
            figsize=(_WIDTH_IN, rows * (0.6 + _LEVEL_IN * (depth + bool(topology.dead)))), layout="constrained"
        )
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for axes, (title, _, _), placed, last in zip(panels, drawn, spots, (False, True)[-len(drawn) :], strict=True):
            gone = topology.dead if last else [*topology.dead, *killed]
            _draw_tree(axes, placed, gone, depth, detached=topology.dead if last else [])
            axes.set_title(title, fontsize=10)
        return element(figure, name, description)


def _draw_tree(axes: Axes, spots: dict[str, Spot], dead: Sequence[str], depth: int, *, detached: Sequence[str]) -> None:
    width = max((spot.x for spot in spots.values()), default=0.0)
    for spot in spots.values():
        if spot.above:
            above = spots[spot.above]
            style = ":" if spot.client else "-"
            axes.plot(
                (above.x, spot.x), (-above.depth, -spot.depth), style, color=STAND_INS["soft"], linewidth=1.1, zorder=1
            )
    for name, spot in spots.items():
        root = not spot.above and not spot.client
        _draw_node(axes, name, spot.x, -spot.depth, client=spot.client, dead=name in dead, root=root)
    for index, name in enumerate(detached):
        _draw_node(axes, name, index * max(width / max(len(detached), 1), 1.0), -depth, client=False, dead=True)
    axes.set_xlim(-0.8, max(width, len(detached) - 1) + 0.8)
    axes.set_ylim(-depth - 0.5 * bool(dead) + 0.4 * (not dead), 0.5)
    axes.set_axis_off()


def _draw_node(axes: Axes, name: str, x: float, y: float, *, client: bool, dead: bool, root: bool = False) -> None:
    colour = "bad" if dead else "s2" if client else "s0"
    shape = "square,pad=0.25" if client else "round,pad=0.35"
    words = f"{'✕ ' if dead else ''}{name}{' (root)' if root else ''}"
    box = {"boxstyle": shape, "facecolor": STAND_INS["paper"], "edgecolor": STAND_INS[colour], "linewidth": 1.4}
    box["linewidth"] = 2.2 if root else 1.4
    box["linestyle"] = "--" if dead else "-"
    axes.text(
        x, y, words, ha="center", va="center", fontsize=8.5 if client else 10, bbox=box, zorder=2,
        color=STAND_INS["bad"] if dead else STAND_INS["ink"],
    )  # fmt: skip


def repair_timeline(
    name: str, repairs: Sequence[MeasuredRepair], marks: Sequence[TimelineMark], description: str
) -> Markup:
    """A line per node: from the loss of its parent or edge until it was attached, and until it was synchronised."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    nodes = sorted({repair.node for repair in repairs}, key=natural)
    with mpl.rc_context(DRAWING):
        figure = Figure(figsize=(_WIDTH_IN, 0.9 + _BAR_IN * len(nodes)), layout="constrained")
        axes = figure.subplots()
        _draw_bars(axes, nodes, repairs)
        for mark in (mark for mark in marks if mark.kind == "crash"):
            axes.axvline(mark.time_s, color=STAND_INS["bad"], linewidth=1.2)
        name_crashes(axes, marks)
        axes.set_yticks(range(len(nodes)), nodes)
        axes.set_ylim(len(nodes) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds since the first event")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return element(figure, name, description)


def _draw_bars(axes: Axes, nodes: Sequence[str], repairs: Sequence[MeasuredRepair]) -> None:
    shown: set[str] = set()

    def bar(row: int, start_s: float, length_ms: float, label: str, colour: str, alpha: float) -> None:
        legend = "_nolegend_" if label in shown else label
        shown.add(label)
        axes.barh(  # With an edge of its own: a few milliseconds in a long run would not be seen.
            row, length_ms / 1000, left=start_s, height=0.5, color=STAND_INS[colour], edgecolor=STAND_INS[colour],
            linewidth=1.5, alpha=alpha, label=legend,
        )  # fmt: skip

    for repair in repairs:
        row = nodes.index(repair.node)
        if repair.attached_ms is None:
            axes.plot(repair.start_s, row, ">", color=STAND_INS["bad"])
            continue
        kind = ("failover", "s2") if repair.client else ("until attached", "s0")
        bar(row, repair.start_s, repair.attached_ms, *kind, 1.0)
        if repair.synchronised_ms is not None and repair.synchronised_ms > repair.attached_ms:
            since_s = repair.start_s + repair.attached_ms / 1000
            bar(row, since_s, repair.synchronised_ms - repair.attached_ms, "until synchronised", "s0", 0.4)

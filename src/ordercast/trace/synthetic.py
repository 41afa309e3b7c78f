"""Traces of any size that keep causal (or total) order by construction, with as many violations put in as asked for.

Time goes in windows. In each, some publishers publish one message each, having delivered all of the windows before and
nothing of this one; every node then delivers the messages of the window, in an order of its own (or, for total order,
all in the same). So everything in a window happened before everything in the next, and nothing else is ordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.store import Manifest, TraceError
from ordercast.trace.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

VIOLATIONS = ("fifo", "causal", "total", "duplicate", "lost", "invented")
TOPIC = "synthetic"
_WINDOW_NS = 1_000_000


@dataclass(frozen=True)
class TraceShape:
    """The shape of the trace to make."""

    nodes: int
    publishers: int
    deliveries: int
    """At least so many; all nodes deliver every message."""
    window: int = 10
    """Publishers that publish in the same window."""
    guarantee: str = "causal"
    seed: int = 0
    violations: tuple[tuple[str, int], ...] = ()
    """Of each kind, how many: one a node and place, far enough from all others not to touch them."""

    @property
    def windows(self) -> int:
        return -(-self.deliveries // (self.nodes * self.window))

    @property
    def reach(self) -> int:
        """How many windows a violation touches at most: up to its publisher's next message."""
        return -(-self.publishers // self.window) + 2


def write_synthetic(out: Path, shape: TraceShape) -> Path:
    """Write the run directory; its manifest lists under `options.injected` what was put in: kind, node, messages."""
    _expect_possible(shape)
    writer = RunWriter(out)
    try:
        plan = _Plan(shape)
        for node in range(shape.nodes):
            writer.write_table(plan.rows(node))
        return writer.finish(plan.manifest(out.name))
    except BaseException:
        writer.abort()
        raise


def _expect_possible(shape: TraceShape) -> None:
    if not 1 <= shape.window <= shape.publishers <= shape.nodes:
        raise TraceError("a synthetic trace needs at least one publisher a window, and as many nodes as publishers")
    if shape.guarantee not in ("causal", "total"):
        raise TraceError(f"a synthetic trace is causal or total, not {shape.guarantee!r}")
    wanted = sum(count for _, count in shape.violations)
    if wanted > shape.windows // shape.reach * shape.nodes:
        raise TraceError(f"no room for {wanted} violations in {shape.windows} windows of {shape.nodes} nodes")
    for kind, _ in shape.violations:
        if kind not in VIOLATIONS:
            raise TraceError(f"unknown violation {kind!r} (one of {', '.join(VIOLATIONS)})")
        if kind == "total" and (shape.guarantee != "total" or shape.window < 2 or shape.nodes < 2):
            raise TraceError("a violation of total order needs a trace of total messages, two a window, and two nodes")


class _Plan:
    """The plan of a trace: who publishes what, and where each node goes wrong."""

    def __init__(self, shape: TraceShape) -> None:
        self.shape = shape
        draw = np.random.default_rng(shape.seed)
        turns = np.arange(shape.windows * shape.window) % shape.publishers
        # Each publisher has its turn once before anybody has a second one; so a window has no publisher twice.
        self.publisher = (turns + draw.integers(shape.publishers)) % shape.publishers
        self.injected = self._injected(draw)
        width = len(str(self.publisher.size))
        self.names = [f"m{m:0{width}d}" for m in range(self.publisher.size)]
        self.words = pa.array(["publish", "deliver"]), pa.array([*self.names, *self._inventions()])

    def _injected(self, draw: np.random.Generator) -> list[tuple[str, int, int]]:
        """(kind, node, window): so far apart at a node that no two of them meet."""
        shape = self.shape
        wanted = [kind for kind, count in shape.violations for _ in range(count)]
        slots = shape.windows // shape.reach * shape.nodes
        places = draw.choice(slots, size=len(wanted), replace=False).tolist() if wanted else []
        return [
            (kind, place % shape.nodes, place // shape.nodes * shape.reach)
            for kind, place in zip(wanted, places, strict=True)
        ]

    def _inventions(self) -> list[str]:
        return [f"invented-{i}" for i, (kind, _, _) in enumerate(self.injected) if kind == "invented"]

    def rows(self, node: int) -> pa.Table:
        """The rows of one node, in order."""
        shape = self.shape
        order = self._order(node)
        self._spoil(node, order)
        flat = [np.concatenate((self._published(node, w), part)) for w, part in sorted(order.items())]
        spoiled = np.array(sorted(order), np.int64)
        event, window = self._events(node, spoiled, flat)
        kind = (event >= 0).astype(np.int32)
        message = np.where(event >= 0, event, ~event)
        step = np.arange(event.size) - np.searchsorted(window, window)
        # Messages take a tenth of a window, so that nobody delivers before the publication by the clock.
        moment = window * _WINDOW_NS + np.where(event >= 0, _WINDOW_NS // 10, 0) + step
        return _table(self, node, kind, message.astype(np.int32), moment, shape.guarantee)

    def _order(self, node: int) -> dict[int, Any]:
        """The windows that this node's violations touch, with the right order to begin with."""
        windows = {w + i for _, n, w in self.injected if n == node for i in range(self.shape.reach)}
        return {w: self._window(node, w) for w in sorted(windows)}

    def _window(self, node: int, window: int) -> Any:
        """Deliveries of the node in one window."""
        return self._all_windows(node, np.array([window]))[0]

    def _all_windows(self, node: int, windows: Any) -> Any:
        """For each window, the order in which the node delivers its messages: the least draw first."""
        shape = self.shape
        messages = windows[:, None] * shape.window + np.arange(shape.window)
        who = node if shape.guarantee == "causal" else 0
        keys = _scrambled(messages.astype(np.uint64), np.uint64(shape.seed), np.uint64(who))
        return np.take_along_axis(messages, np.argsort(keys, axis=1), axis=1)

    def _published(self, node: int, window: int) -> Any:
        first = window * self.shape.window
        mine = np.flatnonzero(self.publisher[first : first + self.shape.window] == node) + first
        return ~mine

    def _events(self, node: int, spoiled: Any, parts: list[Any]) -> tuple[Any, Any]:
        """All events of the node and their windows; `parts` stand in place of the windows `spoiled`."""
        shape = self.shape
        windows = np.arange(shape.windows)
        right = np.setdiff1d(windows, spoiled)
        delivered = self._all_windows(node, right)
        own = np.flatnonzero(self.publisher == node)
        by_window = np.zeros(shape.windows, np.int64)
        np.add.at(by_window, own // shape.window, 1)
        size = by_window + shape.window
        for w, part in zip(spoiled.tolist(), parts, strict=True):
            size[w] = part.size
        begin = np.cumsum(size) - size
        event = np.empty(int(size.sum()), np.int64)
        published = own[~np.isin(own // shape.window, spoiled)]
        event[begin[published // shape.window]] = ~published  # A node publishes at most once a window.
        at = (begin + by_window)[right][:, None] + np.arange(shape.window)
        event[at] = delivered
        for w, part in zip(spoiled.tolist(), parts, strict=True):
            event[begin[w] : begin[w] + part.size] = part
        return event, np.repeat(windows, size)

    def _spoil(self, node: int, order: dict[int, Any]) -> None:
        """Put this node's violations into its windows."""
        strangers = [i for i, (kind, _, _) in enumerate(self.injected) if kind == "invented"]
        for i, (kind, n, w) in enumerate(self.injected):
            if n != node:
                continue
            if kind == "duplicate":
                order[w] = np.append(order[w], order[w][0])
            elif kind == "lost":
                order[w] = order[w][1:]
            elif kind == "invented":
                order[w] = np.append(order[w], self.publisher.size + strangers.index(i))
            elif kind == "total":
                order[w] = order[w][np.r_[1, 0, 2 : order[w].size]]
            else:
                self._delay(order, w, after_own=kind == "fifo")

    def _delay(self, order: dict[int, Any], window: int, *, after_own: bool) -> None:
        """Let the first message of a window come late: after the publisher's next one, or one of the next window."""
        late, order[window] = order[window][0], order[window][1:]
        overtaking = late + self.shape.publishers if after_own else order[window + 1][0]
        until = int(overtaking) // self.shape.window
        place = int(np.flatnonzero(order[until] == overtaking)[0]) + 1
        order[until] = np.insert(order[until], place, late)

    def manifest(self, run: str) -> Manifest:
        shape = self.shape
        nodes = _nodes(shape.nodes)
        told = [[kind, nodes[node], str(window)] for kind, node, window in self.injected]
        return Manifest(
            run_id=run,
            protocol="synthetic",
            guarantee=shape.guarantee,
            seed=shape.seed,
            nodes=nodes,
            groups={TOPIC: nodes},
            clock="global",
            drained=True,
            records="app",
            options={"injected": told},
        )


def _nodes(count: int) -> list[str]:
    return [f"n{node:0{len(str(count - 1))}d}" for node in range(count)]


def _scrambled(a: Any, seed: Any, node: Any) -> Any:
    """Draws by identity: a function of message, seed and node (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        salt = seed * np.uint64(0xC2B2AE3D27D4EB4F) + node * np.uint64(0xD6E8FEB86659FD93)
        x = a * np.uint64(0x9E3779B97F4A7C15) + salt
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _table(plan: _Plan, node: int, kind: Any, message: Any, moment: Any, guarantee: str) -> pa.Table:
    rows = kind.size
    published = kind == 0
    name = _nodes(plan.shape.nodes)[node]
    kinds, names = plan.words

    def word(value: str, where: Any = None) -> Any:
        codes: Any = pa.array(np.zeros(rows, np.int32), mask=None if where is None else ~where)
        return pa.DictionaryArray.from_arrays(codes, pa.array([value]))

    given = {
        "run": word("synthetic"),
        "node": word(name),
        "seq": pa.array(np.arange(rows)),
        "kind": pa.DictionaryArray.from_arrays(pa.array(kind), kinds),
        "time_ns": pa.array(moment),
        "msg": pa.DictionaryArray.from_arrays(pa.array(message), names),
        "topic": word(TOPIC, published),
        "guarantee": word(guarantee, published),
    }
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(rows, field.type)
        for field in EVENT_SCHEMA
    ]
    return pa.table(columns, schema=EVENT_SCHEMA)

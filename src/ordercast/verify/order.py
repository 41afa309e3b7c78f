"""Happened-before between the messages of a run, as its scope and its order scope define it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ordercast.trace.store import TraceError
from ordercast.verify.kernels.happened import prune, publications, split_logs
from ordercast.verify.kernels.lines import rows_by_line
from ordercast.verify.past import whole_past

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest
    from ordercast.verify.duties import Duties
    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.members import Publications
    from ordercast.verify.past import HappenedBefore

SCOPES = ("topic", "global")
ORDER_SCOPES = ("session", "key")


@dataclass(frozen=True, slots=True)
class Scopes:
    """Along which logs causal order runs, and along which lines program order does."""

    causal: str
    order: str


class DeliveryOrder(NamedTuple):
    """Happened-before, and the arrays of columns.Arrays that it was found in."""

    past: HappenedBefore
    arrays: dict[str, Any]


def scopes_of(manifest: Manifest | None, path: str, scope: str | None, order_scope: str | None) -> Scopes:
    """The scopes that the caller asked for, or else those of the run; a foreign trace is judged by the strictest."""
    causal = scope or (manifest.scope if manifest else "global")
    order = order_scope or (manifest.order_scope if manifest else "session")
    if causal not in SCOPES:
        raise TraceError(f"{path}: unknown scope {causal!r} (topic or global)")
    if order not in ORDER_SCOPES:
        raise TraceError(f"{path}: unknown order_scope {order!r} (session or key)")
    return Scopes(causal, order)


@dataclass(frozen=True, slots=True)
class Affecting:
    """Which publishers' messages affect what a receiver publishes after it delivered them: `bound[receiver, pub]`."""

    bound: np.ndarray[Any, np.dtype[np.bool_]]
    pub: Ints


def affecting(causes: dict[str, list[str]] | None, nodes: list[str], node: Ints, pub: Ints) -> Affecting | None:
    """Localized causes, by numbers. Who is not named is affected by nobody but itself."""
    if causes is None:
        return None
    number = {name: i for i, name in enumerate(nodes)}
    bound = np.eye(len(nodes), dtype=bool)
    for name, others in causes.items():
        for other in others:
            if name in number and other in number:
                bound[number[name], number[other]] = True
    return Affecting(bound[np.ix_(node, node)], pub)


def happened_before(
    ev: Ints, off: Offsets, duties: Duties, scopes: Scopes, published: Publications, affects: Affecting | None = None
) -> DeliveryOrder:
    """Cut the logs as the scope says, and find each message's predecessors."""
    log, log_off = ev, off
    if affects is not None:
        receiver = np.repeat(np.arange(off.size - 1), np.diff(off))
        kept = (ev < 0) | affects.bound[receiver, affects.pub[np.maximum(ev, 0)]] if ev.size else np.zeros(0, bool)
        ev, off = ev[kept], np.concatenate(([0], np.cumsum(kept)))[off].astype(np.int64)
        log, log_off = ev, off
    if scopes.causal == "topic":
        log, log_off = split_logs(ev, off, duties.topic, len(duties.topics))
    chain, at, prev, begin = publications(log, log_off, duties.topic.size)
    if scopes.order == "key":
        line_off, lines = duties.key_off, _lines(chain, duties)
        prev, edge_off, edges = rows_by_line(
            log, log_off, chain, at, prev, begin, line_off, lines, int(lines.max(initial=-1)) + 1
        )
    else:
        line_off, lines = np.arange(chain.size + 1), chain
        edge_off, edges = prune(log, chain, at, begin, log_off.size - 1)
    arrays = {"log": log, "log_off": log_off, "chain": chain, "at": at, "line_off": line_off, "lines": lines}
    return DeliveryOrder(whole_past(published.pub, published.place, prev, edge_off, edges), arrays)


def _lines(chain: Ints, duties: Duties) -> Ints:
    """Of each message: its publisher's log together with each of its keys. Keys belong to one topic each."""
    publisher = np.repeat(chain, np.diff(duties.key_off)).astype(np.int64)
    pairs = publisher * max(duties.key_topic.size, 1) + duties.keys
    line: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
    return line

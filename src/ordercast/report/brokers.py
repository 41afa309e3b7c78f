"""The part of a run's page that is about a tree of brokers: its shape, its repairs, its clients and their replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.report import rows
from ordercast.report.html import Markup, figure, table, tag
from ordercast.report.story import killed
from ordercast.report.story import roots as tops
from ordercast.report.trees import repair_timeline, trees
from ordercast.verify.metrics.overlay import natural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ordercast.verify.metrics.values import ReplicaDigest, RunMetrics

_MOST_REPAIRS = 60
_MOST_BROKERS = 120
"""With more, a drawing of the tree could not be read."""


def broker_sections(name: str, metrics: RunMetrics, *, drawn: bool) -> list[Markup]:
    """Topology, repairs and replicas, as far as the run recorded them; `drawn`: with figures."""
    parts: list[Markup] = []
    if metrics.topology is not None and drawn and len(metrics.topology.before) <= _MOST_BROKERS:
        parts += [tag("h3", "Topology"), _topology(name, metrics)]
    if metrics.repairs and drawn and metrics.duration_s is not None:
        parts += [tag("h3", "Repairs"), _repairs(name, metrics)]
    if metrics.digests:
        parts += [tag("h3", "Replicas"), _replicas(metrics.digests)]
    return parts


def _topology(name: str, metrics: RunMetrics) -> Markup:
    topology = metrics.topology
    assert topology is not None
    roots = [broker for broker, parent in topology.after.items() if not parent]
    words = f"{len(topology.after)} brokers at the end, root {', '.join(roots) or 'none'}"
    words += f"; down: {_with_root(topology.dead, metrics)}" if topology.dead else ""
    words += f"; clients {len(topology.clients_after)}" if topology.clients_after else ""
    astray = [client for client, edge in topology.clients_after.items() if edge not in topology.after]
    words += f"; last seen at a broker that is down: {', '.join(astray)}" if astray else ""
    gone = [broker for broker in killed(metrics) if broker in topology.before]
    back = [broker for broker in gone if broker not in topology.dead]
    words += f"; killed, and back: {_with_root(back, metrics)}" if back else ""
    title = "The tree of brokers"
    return figure(trees(f"{name}-tree", topology, f"{title}: {words}", killed=gone), title, words)


def _with_root(brokers: Sequence[str], metrics: RunMetrics) -> str:
    return ", ".join(f"{broker} (which was the root)" if broker in tops(metrics) else broker for broker in brokers)


def _repairs(name: str, metrics: RunMetrics) -> Markup:
    ended = [repair for repair in metrics.repairs if repair.attached_ms is not None]
    brokers = sum(not repair.client for repair in metrics.repairs)
    words = (
        f"repairs of brokers: {brokers}, failovers of clients: {len(metrics.repairs) - brokers}, ended: {len(ended)}"
    )
    title = "Repairs and failovers in time"
    crashed = metrics.topology.before if metrics.topology else {}
    marks = [mark for mark in metrics.marks if mark.node in crashed]
    drawing = repair_timeline(f"{name}-repairs", metrics.repairs[:_MOST_REPAIRS], marks, f"{title}: {words}")
    return figure(drawing, title, words)


def repair_table(metrics: RunMetrics) -> Markup:
    cells = rows.repairs(metrics)
    caption = "Who lost whom, and what it took"
    caption += f"; the first {_MOST_REPAIRS} of {len(cells)}" if len(cells) > _MOST_REPAIRS else ""
    return table(caption, *rows.known_columns(rows.REPAIR_HEADERS, cells[:_MOST_REPAIRS]), numeric_from=3)


def _replicas(digests: Sequence[ReplicaDigest]) -> Markup:
    """A row a replica; those that differ from the others of their topic stand out."""
    by_topic: dict[str, set[str]] = {}
    for digest in digests:
        by_topic.setdefault(digest.topic, set()).add(digest.digest)
    cells = [
        (digest.topic or "all", digest.node, tag("code", digest.digest), _equal(len(by_topic[digest.topic])))
        for digest in sorted(digests, key=lambda one: (one.topic, natural(one.node)))
    ]
    caption = "Last recorded state of each replica; only replicas of one topic can be compared"
    return table(caption, ("topic", "replica", "digest", "replicas of this topic"), cells, numeric_from=4)


def _equal(different: int) -> Markup:
    words, kind = ("equal", "pass") if different == 1 else (f"{different} different states", "fail")
    return tag("span", words, class_=f"verdict {kind}")

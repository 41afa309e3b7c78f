"""Answers `ordercast explain`: where a publication is at this broker, and what it waits for."""

from __future__ import annotations

from typing import Any

from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsState
from ordercast.core.ids import Origin, plain_origin
from ordercast.pubsub.publications import Publication, PublicationId


def explain(topics: TopicsState, orphans: Orphans, message_id: str) -> dict[str, Any]:
    """`state` is stable, logged, pending, held, orphan or unknown; the other entries say why."""
    for topic in sorted({*topics.nodes, *orphans.waiting, *orphans.closing}):
        head, found, number = message_id.rpartition(f"/{topic}#")
        if not found or not number.isdigit():
            continue
        kept = [store.entries for store in orphans.closing.get(topic, {}).values()]
        for queue in [orphans.waiting.get(topic, ()), *kept]:
            if any(entry.id == message_id for entry in queue):
                return {"message": message_id, "topic": topic, "state": "orphan"}
        node = topics.nodes.get(topic)
        if node is not None:
            pair = (_origin_in(node, Origin(head)), int(number))
            return {"message": message_id, "topic": topic, **_at(topics, node, pair)}
    return {"message": message_id, "state": "unknown"}


def _origin_in(node: TopicNode, plain: Origin) -> Origin:
    """The session's name here: people leave its ticket out (BRK-F1). A folded one has no name any more."""
    known = {*node.have.low, *node.have.extras, *node.pending.numbers, *node.hold.of}
    return next((origin for origin in sorted(known) if plain_origin(origin) == plain), plain)


def _at(topics: TopicsState, node: TopicNode, pair: PublicationId) -> dict[str, Any]:
    origin, number = pair
    if number <= node.base.get(origin, 0):
        return {"state": "stable"}
    if pair in node.have:
        place = next(i for i, entry in enumerate(node.log) if (entry.origin, entry.number) == pair)
        holders = 1 + sum(pair in part for parts in node.holders.values() for part in parts)
        return {"state": "logged", "position": place, "brokers": holders}
    if pair in node.pending.entries:
        return {"state": "pending", **_pending(topics, node, pair)}
    held = node.hold.find(pair)
    if held is not None:
        return {"state": "held", "waits_for": _blockers(node, held)}
    return {"state": "unknown"}


def _pending(topics: TopicsState, node: TopicNode, pair: PublicationId) -> dict[str, Any]:
    covered = node.coverage(pair, node.local_coverage())
    names = {member for member, _ in covered}
    reports = node.reports.get(pair, {})
    return {
        "term": list(topics.tree.term),
        "covered": sorted(names),
        "missing": sorted(topics.book.live(node.topic) - names),
        "silent_children": sorted(
            topics.tree.children.get(child, str(child)) for child in node.down if child not in reports
        ),
        "channel": "root" if topics.tree.is_root else "live" if node.up_live else "not synchronised",
    }


def _blockers(node: TopicNode, held: Publication) -> list[str]:
    """Ids of the pending totals and of the own earlier publications that it waits for."""
    totals = [entry for entry in node.pending.entries.values() if not set(entry.keys).isdisjoint(held.keys)]
    own = [node.pending.entries[held.origin, number] for number in sorted(node.pending.numbers.get(held.origin, ()))]
    earlier = [entry for number, entry in node.hold.of[held.origin].items() if number < held.number]
    return list(dict.fromkeys(entry.id for entry in [*totals, *own, *earlier]))

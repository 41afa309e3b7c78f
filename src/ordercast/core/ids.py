"""Identifiers: nodes, topics, and the origin that keeps message ids unique across restarts."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", str)
Topic = NewType("Topic", str)

# A publisher in one life. A node that restarts without its state numbers its messages from 1 again, so it must not
# share an origin with its former self: "n3" is the first life of node n3, "n3~1" the one after its state was lost.
Origin = NewType("Origin", str)

_LIFE = "~"


def origin_of(node: NodeId, incarnation: int) -> Origin:
    """The origin of what `node` publishes in its `incarnation`-th life, counted from 0."""
    return Origin(f"{node}{_LIFE}{incarnation}" if incarnation else node)


def publisher_of(origin: Origin) -> NodeId:
    """The node behind an origin."""
    return NodeId(origin.partition(_LIFE)[0])


def valid_node(name: str) -> bool:
    """A node's name is printable, not empty, and cannot be mistaken for an origin or a message id."""
    return bool(name) and name.isprintable() and not set(name) & {_LIFE, "#", ";", ",", " "}

"""Identifiers: nodes, topics, and the origin that keeps message ids unique across restarts."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", str)
Topic = NewType("Topic", str)

# A publisher in one life. A node that restarts without its state numbers its messages from 1 again, so it must not
# share an origin with its former self: "n3" is the first life of node n3, "n3~1" the one after its state was lost.
Origin = NewType("Origin", str)

_LIFE = "~"
_TICKET = "."


def origin_of(node: NodeId, incarnation: int) -> Origin:
    """The origin of what `node` publishes in its `incarnation`-th life, counted from 0."""
    return Origin(f"{node}{_LIFE}{incarnation}" if incarnation else node)


def ticketed(origin: Origin, ticket: str) -> Origin:
    """The origin of a session that has the ticket of a broker (BRK-F1): "ann~3" with ticket "17.0.b2"."""
    return Origin(f"{origin}{'' if _LIFE in origin else f'{_LIFE}0'}{_TICKET}{ticket}") if ticket else origin


def plain_origin(origin: Origin) -> Origin:
    """The origin without its ticket: what people and traces call the session, from its first publication on."""
    life = origin.find(_LIFE)
    end = origin.find(_TICKET, life) if life >= 0 else -1
    return origin if end < 0 else Origin(origin[:end].removesuffix(f"{_LIFE}0"))


def ticket_of(origin: Origin) -> tuple[str, int] | None:
    """The broker incarnation that gave the session its ticket, and the ticket's number; None: it has none."""
    _, tilde, rest = origin.partition(_LIFE)
    if not tilde:
        return None
    _, _, ticket = rest.partition(_TICKET)
    number, _, issuer = ticket.partition(_TICKET)
    return (issuer, int(number)) if issuer and number.isascii() and number.isdecimal() else None


def publisher_of(origin: Origin) -> NodeId:
    """The node behind an origin."""
    return NodeId(origin.partition(_LIFE)[0])


def valid_node(name: str) -> bool:
    """A node's name is printable, not empty, and cannot be mistaken for an origin or a message id."""
    return bool(name) and name.isprintable() and not set(name) & {_LIFE, "#", ";", ",", " "}


LONGEST_BROKER = 128


def valid_broker(name: str) -> bool:
    """The name of a broker is also that of a directory; and nobody is to take it for a filter."""
    wild = "*" in name or ">" in name
    return valid_node(name) and len(name) <= LONGEST_BROKER and "/" not in name and not wild and name not in (".", "..")

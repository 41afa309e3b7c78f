"""Notices between LoCaMu nodes about groups and the tree: messages like all others, ordered like all others.

Spec: docs/protocols/locamu.md (LCM-E1 to LCM-E6, LCM-V1 to LCM-V7).
"""

from __future__ import annotations

from math import isqrt

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Packet
from ordercast.core.wire import NOT_DECODABLE

EVERYBODY = Topic("$all")
_ONE = "$to/"


def only(node: NodeId) -> Topic:
    """The topic whose one member is that node."""
    return Topic(_ONE + node)


def addressee(topic: Topic) -> NodeId:
    """The one member of such a topic; empty if it is none."""
    return NodeId(topic.removeprefix(_ONE)) if topic.startswith(_ONE) else NodeId("")


def is_internal(topic: Topic) -> bool:
    return topic.startswith("$")


def internal_origin(node: NodeId) -> Origin:
    """The origin of what the protocol at that node publishes: numbered apart from what its application does."""
    return Origin(f"{node}~$")


# What a message goes by: the list of its group's members and the tree, as one small number.


def tag_of(view: int, epoch: int) -> int:
    """Pairs of small numbers get small tags, and every pair another one (Cantor's way through the pairs)."""
    both = view + epoch
    return both * (both + 1) // 2 + epoch


def from_tag(tag: int) -> tuple[int, int]:
    """View and epoch."""
    both = (isqrt(8 * tag + 1) - 1) // 2
    epoch = tag - both * (both + 1) // 2
    return both - epoch, epoch


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """Of a message of the protocol itself."""


class MembershipAsk(_Content, frozen=True, tag=1):
    """LCM-E1: to the owner of a group: the publisher wants in, or out."""

    topic: Topic
    joins: bool


class MembersChange(_Content, frozen=True, tag=2):
    """LCM-E2: to everybody: the next list of the group's members has one more, or one less."""

    topic: Topic
    epoch: int
    node: NodeId
    joins: bool


class Installed(_Content, frozen=True, tag=3):
    """LCM-E4: to the owner: the publisher goes by this list from now on."""

    topic: Topic
    epoch: int


class Stable(_Content, frozen=True, tag=4):
    """LCM-E5: to everybody: nobody goes by older lists any more."""

    topic: Topic
    epoch: int


class Enter(_Content, frozen=True, tag=5):
    """LCM-V1: to the first node: somebody wants to become a leaf under the publisher."""

    node: NodeId


class Depart(_Content, frozen=True, tag=6):
    """LCM-V6: to the first node: the publisher leaves, and this is its last message."""


class TreeChange(_Content, frozen=True, tag=7):
    """LCM-V2, LCM-V6: to everybody: the next tree has one leaf more, or one less if there is no `under`."""

    number: int
    node: NodeId
    under: NodeId | None


class TreeSeen(_Content, frozen=True, tag=8):
    """LCM-V3, LCM-V6: to the first node: the publisher goes by this tree from now on."""

    number: int


class Settled(_Content, frozen=True, tag=9):
    """LCM-V3, LCM-V6: to everybody: nobody goes by older trees any more."""

    number: int


Content = MembershipAsk | MembersChange | Installed | Stable | Enter | Depart | TreeChange | TreeSeen | Settled

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Content)


def encode(content: Content) -> bytes:
    return _ENCODER.encode(content)


def decode(payload: bytes) -> Content | None:
    """None: this is no such thing."""
    try:
        content: Content = _DECODER.decode(payload)
    except NOT_DECODABLE:
        return None
    return content


# Packets between a leaf and the node it hangs on, before it is part of the tree and after.

Change = tuple[NodeId, NodeId | None]
"""A leaf and whom it joined under; None: it left."""


class Knock(Packet, frozen=True, tag=5):
    """LCM-V1, LCM-V7: let me in, or tell me that I am out."""

    leaves: bool = False


class Welcome(Packet, frozen=True, tag=6):
    """LCM-V4: what a node begins with: all that its parent knows and it can see."""

    changes: tuple[Change, ...]
    settled: int
    lists: dict[Topic, dict[int, tuple[int, ...]]]
    past: tuple[tuple[int, int, int], ...]
    """Streams: from, to, number."""


class Farewell(Packet, frozen=True, tag=7):
    """LCM-V7: nobody knows you any more."""

"""Announcements of a LoCaMu node about groups and the tree, sent as messages of the protocol itself.

Spec: docs/protocols/locamu.md (LCM-E1 to LCM-E5, LCM-V6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.protocols.locamu.membership.notices import Content, encode, internal_origin
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.parts import NodePart


class Announcements(NodePart):
    """Messages of the protocol itself that wait to be published, and how many were."""

    durable: ClassVar[tuple[str, ...]] = ("count", "silent")
    here: Neighbourhood

    def __init__(self) -> None:
        self.count = 0
        """How many messages of the protocol itself this node has published."""
        self.unsent: tuple[tuple[Topic, Content], ...] = ()
        """What is to be published before the event at hand ends."""
        self.silent = False
        """LCM-V6: whether this node has said its last word."""

    def tell(self, topic: Topic, content: Content) -> None:
        """Have this published before the event ends."""
        if not self.silent:
            self.unsent = (*self.unsent, (topic, content))

    def next(self) -> tuple[Message, Content]:
        """The next message to be published: like any other, but for its origin and that nobody delivers it."""
        (topic, content), *rest = self.unsent
        self.unsent = tuple(rest)
        self.count += 1
        origin = internal_origin(self.here.name)
        return Message(origin, self.count, topic, encode(content), Guarantee.CAUSAL), content

    def fall_silent(self) -> None:
        """LCM-V6: after its last word a node says nothing more."""
        self.silent = True

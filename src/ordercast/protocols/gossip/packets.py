"""Packets that members of a gossip group cast to each other."""

from __future__ import annotations

from ordercast.core.messages import Message, Packet
from ordercast.protocols.gossip.members import Gone, Heard


class Gossip(Packet, frozen=True, tag=1):
    """GSP-2: some of what goes round, and some of those who are there. The same packet for all targets of a round."""

    messages: tuple[Message, ...]
    ages: bytes
    """Of every message, in rounds."""
    members: tuple[Heard, ...] = ()
    gone: tuple[Gone, ...] = ()


PACKETS = (Gossip,)

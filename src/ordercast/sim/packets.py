"""What the runtime needs to know of a packet: the message in it, its bytes on the wire, its identity for draws."""

from __future__ import annotations

import zlib

from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec

_NO_PACKET = Packet()


class PacketFacts:
    """Facts of the packet asked for last. A machine relays one packet to many neighbours, so one entry is enough."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._packet: Packet = _NO_PACKET
        self._control = {}  # type: dict[str, list[tuple[str, str]]]
        self.msg: str | None = None
        self.payload_bytes = 0
        self.header_bytes = 0
        self.identity = 0
        self.info: list[tuple[str, str]] | None = None

    def look(self, packet: Packet) -> None:
        """Fill the attributes for `packet`."""
        if packet is self._packet:
            return
        self._packet = packet
        kind = type(packet).__name__
        field = packet.carries
        message: Message | None = getattr(packet, field) if field else None
        if message is None:
            self.msg, self.payload_bytes = None, 0
            self.info = self._control.setdefault(kind, [("packet", kind)])
            self.identity = zlib.crc32(kind.encode())
        else:
            self.msg, self.payload_bytes, self.info = message.id, len(message.payload), None
            self.identity = zlib.crc32(f"{kind} {self.msg}".encode())
        self.header_bytes = self._codec.size(packet) - self.payload_bytes

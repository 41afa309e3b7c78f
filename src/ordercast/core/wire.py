"""Packets as bytes: one codec for the simulator, which charges the true length, and for real sockets."""

from __future__ import annotations

from typing import Any

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet

FRAME_PREFIX_BYTES = 4
"""Every packet travels behind its length."""


class Codec:
    """Encodes and decodes the packet types of one protocol."""

    def __init__(self, packets: tuple[type[Packet], ...]) -> None:
        union: Any = packets[0] if packets else Packet
        for packet in packets[1:]:
            union = union | packet
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(union)

    def encode(self, packet: Packet) -> bytes:
        return self._encoder.encode(packet)

    def decode(self, frame: bytes | memoryview, peer: str) -> Packet:
        """The packet in `frame`, or a PeerError that blames the peer."""
        try:
            decoded: Packet = self._decoder.decode(frame)
        except msgspec.MsgspecError as error:
            raise PeerError(peer, f"sent a malformed packet: {error}") from None
        return decoded

    def size(self, packet: Packet) -> int:
        """Bytes on the wire, length prefix included."""
        return len(self._encoder.encode(packet)) + FRAME_PREFIX_BYTES

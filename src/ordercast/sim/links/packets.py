"""Facts about packets that the runtime needs: the message inside, the size on the wire, the identity for draws.

Draws must not depend on the number of a message: removing an earlier one would change it. What stays is when the
publication was asked for, so that is what the simulator writes into payloads, as far as it fits.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec

_NO_PACKET = Packet()
_STAMP = struct.Struct("<QI")


def payload_asked_at(time_ns: int, position: int, size: int) -> bytes:
    """A payload for the publication that came `position`-th at an instant of its node."""
    return _STAMP.pack(time_ns, position)[:size].ljust(size, b"\0")


def time_asked(message: Message) -> int | None:
    """The time at which a simulated application asked for this publication; None: the payload is too small to say."""
    return int(_STAMP.unpack_from(message.payload)[0]) if len(message.payload) >= _STAMP.size else None


class PacketFacts:
    """Facts of the packet asked for last. A machine relays one packet to many neighbours, so one entry is enough."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._packet: Packet = _NO_PACKET
        self._control: dict[str, list[tuple[str, str]]] = {}
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
            stamp = message.payload[: _STAMP.size]
            number = 0 if len(stamp) == _STAMP.size else message.number
            self.identity = zlib.crc32(stamp, zlib.crc32(f"{kind} {message.origin} {number}".encode()))
        self.header_bytes = self._codec.size(packet) - self.payload_bytes


class Traffic:
    """The bytes that a node has sent: copies of messages, and everything else apart."""

    __slots__ = ("control", "control_bytes", "copies", "header_bytes", "payload_bytes")

    def __init__(self) -> None:
        self.copies = 0
        self.header_bytes = 0
        """Of the copies, without their payloads."""
        self.payload_bytes = 0
        self.control = 0
        """Packets without a message: acknowledgements, requests, repairs."""
        self.control_bytes = 0


class Scales:
    """The weight of a packet for a bandwidth: its encoded length, or what the source of the protocol would count.

    By the source's count a copy is its payload and the machine's `tally.last`, which the machine sets before it sends.
    Packets without a message that the source does not count take their encoded length.
    """

    def __init__(self, codec: Codec, *, by_model: bool) -> None:
        self._codec = codec
        self._by_model = by_model
        self._packet: Packet = _NO_PACKET
        self._bytes = 0

    def weigh(self, packet: Packet, machine: Any, traffic: Traffic) -> int:
        """The size of a packet that `machine` is sending right now; counts it in `traffic`."""
        field = packet.carries
        message: Message | None = getattr(packet, field) if field else None
        if message is None:
            size = packet.model_bytes if self._by_model and packet.model_bytes is not None else self._encoded(packet)
            traffic.control += 1
            traffic.control_bytes += size
            return size
        payload = len(message.payload)
        header: int = machine.tally.last if self._by_model else self._encoded(packet) - payload
        traffic.copies += 1
        traffic.header_bytes += header
        traffic.payload_bytes += payload
        return header + payload

    def _encoded(self, packet: Packet) -> int:
        if packet is not self._packet:  # A machine relays one packet to many neighbours.
            self._packet = packet
            self._bytes = self._codec.size(packet)
        return self._bytes

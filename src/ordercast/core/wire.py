"""Packets as bytes: one codec for the simulator, which charges the true length, and for real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.messages import Packet
from ordercast.core.state import Value

FRAME_PREFIX_BYTES = 4
"""Every packet travels behind its length."""

NOT_DECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What a decoder raises about bytes that a stranger chose: its own errors, and those of text, numbers and nesting."""


class Encoded(Value):
    """Base of values that are bytes on the wire and on the disk only: these are made when somebody asks for them."""

    __slots__ = ()

    def encoded(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The value; a ValueError says what is wrong with the bytes."""
        raise NotImplementedError


class Codec:
    """Encodes and decodes the packet types of one protocol."""

    def __init__(self, packets: tuple[type[Packet], ...]) -> None:
        union: Any = packets[0] if packets else Packet
        for packet in packets[1:]:
            union = union | packet
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encoded)
        self.encode: Callable[[Packet], bytes] = self._encoder.encode
        """The packet as bytes. Not a method of ours, because it is called for every packet."""
        self.encode_into: Callable[[Packet, bytearray, int], None] = self._encoder.encode_into
        """The same, into a buffer from an offset on."""
        self.decode_bare: Callable[[bytes | bytearray | memoryview], Packet] = msgspec.msgpack.Decoder(
            union, dec_hook=_decoded
        ).decode
        """The packet in a frame, or one of NOT_DECODABLE, for loops that end with the first `malformed` one."""

    def decode(self, frame: bytes | memoryview, peer: str) -> Packet:
        """The packet in `frame`, or a PeerError that blames the peer."""
        try:
            return self.decode_bare(frame)
        except NOT_DECODABLE as error:
            raise malformed(peer, error) from None

    def size(self, packet: Packet) -> int:
        """Bytes on the wire, length prefix included."""
        return len(self._encoder.encode(packet)) + FRAME_PREFIX_BYTES


def malformed(peer: str, error: Exception) -> PeerError:
    """Blames the peer for bytes that are no packet."""
    return PeerError(peer, f"sent a malformed packet: {error}")


def _encoded(value: Any) -> bytes:
    if isinstance(value, Encoded):
        return value.encoded()
    raise InvariantError(f"{type(value).__name__} cannot be part of a packet")


def _decoded(kind: type, data: Any) -> Any:
    if issubclass(kind, Encoded) and isinstance(data, bytes):
        return kind.decoded(data)
    raise ValueError(f"a {kind.__name__} is bytes")

"""Datagrams: how a packet travels without a connection, and what is asked of one before it is believed.

    ┌───────────┬─────────────┬──────────┬────────────┬─────────────────────────────────┐
    │ magic (2) │ version (1) │ mac (16) │ length (2) │ header (length), part of a frame │      big-endian
    └───────────┴─────────────┴──────────┴────────────┴─────────────────────────────────┘

The mac is an HMAC over everything behind it, with a key that is made of the peer token: which cluster, who casts in
which life and from where, to whom, its number, and a packet frame as connections carry it, or a piece of one. So a
stranger's bytes are looked at no further than the mac, and nothing is remembered of them. Numbers grow for each
receiver; one that was there before, or that is far behind, is not taken again. What was cast to one place is not
believed at another.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterator

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.ids import valid_node
from ordercast.core.process import CAST_BYTES, Peer
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.wire.credentials import NODE
from ordercast.net.wire.frames import OVERHEAD_BYTES, packet_body

_MAGIC = b"oc"
_VERSION = 1
_MAC_BYTES = 16
_START = struct.Struct(">2sB")
_LENGTH = struct.Struct(">H")
_MAC_END = _START.size + _MAC_BYTES
_HEADER_AT = _MAC_END + _LENGTH.size
_STARTED = _START.pack(_MAGIC, _VERSION)
MOST_PIECES = 256
_SMALLEST_PIECE = -(-(CAST_BYTES + OVERHEAD_BYTES) // MOST_PIECES)
_TEXT_BYTES, _NUMBERS_BYTES = 5, 37
"""What texts and numbers of a header take at most, besides the letters."""
_LONGEST_NAME = 128
_WINDOW = 1024
"""By how many others of its sender a datagram may be overtaken, less one, and still be taken."""
_WINDOW_BITS = (1 << _WINDOW) - 1
_MOST_PEERS = 65_536
_MOST_INCOMPLETE = 256
"""Packets in pieces, of all senders together, that may wait for the rest."""
_MOST_ADDRESSES = 65_536


class DatagramHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of a datagram, which the mac proves together with the content."""

    cluster: str
    name: str
    life: int
    address: str
    """Where the sender listens."""
    to: str
    """The place that it was cast to, as IP address and port."""
    number: int
    """Larger with every datagram of this sender to this address."""
    piece: int = 0
    pieces: int = 1


class RefusedDatagramError(PeerError):
    """A datagram that is not believed; `why` is the counter's word for it."""

    def __init__(self, peer: str, why: str, reason: str) -> None:
        super().__init__(peer, reason)
        self.why = why


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DatagramHeader)


def datagram_key(token: bytes) -> bytes:
    """A key of its own: nothing that is signed in a handshake can pass for a datagram."""
    return hmac.digest(token, b"ordercast datagrams " + _STARTED, "sha256")


def seal(header: DatagramHeader, part: bytes, key: bytes) -> bytes:
    """The datagram, as it is sent."""
    said = _encoder.encode(header)
    content = b"".join((_LENGTH.pack(len(said)), said, part))
    return b"".join((_STARTED, _mac(key, content), content))


def unseal(data: bytes, key: bytes, peer: str) -> tuple[DatagramHeader, bytes]:
    """The header and the part of a frame, of somebody who knows the token; else a RefusedDatagramError."""
    if len(data) < _HEADER_AT or data[: _START.size] != _STARTED:
        raise RefusedDatagramError(peer, "garbage", "does not speak Ordercast")
    content = data[_MAC_END:]
    if not hmac.compare_digest(_mac(key, content), data[_START.size : _MAC_END]):
        raise RefusedDatagramError(peer, "forged", "does not know the token")
    end = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    try:
        header = _decoder.decode(content[_LENGTH.size : end])
    except NOT_DECODABLE:
        raise RefusedDatagramError(peer, "garbage", "sends a header that cannot be read") from None
    return header, content[end:]


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")[:_MAC_BYTES]


class DatagramSealer:
    """Numbers and seals what one process casts."""

    def __init__(self, me: Peer, cluster: str, key: bytes, datagram_bytes: int, first_number: int) -> None:
        """`first_number`: larger than every number of an earlier process of this name and life, such as the time."""
        self._me = me
        self._cluster = cluster
        self._key = key
        self._numbers: dict[str, int] = {}
        self._highest = first_number
        texts = sum(len(text.encode()) + _TEXT_BYTES for text in (cluster, me.name, me.address))
        self._piece_bytes = datagram_bytes - _HEADER_AT - _NUMBERS_BYTES - texts - _TEXT_BYTES

    def datagrams(self, to: str, frame: bytes) -> Iterator[bytes]:
        """The frame in as many datagrams as it takes."""
        me, cluster = self._me, self._cluster
        room = max(self._piece_bytes - len(to), _SMALLEST_PIECE)
        pieces = max(1, -(-len(frame) // room))
        for piece in range(pieces):
            header = DatagramHeader(cluster, me.name, me.life, me.address, to, self._next(to), piece, pieces)
            yield seal(header, frame[piece * room : (piece + 1) * room], self._key)

    def _next(self, to: str) -> int:
        numbers = self._numbers
        if to not in numbers:
            if len(numbers) >= _MOST_ADDRESSES:
                numbers.clear()  # All begin anew above everything that was used.
            numbers[to] = self._highest
        numbers[to] = number = numbers[to] + 1
        self._highest = max(self._highest, number)
        return number


class _Sender:
    """The receiver's knowledge of one process that casts."""

    __slots__ = ("highest", "peer", "seen")

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.highest = number
        self.seen = 1
        """Bit i: the number `highest - i` was there."""

    def takes(self, number: int) -> bool:
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << ahead | 1) & _WINDOW_BITS if ahead < _WINDOW else 1
            self.highest = number
            return True
        bit = 1 << -ahead if -ahead < _WINDOW else 0
        if not bit or self.seen & bit:
            return False
        self.seen |= bit
        return True


class Incoming:
    """Opens what arrives at one process. It remembers something only of those who know the token."""

    def __init__(self, me: Peer, cluster: str, key: bytes, is_here: Callable[[str], bool]) -> None:
        """`is_here`: whether what was cast to that place was cast to this process."""
        self._me = me
        self._cluster = cluster
        self._key = key
        self._is_here = is_here
        self._senders: dict[str, _Sender] = {}
        self._incomplete: dict[tuple[str, int, int], dict[int, bytes]] = {}
        """By sender, life and the number of the first piece; the oldest first."""

    def take(self, data: bytes, source: str) -> tuple[Peer, bytes] | None:
        """The sender and the encoded packet, once all its pieces are there; else None.

        A RefusedDatagramError unless it is new, meant for this process and of one of this cluster's nodes.
        """
        header, part = unseal(data, self._key, source)
        self._check(header, source)
        sender = self._known(header)
        if header.pieces > 1:
            whole = self._put_together(header, part)
            if whole is None:
                return None
            part = whole
        return sender.peer, packet_body(part, header.name)

    def _check(self, header: DatagramHeader, source: str) -> None:
        me = self._me
        if header.cluster != self._cluster:
            said = f"looks for cluster {header.cluster!r}, and this is {self._cluster!r}"
            raise RefusedDatagramError(source, "misdirected", said)
        if not self._is_here(header.to):
            raise RefusedDatagramError(source, "misdirected", f"looks for {header.to}, and this is {me.address}")
        if header.name == me.name or len(header.name) > _LONGEST_NAME or not valid_node(header.name):
            raise RefusedDatagramError(source, "garbage", f"has no proper name: {header.name[:_LONGEST_NAME]!r}")
        if not (0 <= header.piece < header.pieces <= MOST_PIECES):
            raise RefusedDatagramError(source, "garbage", f"sends piece {header.piece} of {header.pieces}")

    def _known(self, header: DatagramHeader) -> _Sender:
        """The sender, if this datagram of it is a new one."""
        sender = self._senders.get(header.name)
        if sender is None or sender.peer.life < header.life:
            return self._meet(header)
        if header.life < sender.peer.life:
            raise RefusedDatagramError(
                header.name, "replayed", f"is in life {header.life}, and was seen in a later one"
            )
        if not sender.takes(header.number):
            raise RefusedDatagramError(header.name, "replayed", f"sends number {header.number} again, or far too late")
        if sender.peer.address != header.address:
            sender.peer = _peer(header)
        return sender

    def _meet(self, header: DatagramHeader) -> _Sender:
        senders = self._senders
        senders.pop(header.name, None)
        if len(senders) >= _MOST_PEERS:
            del senders[next(iter(senders))]
        senders[header.name] = sender = _Sender(_peer(header), header.number)
        return sender

    def _put_together(self, header: DatagramHeader, part: bytes) -> bytes | None:
        key = header.name, header.life, header.number - header.piece
        there = self._incomplete.setdefault(key, {})
        there[header.piece] = part
        if sum(map(len, there.values())) > CAST_BYTES + OVERHEAD_BYTES:
            del self._incomplete[key]
            raise RefusedDatagramError(header.name, "oversized", f"casts a packet of more than {CAST_BYTES} bytes")
        if len(there) == header.pieces:
            del self._incomplete[key]
            return b"".join(there[piece] for piece in sorted(there))
        if len(self._incomplete) > _MOST_INCOMPLETE:
            del self._incomplete[next(iter(self._incomplete))]
        return None


def _peer(header: DatagramHeader) -> Peer:
    return Peer(NODE, header.name, header.life, header.address)

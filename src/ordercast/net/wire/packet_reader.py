"""Turns the bytes of a connection into packets, up to where they stop making sense."""

from __future__ import annotations

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.wire import NOT_DECODABLE, Codec, malformed
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.frames import GOODBYE, OVERHEAD_BYTES, PACKET, PIECE, Frame, FrameReader

Arrived = tuple[list[Packet], list[Frame], ConnectionEnd | None]
"""Packets, the frames that they came in if somebody wants these, and how the connection ends behind them if it does."""


class _TooLongError(PeerError):
    """A packet has more bytes than its sender may send."""


class PacketReader:
    """Decodes what one peer sends: frames, packets that come in several of them, and its farewell."""

    def __init__(self, peer: str, codec: Codec, max_frame_bytes: int, max_packet_bytes: int, *, whole: bool) -> None:
        """`whole`: the frames of packets are wanted, to be passed on."""
        self.frames = FrameReader(peer, max_frame_bytes, whole=whole)
        self._peer = peer
        self._decode = codec.decode_bare
        self._most_bytes = max_packet_bytes
        self._header = OVERHEAD_BYTES if whole else 0
        self._pieces: list[Frame] = []
        """Frames of a packet that is not complete."""
        self._piece_bytes = 0

    def feed(self, data: bytes) -> Arrived:
        """What `data` completes."""
        return self._packets(self.frames.feed(data))

    def filled(self, count: int) -> Arrived:
        """What so many more bytes of a long frame complete."""
        return self._packets(self.frames.filled(count))

    def _packets(self, arrived: list[tuple[int, Frame]]) -> Arrived:
        packets: list[Packet] = []
        frames: list[Frame] = []
        end: ConnectionEnd | None = None
        decode, pieces, header = self._decode, self._pieces, self._header
        try:
            for kind, frame in arrived:
                if kind == PACKET:
                    if pieces:
                        body, whole = self._complete(frame)
                        packets.append(decode(body))
                        frames.append(whole)
                    elif header:
                        packets.append(decode(memoryview(frame)[header:]))
                        frames.append(frame)
                    else:
                        packets.append(decode(frame))
                elif kind == PIECE:
                    self._keep_piece(frame)
                elif kind == GOODBYE:
                    end = ConnectionEnd("goodbye", bytes(frame[header:]).decode(errors="replace"), gone=False)
                    break
        except _TooLongError as error:
            end = ConnectionEnd("long", error.reason)
        except PeerError as error:
            end = ConnectionEnd("garbage", error.reason)
        except NOT_DECODABLE as error:
            end = ConnectionEnd("garbage", malformed(self._peer, error).reason)
        if end is None and self.frames.broken is not None:
            end = ConnectionEnd("garbage", self.frames.broken.reason)
        return packets, frames, end

    def _keep_piece(self, frame: Frame) -> None:
        self._pieces.append(frame)
        self._piece_bytes += len(frame) + OVERHEAD_BYTES
        if self._piece_bytes > self._most_bytes:
            reason = f"sends a packet of more than {self._most_bytes} bytes (max_packet_bytes)"
            raise _TooLongError(self._peer, reason)

    def _complete(self, last: Frame) -> tuple[bytes, bytes]:
        """The packet that came in pieces, and all its frames."""
        pieces = [*self._pieces, last]
        self._pieces.clear()
        self._piece_bytes = 0
        return b"".join([piece[self._header :] for piece in pieces]), b"".join(pieces)

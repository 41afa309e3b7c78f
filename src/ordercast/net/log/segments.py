"""The format of a log's segment, and what it still says where some of its bytes are wrong.

    ordercast log 4⏎       the first 16 bytes; the number is that of the format
    ┌────────────┬────────────┬────────────┬───────────┬─────────────────────┬──────┐
    │ marker (4) │ number (4) │ length (4) │ crc32 (4) │ crc32 of these (4)  │ body │      one frame; big-endian
    └────────────┴────────────┴────────────┴───────────┴─────────────────────┴──────┘

Frame 0 says whose log this is and how many of the next frames are its beginning. They were on the disk before the
segment had a name. Every later frame is one write. Frames are numbered without gaps, so the first readable one behind a
damaged place tells how many were lost there. All frames of a segment carry the marker that was drawn for it: a reader
finds the next frame by it, and nothing that somebody published can pass for a frame.

**Torn or damaged.** A process that dies, or a disk that is full, leaves the first bytes of a frame at the end. A
machine that dies in a write may leave zeros in place of some sectors. So the end of a segment is torn, and may be cut
off, if no readable frame lies behind it, the beginning is whole, and it is shorter than its frame should be or has a
sector of zeros. Everything else is damage: a wrong byte anywhere, in a last frame of full length too, because what it
said may have been acknowledged.
"""

from __future__ import annotations

import re
import struct
import zlib

import msgspec

from ordercast.core.wire import NOT_DECODABLE

FORMAT = 4
PREAMBLE = f"ordercast log {FORMAT}\n".encode()
_ANY_PREAMBLE = re.compile(rb"ordercast log (\d+)\n")
_HEADER = struct.Struct(">IIIII")
_CHECKED = struct.Struct(">IIII")
_MARKER = struct.Struct(">I")
_SECTOR = 512
_LEAST_ZEROS = 16
"""So many zeros at an edge of a frame count as a part of a sector that was never written; fewer may be chance."""


class Beginning(msgspec.Struct, frozen=True, array_like=True):
    """Frame 0 of a segment: of which kind of log it is, and how many frames were written together with it."""

    kind: str
    frames: int
    """How many frames after this one were written with it."""


class Damage(msgspec.Struct, frozen=True):
    """A range of bytes in a segment that cannot be read, and how many frames are gone with it."""

    start: int
    end: int
    writes: int
    """How many frames are gone; at the end of a segment, at least so many."""


class SegmentRecord(msgspec.Struct, frozen=True):
    """The body of a frame, and where in the file the frame begins."""

    place: int
    body: bytes


class Segment(msgspec.Struct):
    """A segment as far as it could be read: its records, and its damage."""

    marker: int = 0
    kind: str = ""
    records: list[SegmentRecord] = []
    """All readable ones, those of the beginning first."""
    beginning_bytes: int = 0
    whole: int = 0
    """So many bytes are frames; behind them the end is torn."""
    next_number: int = 0
    damage: list[Damage] = []


class _Frame(msgspec.Struct, frozen=True):
    start: int
    number: int
    end: int
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Beginning)


def frame(marker: int, number: int, body: bytes) -> bytes:
    checked = _CHECKED.pack(marker, number, len(body), zlib.crc32(body))
    return b"".join((checked, _MARKER.pack(zlib.crc32(checked)), body))


def begun(marker: int, kind: str, bodies: list[bytes]) -> bytes:
    """A segment that begins with these bodies."""
    all_bodies = [_encoder.encode(Beginning(kind, len(bodies))), *bodies]
    return PREAMBLE + b"".join(frame(marker, number, body) for number, body in enumerate(all_bodies))


def other_format(data: bytes) -> int | None:
    """The number of the format, if it is not this one."""
    found = _ANY_PREAMBLE.match(data)
    if found is None or found[0] == PREAMBLE or _marker_at(data, len(found[0])) is not None:
        return None
    return int(found[1][:9])


class Chain(msgspec.Struct):
    """Frames that follow one another from a place on, as far as they are whole."""

    bodies: list[bytes]
    end: int
    """Where the first byte is that belongs to none of them."""
    marker: int = 0
    next_number: int = 0
    short: bool = True
    """What is left is fewer bytes than a frame would need; otherwise it is none."""
    needed: int = _HEADER.size
    """So many bytes from `end` on would hold the next frame."""


def chain(data: bytes, place: int, *, most: int = 1 << 62) -> Chain:
    """The whole frames of one segment from `place` on. Raises nothing, whatever the bytes are."""
    found = Chain([], place)
    view = memoryview(data)
    while len(found.bodies) < most and len(data) - place >= _HEADER.size:
        header = _header_at(data, place)
        if header is None or (found.bodies and header[0] != found.marker):
            found.short = False
            return found
        marker, number, length, crc = header
        start = place + _HEADER.size
        found.needed = _HEADER.size + length
        if len(data) - start < length:
            return found
        if zlib.crc32(view[start : start + length]) != crc:
            found.short = False
            return found
        found.bodies.append(data[start : start + length])
        place = found.end = start + length
        found.marker, found.next_number, found.needed = marker, number + 1, _HEADER.size
    return found


def read(data: bytes) -> Segment:
    """Every readable frame. Raises nothing, whatever the bytes are."""
    return _SegmentReader(data).read()


class _SegmentReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._beginning = Beginning("", 0)
        self._segment = Segment()

    def read(self) -> Segment:
        data, segment = self._data, self._segment
        if not data.startswith(PREAMBLE):
            segment.damage.append(Damage(0, min(len(data), len(PREAMBLE)), 0))
        place = segment.whole = len(PREAMBLE)
        segment.marker = _find_marker(data)
        while place < len(data) or segment.next_number <= self._beginning.frames:
            found = self._frame_at(place) or self._frame_behind(place)
            if found is None:
                if not self._torn(place):
                    segment.damage.append(Damage(min(place, len(data)), len(data), 1))
                return segment
            if (found.start, found.number) != (place, segment.next_number):
                segment.damage.append(Damage(place, found.start, found.number - segment.next_number))
            self._take(found)
            place = found.end
        return segment

    def _take(self, found: _Frame) -> None:
        segment = self._segment
        if found.number > 0:
            segment.records.append(SegmentRecord(found.start, found.body))
        else:
            try:
                self._beginning = _decoder.decode(found.body)
            except NOT_DECODABLE:
                segment.damage.append(Damage(found.start, found.end, 1))
            segment.kind = self._beginning.kind
        if found.number <= self._beginning.frames:
            segment.beginning_bytes = found.end
        segment.whole, segment.next_number = found.end, found.number + 1

    def _frame_at(self, place: int) -> _Frame | None:
        """The frame there, if it is whole and not from before."""
        header = _header_at(self._data, place)
        if header is None:
            return None
        marker, number, length, crc = header
        start = place + _HEADER.size
        body = self._data[start : start + length]
        if len(body) < length or zlib.crc32(body) != crc:
            return None
        known = marker == self._segment.marker and number >= self._segment.next_number
        return _Frame(place, number, start + length, body) if known else None

    def _frame_behind(self, place: int) -> _Frame | None:
        """The first frame behind a place where there is none."""
        sought = _MARKER.pack(self._segment.marker)
        while (place := self._data.find(sought, place + 1)) >= 0:
            found = self._frame_at(place)
            if found is not None:
                return found
        return None

    def _torn(self, place: int) -> bool:
        data, segment = self._data, self._segment
        if segment.next_number <= self._beginning.frames:
            return False
        header = _header_at(data, place)
        length = header[2] if header is not None else 0
        return len(data) - place < _HEADER.size + length or _has_lost_sector(data, place)


def _header_at(data: bytes, place: int) -> tuple[int, int, int, int] | None:
    """Marker, number, length and checksum of the body, if there is a header that is whole."""
    checked = data[place : place + _CHECKED.size]
    if len(data) - place < _HEADER.size:
        return None
    (crc,) = _MARKER.unpack_from(data, place + _CHECKED.size)
    return _CHECKED.unpack(checked) if zlib.crc32(checked) == crc else None


def _marker_at(data: bytes, place: int) -> int | None:
    header = _header_at(data, place)
    return header[0] if header is not None else None


def _find_marker(data: bytes) -> int:
    """The marker of the first frame whose header can be read."""
    for place in range(len(PREAMBLE), len(data) - _HEADER.size + 1):
        marker = _marker_at(data, place)
        if marker is not None:
            return marker
    return 0


def _has_lost_sector(data: bytes, start: int) -> bool:
    """Whether a sector of the file, or the part of it that lies behind `start`, is zeros; or all there is."""
    for sector in range(start - start % _SECTOR, len(data), _SECTOR):
        part = data[max(start, sector) : sector + _SECTOR]
        if len(part) >= _LEAST_ZEROS and not any(part):
            return True
    return not any(data[start:])

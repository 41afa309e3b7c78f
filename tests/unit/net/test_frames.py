"""Frames: a stream comes apart where it was put together, however it is cut, and nonsense is named."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.net.wire.frames import (
    GOODBYE,
    GREETING_LIMIT,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    LONG_BYTES,
    OVERHEAD_BYTES,
    PACKET,
    PIECE,
    Frame,
    FrameReader,
    GreetingReader,
    framed_in_place,
    goodbye_frame,
    greeting_frame,
    packet_frame,
    packet_frames,
)


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(min_value=0), max_size=30))
def test_frames_do_not_depend_on_how_the_stream_is_cut(bodies: list[bytes], places: list[int]) -> None:
    sent = [packet_frame(body) for body in bodies] + [HEARTBEAT_FRAME, goodbye_frame("done")]
    reader = FrameReader("peer", 300)
    got = [frame for part in _cut(b"".join(sent), places) for frame in reader.feed(part)]
    assert got == [*((PACKET, frame) for frame in sent[:-2]), (HEARTBEAT, sent[-2]), (GOODBYE, sent[-1])]
    assert reader.broken is None


@given(st.binary(max_size=2000), st.lists(st.integers(min_value=0), max_size=10))
def test_no_stream_of_bytes_does_more_than_end_in_a_complaint(data: bytes, places: list[int]) -> None:
    reader = FrameReader("peer", 100)
    for part in _cut(data, places):
        for _, frame in reader.feed(part):
            assert len(frame) <= 100 + OVERHEAD_BYTES
        if reader.broken is not None:
            break


def test_frames_before_the_nonsense_are_good() -> None:
    reader = FrameReader("peer", 100)
    assert reader.feed(packet_frame(b"good") + struct.pack(">IB", 1 << 30, PACKET)) == [(PACKET, packet_frame(b"good"))]
    assert reader.broken is not None
    assert reader.broken.reason == "announces a frame of 1073741824 bytes; the limit is 101 (max_payload_bytes)"


@given(st.binary(max_size=300), st.integers(1, 100))
def test_a_packet_of_any_length_fits_into_frames(body: bytes, most: int) -> None:
    frames = FrameReader("peer", most, whole=False).feed(packet_frames(body, most))
    assert [kind for kind, _ in frames] == [*[PIECE] * (len(frames) - 1), PACKET]
    assert b"".join(piece for _, piece in frames) == body


def test_a_large_frame_in_small_pieces_is_put_together_once() -> None:
    """Joined when it is complete, not with every piece: a slow sender must not cost a quadratic time."""
    looked_at: list[int] = []

    class Watched(FrameReader):
        def _cut(self, buffer: bytes, start: int) -> list[tuple[int, Frame]]:
            looked_at.append(len(buffer) - start)
            return super()._cut(buffer, start)

    frame = packet_frame(bytes(1 << 20))
    reader = Watched("peer", 1 << 20)
    frames = [got for i in range(0, len(frame), 1000) for got in reader.feed(frame[i : i + 1000])]
    assert frames == [(PACKET, frame)]
    assert sum(looked_at) < 2 * len(frame)


@given(
    st.lists(st.integers(0, 3 * LONG_BYTES), max_size=6),
    st.lists(st.integers(1, 2 * LONG_BYTES), min_size=1, max_size=20),
    st.booleans(),
)
def test_long_frames_are_the_same_whether_they_are_read_into_their_place_or_fed(
    sizes: list[int], reads: list[int], whole: bool
) -> None:
    sent = [packet_frame(bytes([i + 1]) * size) for i, size in enumerate(sizes)]
    stream, reader, got = b"".join(sent), FrameReader("peer", 4 * LONG_BYTES, whole=whole), []
    for turn in itertools.cycle(reads):
        room = reader.room if turn % 3 else None
        if room is not None:
            count = min(turn, len(room), len(stream))
            room[:count] = stream[:count]
            new = reader.filled(count)
        else:
            count = turn
            new = reader.feed(stream[:count])
        got += [(kind, bytes(frame)) for kind, frame in new]
        stream = stream[count:]
        if not stream:
            break
    assert got == [(PACKET, frame if whole else frame[OVERHEAD_BYTES:]) for frame in sent]
    assert reader.broken is None


def test_a_declared_length_reserves_little_before_the_bytes_have_come() -> None:
    reader = FrameReader("peer", 1 << 20)
    frame = packet_frame(bytes(1 << 20))

    def room() -> int:
        return len(reader.room or b"")

    assert reader.feed(frame[: len(frame) // 9]) == []
    assert room() == 0
    assert reader.feed(frame[len(frame) // 9 : len(frame) // 7]) == []
    assert room() == len(frame) - len(frame) // 7
    assert reader.feed(frame[len(frame) // 7 :]) == [(PACKET, frame)]
    reader.feed(frame[:100])
    assert room() == len(frame) - 100  # It has sent one as long before.


def read(reader: FrameReader, frame: bytes) -> list[tuple[int, Frame]]:
    """The frame, its second half read into its place."""
    half = len(frame) // 2
    assert reader.feed(frame[:half]) == []
    assert reader.room is not None
    reader.room[:] = frame[half:]
    return reader.filled(len(frame) - half)


def test_only_memory_that_nobody_keeps_is_read_into_again() -> None:
    frames = [packet_frame(mark * LONG_BYTES) for mark in (b"1", b"2", b"3")]
    frames[1] = struct.pack(">IB", LONG_BYTES + 1, PIECE) + b"2" * LONG_BYTES
    keeps, forgets = FrameReader("peer", LONG_BYTES), FrameReader("peer", LONG_BYTES, whole=False)
    assert [bytes(got) for frame in frames for _, got in read(keeps, frame)] == frames
    (first,), (second,), (third,) = (read(forgets, frame) for frame in frames)
    assert first[1] == second[1] == b"2" * LONG_BYTES  # The first is gone.
    assert third[1] == b"3" * LONG_BYTES


def test_a_long_frame_is_not_overwritten_by_what_comes_with_its_end() -> None:
    one, other = packet_frame(b"1" * LONG_BYTES), packet_frame(b"2" * LONG_BYTES)
    reader = FrameReader("peer", LONG_BYTES, whole=False)
    assert reader.feed(one[:-9]) == []
    assert reader.feed(one[-9:] + other[:-9]) == [(PACKET, b"1" * LONG_BYTES)]
    assert reader.feed(other[-9:]) == [(PACKET, b"2" * LONG_BYTES)]


def test_a_packet_encoded_in_place_is_framed_like_any_other() -> None:
    def encode_into(packet: bytes, buffer: bytearray, offset: int) -> None:
        buffer[offset:] = packet

    for body in (b"", b"short", bytes(range(256)) * 10):
        assert framed_in_place(encode_into, body, 1000) == packet_frames(body, 1000)


def test_a_long_reason_is_cut() -> None:
    (frame,) = FrameReader("peer", 2000).feed(goodbye_frame("x" * 5000))
    assert len(frame[1]) == 1000 + OVERHEAD_BYTES


@given(st.lists(st.binary(max_size=GREETING_LIMIT), max_size=3), st.integers(1, 50))
def test_greetings_survive_arriving_in_pieces(bodies: list[bytes], step: int) -> None:
    stream = b"".join(map(greeting_frame, bodies))
    reader = GreetingReader("ann")
    read = []
    for start in range(0, len(stream), step):
        body = reader.feed(stream[start : start + step])
        while body is not None:
            read.append(body)
            body = reader.feed(b"")
    assert read == bodies
    assert reader.rest() == b""


def test_what_follows_a_greeting_is_left_for_whoever_reads_on() -> None:
    reader = GreetingReader("ann")
    assert reader.feed(greeting_frame(b"hello") + b"tail") == b"hello"
    assert reader.rest() == b"tail"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (packet_frame(bytes(101)), "announces a frame of 102 bytes; the limit is 101 (max_payload_bytes)"),
        (bytes(5), "announces a frame without a kind"),
        (struct.pack(">IB", 1, 0), "sends a frame of kind 0, which does not exist"),
        (struct.pack(">IB", 1, 9), "sends a frame of kind 9, which does not exist"),
        (b"\xff" * OVERHEAD_BYTES, "announces a frame of 4294967295 bytes; the limit is 101 (max_payload_bytes)"),
    ],
)
def test_a_stream_that_cannot_be_one_of_frames_is_the_peers_fault(data: bytes, complaint: str) -> None:
    """By its header alone: nothing is reserved for what it announces."""
    reader = FrameReader("ann", 100)
    assert reader.feed(data) == []
    assert reader.broken is not None
    assert (reader.broken.peer, reader.broken.reason) == ("ann", complaint)


def test_a_greeting_over_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(PeerError, match="announces a greeting of 1025 bytes"):
        GreetingReader("ann").feed((1025).to_bytes(4, "big"))

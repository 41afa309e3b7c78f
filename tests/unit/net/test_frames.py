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
    OVERHEAD_BYTES,
    PACKET,
    PIECE,
    FrameReader,
    GreetingReader,
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
        def _cut(self, buffer: bytes, start: int) -> list[tuple[int, bytes]]:
            looked_at.append(len(buffer) - start)
            return super()._cut(buffer, start)

    frame = packet_frame(bytes(1 << 20))
    reader = Watched("peer", 1 << 20)
    frames = [got for i in range(0, len(frame), 1000) for got in reader.feed(frame[i : i + 1000])]
    assert frames == [(PACKET, frame)]
    assert sum(looked_at) < 2 * len(frame)


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

"""Frames of the connections between brokers and clients."""

from __future__ import annotations

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from ordercast.net.wire.frames import (
    GOODBYE,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    OVERHEAD_BYTES,
    PACKET,
    WireReader,
    goodbye_frame,
    packet_frame,
)


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(min_value=0), max_size=30))
def test_frames_do_not_depend_on_how_the_stream_is_cut(bodies: list[bytes], places: list[int]) -> None:
    sent = [packet_frame(body) for body in bodies] + [HEARTBEAT_FRAME, goodbye_frame("done")]
    reader = WireReader("peer", 300)
    got = [frame for part in _cut(b"".join(sent), places) for frame in reader.feed(part)]
    assert got == [*((PACKET, frame) for frame in sent[:-2]), (HEARTBEAT, sent[-2]), (GOODBYE, sent[-1])]
    assert reader.broken is None


@given(st.binary(max_size=2000), st.lists(st.integers(min_value=0), max_size=10))
def test_no_stream_of_bytes_does_more_than_end_in_a_complaint(data: bytes, places: list[int]) -> None:
    reader = WireReader("peer", 100)
    for part in _cut(data, places):
        for _, frame in reader.feed(part):
            assert len(frame) <= 100 + OVERHEAD_BYTES
        if reader.broken is not None:
            break


def test_frames_before_the_nonsense_are_good() -> None:
    reader = WireReader("peer", 100)
    assert reader.feed(packet_frame(b"good") + struct.pack(">IB", 1 << 30, PACKET)) == [(PACKET, packet_frame(b"good"))]
    assert reader.broken is not None
    assert reader.broken.reason == "announces a frame of 1073741824 bytes; the limit is 101"


def test_a_large_frame_in_small_pieces_is_put_together_once() -> None:
    """Joined when it is complete, not with every piece: a slow sender must not cost a quadratic time."""
    reader = WireReader("peer", 1 << 20)
    frame = packet_frame(bytes(1 << 20))
    joined = 0
    for i in range(0, len(frame), 1000):
        got = reader.feed(frame[i : i + 1000])
        joined += len(got)
        assert len(reader._parts) <= i // 1000 + 1
    assert joined == 1


def test_a_long_reason_is_cut() -> None:
    (frame,) = WireReader("peer", 2000).feed(goodbye_frame("x" * 5000))
    assert len(frame[1]) == 1000 + OVERHEAD_BYTES

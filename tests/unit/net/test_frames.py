"""Frames: a stream comes apart where it was put together, however it is cut, and nonsense is named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.net.nodes.frames import (
    ACK,
    BYE,
    DATA,
    GREETING_LIMIT,
    OVERHEAD_BYTES,
    PING,
    FrameReader,
    GreetingReader,
    frame,
    greeting_frame,
)

FRAMES = st.lists(
    st.tuples(st.sampled_from([DATA, ACK, PING, BYE]), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=8
)


@given(FRAMES, st.lists(st.integers(0, 400), max_size=12))
def test_frames_survive_every_way_of_cutting_the_stream(frames: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(*one) for one in frames)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = FrameReader("ann", 1000)
    read = [one for a, b in pairwise(places) for one in reader.feed(stream[a:b])]
    assert read == frames


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


def test_a_frame_adds_a_fixed_number_of_bytes() -> None:
    assert len(frame(DATA, 7, b"abc")) == OVERHEAD_BYTES + 3


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (frame(DATA, 1, bytes(101)), "announces a frame of 110 bytes; the limit is 109"),
        ((8).to_bytes(4, "big") + bytes(9), "announces a frame of 8 bytes, too few for any"),
        (frame(0, 1), "sends a frame of kind 0"),
        (frame(9, 1), "sends a frame of kind 9"),
    ],
)
def test_a_stream_that_cannot_be_one_of_frames_is_the_peers_fault(data: bytes, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint) as caught:
        FrameReader("ann", 100).feed(data)
    assert caught.value.peer == "ann"


def test_a_large_announcement_reserves_nothing_and_is_refused_by_its_header_alone() -> None:
    with pytest.raises(PeerError, match="announces a frame of 4294967295 bytes"):
        FrameReader("ann", 1 << 20).feed(b"\xff" * OVERHEAD_BYTES)


def test_a_greeting_over_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(PeerError, match="announces a greeting of 1025 bytes"):
        GreetingReader("ann").feed((1025).to_bytes(4, "big"))

"""A datagram is taken once, of one who knows the token, by whom it was meant for, however the network orders it."""

from __future__ import annotations

import hmac
from itertools import pairwise
from random import Random

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.process import CAST_BYTES, Peer
from ordercast.net.wire.datagrams import (
    MOST_PIECES,
    DatagramHeader,
    DatagramSealer,
    Incoming,
    RefusedDatagramError,
    datagram_key,
    seal,
    unseal,
)
from ordercast.net.wire.frames import packet_frame

KEY = datagram_key(b"a secret")
ANN = Peer("node", "ann", 3, "192.0.2.1:7000")
BOB = Peer("node", "bob", 1, "192.0.2.2:7000")


def outgoing(me: Peer = ANN, *, datagram_bytes: int = 1400, first: int = 0, key: bytes = KEY) -> DatagramSealer:
    return DatagramSealer(me, "test", key, datagram_bytes, first)


def incoming(me: Peer = BOB, cluster: str = "test") -> Incoming:
    return Incoming(me, cluster, KEY, lambda to: to == me.address)


def datagram(out: DatagramSealer, body: bytes = b"hello") -> bytes:
    (one,) = out.datagrams(BOB.address, packet_frame(body))
    return one


def why(taken_by: Incoming, data: bytes) -> str:
    with pytest.raises(RefusedDatagramError) as refused:
        taken_by.take(data, "192.0.2.9")
    return refused.value.why


def test_the_receiver_learns_who_cast_what() -> None:
    assert incoming().take(datagram(outgoing()), "192.0.2.9") == (ANN, b"hello")


def test_a_datagram_is_taken_once() -> None:
    bob, data = incoming(), datagram(outgoing())
    bob.take(data, "192.0.2.9")
    assert why(bob, data) == "replayed"


def test_overtaken_datagrams_are_taken_once_each_within_the_window() -> None:
    bob, out, chance = incoming(), outgoing(), Random(5)
    sent = [datagram(out, b"%d" % number) for number in range(3000)]
    arriving = sorted(range(3000), key=lambda number: number + chance.uniform(0, 900))
    assert any(later < earlier for earlier, later in pairwise(arriving))
    taken = [bob.take(sent[number], "192.0.2.9") for number in arriving]
    assert [body for _, body in filter(None, taken)] == [b"%d" % number for number in arriving]
    assert {why(bob, sent[number]) for number in arriving[::37]} == {"replayed"}


def test_what_is_further_behind_than_the_window_is_not_taken() -> None:
    bob, out = incoming(), outgoing()
    first = datagram(out)
    for _ in range(1024):
        newest = datagram(out)
    bob.take(newest, "192.0.2.9")
    assert why(bob, first) == "replayed"


def test_a_later_life_is_heard_and_an_earlier_one_is_not_heard_any_more() -> None:
    bob = incoming()
    bob.take(datagram(outgoing(first=1000)), "192.0.2.9")
    again = Peer("node", "ann", 4, ANN.address)
    assert bob.take(datagram(outgoing(again)), "192.0.2.9") == (again, b"hello")
    assert why(bob, datagram(outgoing(first=2000))) == "replayed"


def test_a_process_of_the_same_life_that_begins_with_the_time_is_heard() -> None:
    bob = incoming()
    bob.take(datagram(outgoing(first=1000)), "192.0.2.9")
    assert bob.take(datagram(outgoing(first=5_000_000)), "192.0.2.9") is not None


@pytest.mark.parametrize("place", range(21, 60))
def test_no_bit_behind_the_mac_can_be_changed(place: int) -> None:
    data = bytearray(datagram(outgoing()))
    data[place] ^= 1
    assert why(incoming(), bytes(data)) == "forged"


def test_another_token_is_no_token() -> None:
    assert why(incoming(), datagram(outgoing(key=datagram_key(b"a guess")))) == "forged"
    assert why(incoming(), datagram(outgoing(key=b"a secret"))) == "forged"


@pytest.mark.parametrize("data", [b"", b"oc", b"oc\x01" + bytes(17), b"oc\x02" + bytes(99), b"GET / HTTP/1.1\r\n\r\n"])
def test_garbage_is_told_before_anything_is_computed(data: bytes) -> None:
    assert why(incoming(), data) == "garbage"


def test_what_was_cast_to_somebody_else_is_not_believed() -> None:
    cho = incoming(Peer("node", "cho", 1, "192.0.2.3:7000"))
    assert why(cho, datagram(outgoing())) == "misdirected"


def test_another_cluster_with_the_same_token_is_not_heard() -> None:
    assert why(incoming(cluster="other"), datagram(outgoing())) == "misdirected"


@pytest.mark.parametrize("name", ["bob", "", "x" * 129, "a b", "\n"])
def test_nobody_casts_under_this_name_or_under_none(name: str) -> None:
    data = seal(DatagramHeader("test", name, 1, "192.0.2.1:7000", BOB.address, 1), packet_frame(b"x"), KEY)
    assert why(incoming(), data) == "garbage"


def test_a_long_packet_travels_in_pieces_that_may_come_in_any_order() -> None:
    bob, out, chance = incoming(), outgoing(datagram_bytes=576), Random(2)
    body = chance.randbytes(CAST_BYTES)
    pieces = list(out.datagrams(BOB.address, packet_frame(body)))
    assert max(map(len, pieces)) <= 576
    assert 1 < len(pieces) <= MOST_PIECES
    chance.shuffle(pieces)
    taken = [bob.take(piece, "192.0.2.9") for piece in pieces]
    assert taken == [None] * (len(pieces) - 1) + [(ANN, body)]
    assert bob._incomplete == {}


@pytest.mark.parametrize("length", [*range(1230, 1300), 2600, CAST_BYTES])
def test_every_datagram_is_within_the_limit_and_every_length_arrives(length: int) -> None:
    bob, out = incoming(), outgoing(first=1 << 50)
    pieces = list(out.datagrams(BOB.address, packet_frame(bytes(length))))
    assert max(map(len, pieces)) <= 1400
    assert [bob.take(piece, "192.0.2.9") for piece in pieces][-1] == (ANN, bytes(length))


def test_with_a_lost_piece_the_packet_is_lost_and_memory_for_such_is_bounded() -> None:
    bob, out = incoming(), outgoing()
    for _ in range(1000):
        for piece in list(out.datagrams(BOB.address, packet_frame(bytes(5000))))[1:]:
            assert bob.take(piece, "192.0.2.9") is None
    assert len(bob._incomplete) <= 256


@pytest.mark.parametrize(("piece", "pieces"), [(-1, 2), (2, 2), (0, 0), (0, MOST_PIECES + 1)])
def test_pieces_that_cannot_be_are_garbage(piece: int, pieces: int) -> None:
    header = DatagramHeader("test", "ann", 1, ANN.address, BOB.address, 9, piece, pieces)
    assert why(incoming(), seal(header, packet_frame(b"x"), KEY)) == "garbage"


@pytest.mark.parametrize("part", [b"", b"\0\0\0\5\1abcde", b"\0\0\0\1\2", packet_frame(b"a") + packet_frame(b"b")])
def test_anything_else_than_one_whole_packet_is_refused(part: bytes) -> None:
    with pytest.raises(PeerError, match="one whole packet"):
        incoming().take(seal(DatagramHeader("test", "ann", 1, ANN.address, BOB.address, 9), part, KEY), "192.0.2.9")


def test_pieces_that_together_are_too_long_are_refused() -> None:
    bob = incoming()
    for piece in range(2):
        header = DatagramHeader("test", "ann", 1, ANN.address, BOB.address, 9 + piece, piece, 3)
        data = seal(header, bytes(40_000), KEY)
        if piece:
            assert why(bob, data) == "oversized"
        else:
            bob.take(data, "192.0.2.9")
    assert bob._incomplete == {}


def test_a_header_that_only_a_member_could_write_and_none_would_is_refused() -> None:
    for content in (b"\0\3abc", b"\xff\xffabc", b"\0\0", b"\0\1\x90"):
        genuine = seal(DatagramHeader("test", "ann", 1, "", "", 1), b"", KEY)
        data = genuine[:3] + hmac.digest(KEY, content, "sha256")[:16] + content
        with pytest.raises(RefusedDatagramError):
            unseal(data, KEY, "192.0.2.9")


def test_numbers_go_on_growing_when_there_are_too_many_addresses_to_count_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.net.wire.datagrams._MOST_ADDRESSES", 3)
    out = outgoing()
    numbers: dict[str, list[int]] = {}
    for turn in range(40):
        to = f"192.0.2.{turn % 7}:1"
        (data,) = out.datagrams(to, packet_frame(b"x"))
        numbers.setdefault(to, []).append(unseal(data, KEY, "x")[0].number)
    assert all(earlier < later for each in numbers.values() for earlier, later in pairwise(each))


def test_those_who_cast_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.net.wire.datagrams._MOST_PEERS", 5)
    bob = incoming()
    for number in range(20):
        bob.take(datagram(outgoing(Peer("node", f"n{number}", 1, ANN.address))), "192.0.2.9")
    assert len(bob._senders) == 5

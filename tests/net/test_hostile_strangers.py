"""Whatever one connection does, its end has a reason in the log and a counter, and everybody else goes on."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import msgspec
import pytest

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.process import Connection, Rights
from ordercast.net.wire.credentials import Credentials, User
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.frames import OVERHEAD_BYTES
from ordercast.net.wire.settings import WireSettings
from ordercast.net.wire.strangers import Strangers
from tests.support.loop import run_async, until
from tests.support.wires import HASTY, LogLines, Process, Say, Stranger, running

LOCKED = Credentials(cluster="test", peer_token="of brokers", client_token="of clients")
CLIENT = Credentials(client_token="of clients")


async def _goes_on(b1: Process, friend: Process, connection: Connection) -> None:
    """The process still serves the friend that was there all the time."""
    said = len(b1.scribe.heard)
    friend.say(connection, "still here")
    await until(lambda: b1.scribe.heard[said:] == ["still here"])


@pytest.mark.parametrize(
    ("nonsense", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "announces a greeting of 1195725856 bytes; the limit is 1024"),
        (b"\x00\x00\x00\x04\xc1\xc1\xc1\xc1", "does not speak Ordercast"),
        (struct.pack(">I", 1 << 31), "announces a greeting of 2147483648 bytes; the limit is 1024"),
        (b"\x00\x00\x00\x01\x90", "does not speak Ordercast"),
        (b"\x00\x00\x00\x04\x92\x04\xa1\xff", "does not speak Ordercast"),  # A refusal whose reason is no text.
        (struct.pack(">I", 1024) + b"\x91" * 1024, "does not speak Ordercast"),  # Arrays in arrays in arrays.
    ],
)
def test_garbage_instead_of_a_greeting_is_shown_the_door(nonsense: bytes, reason: str, log: LogLines) -> None:
    async def main() -> None:
        b1, friend = Process("b1"), Process("friend", kind="client")
        async with running(b1, friend):
            connection = friend.dial(b1)
            peer = await Stranger.connect(b1.address)
            peer.send(nonsense)
            await peer.end()
            assert reason in log.reasons()
            assert b1.host.counters["closed_handshake"] == 1
            assert "mallory" not in b1.scribe.names()
            await _goes_on(b1, friend, connection)
            await peer.close()

    run_async(main)


@pytest.mark.parametrize(
    ("nonsense", "reason"),
    [
        (struct.pack(">IB", (1 << 20) + 1, 1), "announces a frame of 1048577 bytes; the limit is 131073"),
        (struct.pack(">IB", 0, 1), "announces a frame without a kind"),
        (struct.pack(">IB", 1, 9), "sends a frame of kind 9, which does not exist"),
        (struct.pack(">IB", 4, 1) + b"\xc1\xc1\xc1", "sent a malformed packet"),
    ],
)
def test_nonsense_after_the_handshake_ends_that_connection_only(nonsense: bytes, reason: str, log: LogLines) -> None:
    async def main() -> None:
        b1, friend = Process("b1"), Process("friend", kind="client")
        async with running(b1, friend):
            connection = friend.dial(b1)
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            peer.say("good so far")
            peer.send(nonsense)
            assert reason.encode() in await peer.end()
            assert b1.scribe.heard == ["good so far"]
            ((gone, told),) = b1.scribe.ends
            assert gone
            assert reason in told
            assert any(reason in said for said in log.reasons())
            assert b1.host.counters["closed_garbage"] == 1
            await _goes_on(b1, friend, connection)
            await peer.close()

    run_async(main)


def test_a_frame_that_is_cut_off_is_no_packet() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            peer.send(struct.pack(">IB", 100, 1) + b"only this")
            peer.writer.write_eof()
            await until(lambda: bool(b1.scribe.ends))
            assert b1.scribe.ends[0][0]
            assert b1.scribe.heard == []
            await peer.close()

    run_async(main)


def test_whoever_does_not_introduce_itself_is_closed_in_time(log: LogLines) -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.end()
            assert log.reasons() == ["did not introduce itself in time (handshake_ms)"]
            assert b1.host.counters["closed_late"] == 1
            await peer.close()

    run_async(main)


def test_a_half_open_connection_is_given_up(log: LogLines) -> None:
    """The other machine is gone without a word: nothing is heard, not even a heartbeat."""

    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            await until(lambda: bool(b1.scribe.ends))
            assert b1.scribe.ends == [(True, "silent for 200 ms (silence_ms)")]
            assert log.reasons() == ["silent for 200 ms (silence_ms)"]
            await peer.close()

    run_async(main)


def test_a_client_that_never_reads_is_closed_and_costs_a_bounded_time(log: LogLines) -> None:
    async def main() -> None:
        b1, friend = Process("b1"), Process("friend", kind="client")
        async with running(b1, friend):
            connection = friend.dial(b1)
            peer = await Stranger.connect(b1.address, limit=1024)
            await peer.introduce()
            await until(lambda: len(b1.scribe.peers) == 2)
            (deaf,) = [c for c, who in b1.scribe.peers.items() if who.name == "mallory"]
            while not b1.scribe.ends:
                b1.say(deaf, "x" * 60_000)
                peer.send(b"\x00\x00\x00\x01\x02")  # It lives: only its reading is at fault.
                await asyncio.sleep(0.002)
            assert b1.host.counters["closed_slow"] == 1
            assert "bytes wait for it" in log.reasons()[0]
            assert "(slow_consumer_bytes, slow_consumer_ms)" in log.reasons()[0]
            assert b1.scribe.ends[0][0]
            await _goes_on(b1, friend, connection)
            await peer.close()

    run_async(main)


def test_a_slow_reader_that_gets_on_is_not_closed() -> None:
    """Far behind but catching up: closing it would only make it start again."""

    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address, limit=1024)
            await peer.introduce()
            await until(lambda: bool(b1.scribe.peers))
            (slow,) = b1.scribe.peers
            text, count = "x" * 60_000, 150
            b1.say(slow, *[text] * count)
            left = count * (len(text) + 2)
            while left > 0:
                left -= len(await peer.reader.read(1 << 18))
                peer.send(b"\x00\x00\x00\x01\x02")
                await asyncio.sleep(0.004)
            assert b1.scribe.ends == []
            await peer.close()

    run_async(main)


def test_who_asks_and_does_not_read_is_not_heard_until_it_has_read() -> None:
    """Otherwise short questions with long answers fill the memory of a broker within `slow_consumer_ms`."""
    patient = msgspec.structs.replace(HASTY, slow_consumer_bytes=1 << 20, slow_consumer_ms=60_000, silence_ms=400)
    questions, answer = 1000, "." * 60_000

    async def main() -> None:
        b1, friend = Process("b1", settings=patient), Process("friend", kind="client", settings=patient)
        async with running(b1, friend):
            b1.scribe.on_say = lambda who, packet: b1.host.send(who, Say(answer)) if packet.text == "?" else None
            connection = friend.dial(b1)
            peer = await Stranger.connect(b1.address, limit=1024)
            await peer.introduce()
            for _ in range(questions):
                peer.say("?")
                await asyncio.sleep(0)
            await until(lambda: b1.host.counters["unheard_by_slow_consumer_bytes"] > 0)
            asking = next(wire for wire in b1.host.connections.values() if wire.name == "mallory")
            await asyncio.sleep(0.6)
            assert asking.queued_bytes < 256 * len(answer) + (1 << 20), "a turn more than slow_consumer_bytes"
            await _goes_on(b1, friend, connection)
            left = questions * len(answer)
            while left > 0:
                left -= len(await peer.reader.read(1 << 18))
            assert b1.scribe.heard.count("?") == questions, "it is heard again, and was not taken for silent"
            await peer.close()

    run_async(main)


def test_strangers_that_say_nothing_lock_nobody_out_and_are_complained_of_once(log: LogLines) -> None:
    async def main() -> None:
        b1 = Process("b1", settings=msgspec.structs.replace(HASTY, strangers=6, handshake_ms=5000))
        friend = Process("friend", kind="client")
        async with running(b1, friend):
            connection = friend.dial(b1)
            await until(lambda: b1.scribe.names() == ["friend"])
            crowd = [await Stranger.connect(b1.address) for _ in range(50)]
            late = await Stranger.connect(b1.address)
            await late.introduce()
            await until(lambda: b1.scribe.names() == ["friend", "mallory"])
            assert b1.host.counters["closed_strangers"] == 48, "half of all places are for this machine"
            assert log.reasons() == ["too many connections that do not introduce themselves (strangers_per_address)"]
            await _goes_on(b1, friend, connection)
            for peer in (*crowd, late):
                await peer.close()

    run_async(main)


class Guest:
    """A connection, as far as it is a stranger."""

    def __init__(self, host: str, *, has_spoken: bool = False) -> None:
        self.host = host
        self.has_spoken = has_spoken
        self.end: ConnectionEnd | None = None
        self.lingers = False
        self.strangers: Strangers

    def refuse(self, end: ConnectionEnd) -> None:
        self.end = end
        self.strangers.went(self)

    abort = refuse


def _arrive(strangers: Strangers, *guests: Guest) -> list[Guest]:
    for guest in guests:
        guest.strangers = strangers
        strangers.came(guest)
    return [guest for guest in guests if guest.end is not None]


def test_an_address_that_sends_too_many_loses_its_own_silent_ones() -> None:
    strangers = Strangers(WireSettings(strangers=10, strangers_per_address=3))
    other, speaker = Guest("192.0.2.1"), Guest("192.0.2.9", has_spoken=True)
    crowd = [Guest("192.0.2.9") for _ in range(5)]
    assert _arrive(strangers, other, speaker, *crowd) == crowd[:3]
    assert other.end is None
    assert crowd[0].end is not None
    assert crowd[0].end.reason.endswith("(strangers_per_address)")


def test_when_all_places_are_taken_the_address_with_the_most_makes_room() -> None:
    strangers = Strangers(WireSettings(strangers=4, strangers_per_address=3))
    crowd = [Guest("192.0.2.9") for _ in range(3)]
    assert _arrive(strangers, Guest("192.0.2.1"), *crowd, Guest("192.0.2.2")) == crowd[:1]
    assert _arrive(strangers, Guest("192.0.2.3")) == []
    assert [guest.end is not None for guest in crowd] == [True, True, False]


def test_those_that_were_refused_and_linger_take_places_and_are_the_first_to_go() -> None:
    """Until its socket is closed a refused connection costs a descriptor like any other."""
    strangers = Strangers(WireSettings(strangers=10, strangers_per_address=3))
    garbage = [Guest("192.0.2.9", has_spoken=True) for _ in range(3)]
    assert _arrive(strangers, *garbage) == []
    for guest in garbage:
        guest.lingers = True
    silent = [Guest("192.0.2.9") for _ in range(4)]
    assert _arrive(strangers, *silent) == silent[:1]
    assert all(guest.end is not None for guest in garbage)


def test_complaints_about_an_address_are_counted_between_two_lines() -> None:
    strangers = Strangers(WireSettings())
    second = 1_000_000_000
    assert [strangers.complaints("192.0.2.9", second + i) for i in range(3)] == [1, 0, 0]
    assert strangers.complaints("192.0.2.1", 2 * second) == 1
    assert strangers.complaints("192.0.2.9", 7 * second) == 3


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("client", Credentials(client_token="guessed")),
        ("client", Credentials()),
        ("broker", Credentials(cluster="test", peer_token="guessed")),
        ("broker", Credentials(cluster="test", peer_token="of clients")),
        ("broker", Credentials(cluster="test")),
    ],
)
def test_a_wrong_token_is_refused_and_so_is_the_one_of_clients_from_a_broker(
    kind: str, known: Credentials, log: LogLines
) -> None:
    async def main() -> None:
        b1, friend = Process("b1", credentials=LOCKED), Process("friend", kind="client", credentials=CLIENT)
        async with running(b1, friend):
            connection = friend.dial(b1)
            peer = await Stranger.connect(b1.address)
            with pytest.raises(PeerError, match="refuses: does not know the token"):
                await peer.introduce(kind=kind, credentials=known)
            assert "does not know the token" in log.reasons()
            assert b1.host.counters["closed_handshake"] == 1
            await until(lambda: b1.scribe.names() == ["friend"])
            await _goes_on(b1, friend, connection)
            await peer.close()

    run_async(main)


def test_a_dialer_learns_that_it_is_refused_by_a_living_process() -> None:
    async def main() -> None:
        b1 = Process("b1", credentials=LOCKED)
        eve = Process("eve", kind="client", credentials=Credentials(client_token="guessed"))
        async with running(b1, eve):
            eve.dial(b1)
            await until(lambda: bool(eve.scribe.ends))
            assert eve.scribe.ends == [(False, "refuses: does not know the token")]

    run_async(main)


def test_a_process_that_does_not_know_the_token_is_not_believed_to_be_a_broker() -> None:
    """Both ends prove themselves: a client does not talk to whoever happens to listen."""

    async def main() -> None:
        impostor = Process("b1", credentials=Credentials(cluster="test", client_token="guessed", peer_token="p"))
        friend = Process("friend", kind="client", credentials=CLIENT)
        async with running(impostor, friend):
            friend.dial(impostor)
            await until(lambda: bool(friend.scribe.ends))
            assert friend.scribe.peers == {}

    run_async(main)


def test_a_broker_of_another_cluster_is_refused() -> None:
    async def main() -> None:
        b1 = Process("b1")
        b2 = Process("b2", credentials=Credentials(cluster="elsewhere"))
        async with running(b1, b2):
            b2.dial(b1)
            await until(lambda: bool(b2.scribe.ends))
            assert b2.scribe.ends == [(False, "refuses: looks for cluster 'elsewhere', and this is 'test'")]

    run_async(main)


def test_users_have_their_own_tokens_names_and_rights() -> None:
    async def main() -> None:
        known = Credentials(
            cluster="test", peer_token="p",
            users=(User(name="ann", token="a", publish=("news.*",), subscribe=()), User(name="bob", token="b")),
        )  # fmt: skip
        b1 = Process("b1", credentials=known)
        ann = Process("ann.desk", kind="client", credentials=Credentials(user="ann", client_token="a"))
        bob = Process("ann", kind="client", credentials=Credentials(user="bob", client_token="b"))
        eve = Process("ann", kind="client", credentials=Credentials(user="ann", client_token="b"))
        async with running(b1, ann, bob, eve):
            for client in (ann, bob, eve):
                client.dial(b1)
            await until(lambda: bool(bob.scribe.ends) and bool(eve.scribe.ends) and bool(b1.scribe.peers))
            (seen,) = b1.scribe.peers.values()
            assert seen.name == "ann.desk"
            assert (seen.rights, seen.user) == (Rights(("news.*",), ()), "ann")
            assert "is not a client id of user 'bob'" in bob.scribe.ends[0][1]
            assert eve.scribe.ends == [(False, "refuses: does not know the token")]

    run_async(main)


@pytest.mark.parametrize(
    ("client", "complaint"),
    [
        ("shop-admin", "it belongs to another user"),
        ("shop-window", "it must be 'shop' or begin with 'shop.'"),
        ("shopkeeper", "it must be 'shop' or begin with 'shop.'"),
        ("shop.admin", "it belongs to another user"),
        ("shop.admin.desk", "it belongs to another user"),
    ],
)
def test_no_user_takes_the_name_of_another_whose_name_begins_alike(client: str, complaint: str) -> None:
    known = Credentials(
        peer_token="p", users=(User(name="shop", token="s"), User(name="shop-admin", token="x"),
        User(name="shop.admin", token="y")),
    )  # fmt: skip
    assert known.rights_of("shop", "shop.till") == Rights()
    assert known.rights_of("shop.admin", "shop.admin.desk") == Rights()
    with pytest.raises(PeerError) as refused:
        known.rights_of("shop", client)
    assert complaint in refused.value.reason


@pytest.mark.parametrize("clients", [{"client_token": "c"}, {"users": (User(name="ann", token="a"),)}])
def test_where_clients_have_tokens_nobody_is_a_broker_without_one(clients: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="peer_token: needed where clients have tokens"):
        Credentials(**clients).check_listen("127.0.0.1")


def test_what_the_machine_objects_to_ends_that_connection_only(log: LogLines) -> None:
    async def main() -> None:
        b1, friend = Process("b1"), Process("friend", kind="client")
        async with running(b1, friend):
            connection = friend.dial(b1)

            def object_to(_: Connection, packet: Say) -> None:
                if packet.text == "nonsense":
                    raise PeerError("mallory", "talks nonsense")

            b1.scribe.on_say = object_to
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            peer.say("nonsense")
            assert (await peer.end())[OVERHEAD_BYTES:] == b"talks nonsense"
            assert b1.scribe.ends == [(True, "talks nonsense")]
            assert log.reasons() == ["talks nonsense"]
            await _goes_on(b1, friend, connection)
            await peer.close()

    run_async(main)

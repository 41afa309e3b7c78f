"""A process machine over TCP: connections, turns, timers, goodbyes, heartbeats, and what comes before what."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.process import Connection
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.frames import goodbye_frame, packet_frame
from ordercast.net.wire.settings import WireSettings
from tests.support.loop import run_async, until
from tests.support.proxy import Proxy
from tests.support.wires import CODEC, HASTY, Process, Say, Stranger, running


def test_both_ends_of_a_connection_learn_who_is_there() -> None:
    async def main() -> None:
        b1, alice = Process("b1", life=3), Process("alice", kind="client", life=7)
        async with running(b1, alice):
            alice.dial(b1)
            await until(lambda: b1.scribe.names() == ["alice"] and alice.scribe.names() == ["b1"])
            (seen,) = b1.scribe.peers.values()
            assert (seen.kind, seen.life, seen.address) == ("client", 7, "")
            (found,) = alice.scribe.peers.values()
            assert (found.kind, found.life, found.address) == ("broker", 3, b1.address)

    run_async(main)


def test_what_is_sent_before_the_connection_is_up_arrives_in_order() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):
            b2.say(b2.dial(b1), "one", "two", "three")
            await until(lambda: b1.scribe.heard == ["one", "two", "three"])
            assert b1.scribe.batches == [3]

    run_async(main)


def test_a_connection_closed_at_once_still_gets_across_what_was_sent() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):
            connection = b2.dial(b1)
            b2.say(connection, "last words")
            b2.host.turn(b2.host.close, connection, "changed my mind")
            await until(lambda: b1.scribe.ends == [(False, "changed my mind")])
            assert b1.scribe.heard == ["last words"]
            assert b2.scribe.ends == []  # The own `on_closed` does not follow.
            assert b2.scribe.peers == {}

    run_async(main)


def test_a_goodbye_arrives_even_if_the_other_end_is_sending_all_the_time() -> None:
    """A close with unread bytes would reset the connection and destroy the goodbye."""

    async def main() -> None:
        settings = WireSettings(max_payload_bytes=1 << 20)
        b1, b2 = Process("b1", settings=settings), Process("b2", settings=settings)
        async with running(b1, b2):
            connection = b2.dial(b1)
            await until(lambda: b1.scribe.names() == ["b2"])
            (back,) = b1.scribe.peers
            b2.say(connection, *["x" * 100_000] * 50)
            b1.host.turn(b1.host.close, back, "enough")
            await until(lambda: bool(b2.scribe.ends))
            assert b2.scribe.ends == [(False, "enough")]

    run_async(main)


def test_dialing_where_nobody_listens_ends_the_connection() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            b1.dial("127.0.0.1:1")
            await until(lambda: bool(b1.scribe.ends))
            ((gone, reason),) = b1.scribe.ends
            assert gone
            assert reason.startswith("nobody answers at 127.0.0.1:1")

    run_async(main)


def test_a_stopping_process_says_goodbye_and_a_vanished_one_does_not() -> None:
    async def main() -> None:
        b1, b2, b3 = Process("b1"), Process("b2"), Process("b3")
        async with running(b1, b2, b3):
            b2.dial(b1)
            b3.dial(b1)
            await until(lambda: b1.scribe.names() == ["b2", "b3"])
            b2.say(*b2.scribe.peers, "bye")
            await b2.host.stop("maintenance")
            await until(lambda: bool(b1.scribe.ends))
            b3.host.abandon()
            await until(lambda: len(b1.scribe.ends) == 2)
            assert b1.scribe.ends[0] == (False, "maintenance")
            assert b1.scribe.ends[1][0]
            assert b1.scribe.heard == ["bye"]

    run_async(main)


def test_all_packets_at_hand_are_one_batch_and_one_turn() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            await until(lambda: bool(b1.scribe.peers))
            before = b1.scribe.turns
            for i in range(100):
                peer.say(str(i))
            await until(lambda: len(b1.scribe.heard) == 100)
            assert b1.scribe.heard == [str(i) for i in range(100)]
            assert len(b1.scribe.batches) <= 3
            assert b1.scribe.turns - before <= 3
            await peer.close()

    run_async(main)


def test_a_frame_that_arrives_byte_by_byte_is_a_frame() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            for byte in packet_frame(CODEC.encode(Say("slowly"))):
                peer.send(bytes([byte]))
                await asyncio.sleep(0.001)
            await until(lambda: b1.scribe.heard == ["slowly"])
            await peer.close()

    run_async(main)


def test_a_packet_is_encoded_once_and_one_that_is_passed_on_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        b1, b2, b3, b4 = (Process(f"b{i}") for i in range(1, 5))
        async with running(b1, b2, b3, b4):
            b3.dial(b1)
            b4.dial(b1)
            connection = b2.dial(b1)
            await until(lambda: len(b1.scribe.peers) == 3)

            def pass_on(sender: Connection, packet: Say) -> None:
                for other in b1.scribe.peers:
                    if other != sender:
                        b1.host.send(other, packet)

            b1.scribe.on_say = pass_on
            encoded: list[Any] = []
            encode = b1.host.codec.encode
            monkeypatch.setattr(b1.host.codec, "encode", lambda packet: encoded.append(packet) or encode(packet))
            b2.say(connection, "news")
            await until(lambda: b3.scribe.heard == b4.scribe.heard == ["news"])
            assert encoded == [Say("news")]  # By b2, which shares the codec; b1 has passed on the bytes.
            told = Say("mine")
            for other in b1.scribe.peers:
                b1.host.turn(b1.host.send, other, told)
            await until(lambda: [p.scribe.heard[-1:] for p in (b2, b3, b4)] == [["mine"]] * 3)
            assert encoded == [Say("news"), told]

    run_async(main)


class Book:
    """A ledger and a journal that note when they are flushed."""

    packets = False

    def __init__(self, log: list[str], name: str, *, fails: bool = False) -> None:
        self.log = log
        self.name = name
        self.fails = fails

    def flush(self) -> None:
        self.log.append(self.name)
        if self.fails:
            raise OSError(28, "No space left on device")

    def event(self, kind: str, time_ns: int, info: Any = None) -> None: ...

    def rewind(self, mark: int) -> None: ...

    def end(self, time_ns: int) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        self.log.append("abandoned")


def test_nothing_leaves_before_the_ledger_and_the_journal_have_it() -> None:
    async def main() -> None:
        log: list[str] = []
        b1 = Process("b1", ledger=Book(log, "ledger"), journal=Book(log, "journal"))
        b2 = Process("b2")
        async with running(b1, b2):
            connection = b1.dial(b2)
            await until(lambda: bool(b1.scribe.peers))
            await asyncio.sleep(0.01)
            wire = b1.host.connections[connection]
            flush = wire.flush
            wire.flush = lambda: (log.append("write"), flush())[1]  # type: ignore[method-assign]
            log.clear()
            b1.say(connection, "kept")
            await until(lambda: b2.scribe.heard == ["kept"])
            assert log[:3] == ["ledger", "journal", "write"]

    run_async(main)


def test_a_process_that_cannot_write_its_ledger_sends_nothing_more() -> None:
    async def main() -> None:
        log: list[str] = []
        book = Book(log, "ledger")
        b1, b2 = Process("b1", ledger=book), Process("b2")
        async with running(b1, b2):
            connection = b1.dial(b2)
            await until(lambda: b2.scribe.names() == ["b1"] and bool(b1.scribe.peers))
            book.fails = True
            b1.say(connection, "never heard")
            await b1.host.ended_event.wait()
            assert isinstance(b1.host.failure, OSError)
            await until(lambda: bool(b2.scribe.ends))
            assert b2.scribe.heard == []
            assert b2.scribe.ends[0][0]
            with pytest.raises(ConnectionError):
                b1.say(connection, "too late")

    run_async(main)


def test_a_bug_in_the_machine_stops_the_process_and_nothing_of_the_turn_leaves() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):

            def break_down(connection: Connection, packet: Say) -> None:
                b1.host.send(connection, Say("half a truth"))
                raise InvariantError("two and two is five")

            b1.scribe.on_say = break_down
            b2.say(b2.dial(b1), "what is two and two?")
            await b1.host.ended_event.wait()
            assert str(b1.host.failure) == "two and two is five"
            await until(lambda: bool(b2.scribe.ends))
            assert b2.scribe.heard == []

    run_async(main)


def test_timers_run_out_once_are_replaced_and_can_be_cancelled() -> None:
    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            for name, delay_ms in (("a", 5), ("b", 5), ("a", 20), ("c", 10)):
                b1.host.turn(b1.host.set_timer, name, delay_ms * 1_000_000)
            b1.host.turn(b1.host.cancel_timer, "b")
            await asyncio.sleep(0.06)
            assert b1.scribe.heard == ["timer c", "timer a"]

    run_async(main)


def test_an_idle_connection_is_kept_by_heartbeats() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):
            b2.dial(b1)
            await asyncio.sleep(3 * HASTY.silence_ms / 1000)
            assert b1.scribe.names() == ["b2"]
            assert b1.scribe.ends == b2.scribe.ends == []

    run_async(main)


def test_a_connection_on_which_nothing_comes_any_more_is_given_up_by_both_ends() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1, b2):
            host, port = b1.address.split(":")
            proxy = Proxy((host, int(port)))
            door = await proxy.start()
            b2.dial(f"{door[0]}:{door[1]}")
            await until(lambda: b1.scribe.names() == ["b2"])
            proxy.freeze()
            await until(lambda: bool(b1.scribe.ends) and bool(b2.scribe.ends))
            assert b1.scribe.ends == b2.scribe.ends == [(True, "silent for 200 ms (silence_ms)")]
            assert b1.host.counters["closed_silent"] == 1
            await proxy.close()

    run_async(main)


def test_a_process_that_stood_still_does_not_blame_the_others() -> None:
    import time

    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2", settings=WireSettings())
        async with running(b1, b2):
            b2.dial(b1)
            await until(lambda: b1.scribe.names() == ["b2"])
            for _ in range(2):
                time.sleep(2 * HASTY.silence_ms / 1000)
                await asyncio.sleep(0.03)
            assert b1.scribe.ends == []

    run_async(main)


def test_a_flood_is_taken_in_turns() -> None:
    """What one turn makes of a flood leaves, and others are heard, before the next part of it is read."""

    async def main() -> None:
        settings = WireSettings(max_payload_bytes=1 << 20)
        b1, b2 = Process("b1", settings=settings), Process("b2", settings=settings)
        async with running(b1, b2):
            heard_by_turn: list[int] = [0]
            b1.scribe.on_turn_end = lambda: heard_by_turn.append(len(b1.scribe.heard))  # type: ignore[method-assign]
            b2.say(b2.dial(b1), *["x" * 50_000] * 200)
            await until(lambda: len(b1.scribe.heard) == 200)
            assert max(np.diff(heard_by_turn)) <= 20  # Of 10 MB, a megabyte at the most.

    run_async(main)


@pytest.mark.parametrize(
    ("known", "field"),
    [
        (Credentials(cluster="test"), "peer_token"),
        (Credentials(cluster="test", client_token="c"), "peer_token"),
        (Credentials(cluster="test", peer_token="p"), "client_token"),
    ],
)
def test_whoever_has_no_tokens_listens_on_loopback_only(known: Credentials, field: str) -> None:
    async def main() -> None:
        b1 = Process("b1", credentials=known)
        with pytest.raises(UsageError, match=f"^{field}: .*0.0.0.0"):
            await b1.host.start("0.0.0.0:0")

    run_async(main)


def test_a_port_in_use_is_said_in_one_line() -> None:
    async def main() -> None:
        b1, b2 = Process("b1"), Process("b2")
        async with running(b1):
            with pytest.raises(UsageError, match=f"^listen: {b1.address}: Address already in use$"):
                await b2.host.start(b1.address)

    run_async(main)


def test_of_many_packets_that_came_at_once_only_so_many_are_handled_in_a_turn() -> None:
    """Others are heard in between, and what came before the end of a connection is handled before it."""

    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            words = [str(i) for i in range(2000)]
            peer.send(b"".join(packet_frame(CODEC.encode(Say(word))) for word in words) + goodbye_frame("done"))
            await until(lambda: bool(b1.scribe.ends))
            assert b1.scribe.heard == words
            assert max(b1.scribe.batches) <= 256
            assert b1.scribe.turns >= len(words) // 256
            assert b1.scribe.ends == [(False, "done")]
            await peer.close()

    run_async(main)

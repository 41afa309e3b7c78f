"""What a broker knows grows beyond any frame: it is said in pieces, and what cannot be said ends one connection."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ordercast import testing
from ordercast.core.ids import Origin, Topic
from ordercast.net.wire.frames import PIECE, packet_frames
from tests.support.loop import run_async, until
from tests.support.wires import CODEC, HASTY, Process, Say, Stranger, running

TOPICS = 40_000
SESSIONS = 60_000
LONG = "x" * (3 * HASTY.max_frame_bytes + 17)


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_packet_longer_than_a_frame_arrives_whole_and_in_its_place(passes_on: bool) -> None:
    async def main() -> None:
        b1, friend = Process("b1", passes_on=passes_on), Process("friend", kind="client", passes_on=passes_on)
        async with running(b1, friend):
            connection = friend.dial(b1)
            friend.say(connection, "before", LONG, "after")
            await until(lambda: len(b1.scribe.heard) == 3)
            assert b1.scribe.heard == ["before", LONG, "after"]

    run_async(main)


def test_only_long_frames_are_read_into_their_place_and_short_ones_as_they_come() -> None:
    """Asking where to read into costs more than reading what is short."""
    long = "x" * (HASTY.max_frame_bytes // 2)

    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            await until(lambda: bool(b1.host.connections))
            (wire,) = b1.host.connections.values()

            def in_place() -> bool:
                assert wire._transport is not None
                return isinstance(wire._transport.get_protocol(), asyncio.BufferedProtocol)

            frame = packet_frames(CODEC.encode(Say(long)), HASTY.max_frame_bytes)
            short = packet_frames(CODEC.encode(Say("short")), HASTY.max_frame_bytes)
            for heard in (3, 6):
                peer.send(short + frame[:40_000])
                await until(in_place)
                peer.send(frame[40_000:])
                await until(lambda heard=heard: len(b1.scribe.heard) == heard - 1)
                peer.send(short)
                await until(lambda heard=heard: len(b1.scribe.heard) == heard)
                assert not in_place()
            assert b1.scribe.heard == ["short", long, "short"] * 2
            await peer.close()

    run_async(main)


def test_a_packet_that_came_in_pieces_is_passed_on() -> None:
    async def main() -> None:
        b1, ann, bob = Process("b1"), Process("ann", kind="client"), Process("bob", kind="client")
        async with running(b1, ann, bob):
            connection = ann.dial(b1)
            bob.dial(b1)
            await until(lambda: len(b1.scribe.peers) == 2)
            others = {line for line, peer in b1.scribe.peers.items() if peer.name == "bob"}
            b1.scribe.on_say = lambda _, packet: [b1.host.send(line, packet) for line in others] and None
            ann.say(connection, LONG)
            await until(lambda: bob.scribe.heard == [LONG])

    run_async(main)


def test_what_is_too_long_for_any_packet_ends_the_connection_and_the_process_goes_on() -> None:
    async def main() -> None:
        small = msgspec.structs.replace(HASTY, max_packet_bytes=2 * HASTY.max_frame_bytes)
        b1, friend = Process("b1", settings=small), Process("friend", kind="client")
        async with running(b1, friend):
            friend.dial(b1)
            await until(lambda: bool(b1.scribe.peers))
            (line,) = b1.scribe.peers
            b1.say(line, LONG)
            await until(lambda: bool(friend.scribe.ends))
            assert "262144 are allowed (max_packet_bytes)" in friend.scribe.ends[0][1]
            assert b1.host.counters["closed_long"] == 1
            friend.say(friend.dial(b1), "again")
            await until(lambda: b1.scribe.heard == ["again"])

    run_async(main)


def test_a_peer_that_never_comes_to_an_end_is_cut_off() -> None:
    """A piece of one byte first: what counts is what has arrived."""

    async def main() -> None:
        b1 = Process("b1")
        async with running(b1):
            peer = await Stranger.connect(b1.address)
            await peer.introduce()
            most = HASTY.longest_from("client")
            frames = packet_frames(CODEC.encode(Say("x" * 2 * most)), HASTY.max_frame_bytes)
            peer.send(b"\x00\x00\x00\x02" + bytes([PIECE]) + b"x" + frames[:-100])
            assert b"(max_packet_bytes)" in await peer.end()
            assert b1.host.counters["closed_long"] == 1
            assert b1.scribe.heard == []
            await peer.close()

    run_async(main)


def test_a_child_learns_of_more_topics_than_a_frame_holds() -> None:
    """On attach, in the parent request and in the answer to an election."""

    async def main() -> None:
        async with testing.cluster(3) as cluster:
            assert isinstance(cluster, testing.InProcessCluster)
            roster = {Topic(f"{i:060}"): (Origin("ann~1 1048577"),) for i in range(TOPICS)}
            root = cluster.processes["b0"]
            root.host.turn(root.broker.topics.merge_roster, roster, {})
            books = [process.broker.topics.book for process in cluster.processes.values()]
            await until(lambda: all(len(book.joined) == TOPICS for book in books), timeout_s=30)
            await cluster.restart("b1")
            book = cluster.processes["b1"].broker.topics.book
            await until(lambda: len(book.joined) == TOPICS, timeout_s=30)
            await cluster.kill("b0")
            await cluster.settle(30)

    run_async(main, timeout_s=120)


def test_a_topic_that_very_many_sessions_published_on_is_served() -> None:
    """Bases and received-sets of that size go to children and clients, and come back from them."""

    async def main() -> None:
        async with testing.cluster(2) as cluster, cluster.connect("ann", broker="b0") as ann:
            assert isinstance(cluster, testing.InProcessCluster)
            first = await ann.subscribe("t")
            base = {Origin(f"publisher-{i:08}~1731800000{i:06}"): 1 for i in range(SESSIONS)}
            root = cluster.processes["b0"]
            stability, node = root.broker.topics.stability, root.broker.topics.nodes[Topic("t")]
            root.host.turn(stability.merge_base, node, base, None)
            async with cluster.connect("bob", broker="b1") as bob:
                second = await bob.subscribe("t")
                await ann.publish("t", b"to all", timeout=30)
                for inbox in (first, second):
                    assert (await inbox.get(timeout=30)).payload == b"to all"
                await cluster.restart("b1")
                await cluster.settle(30)
                await bob.publish("t", b"again", timeout=30)
                for inbox in (first, second):
                    assert (await inbox.get(timeout=30)).payload == b"again"

    run_async(main, timeout_s=150)

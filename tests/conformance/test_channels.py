"""Channels: first in, first out, exactly once between living processes, whatever happens to their connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.node import NodeHost
from ordercast.net.nodes.settings import NodeSettings
from ordercast.trace.journal import Journal, read_journal
from tests.support.loop import run_async, until
from tests.support.net import HASTY, Inbox, build_host, closing, connected
from tests.support.proxy import Proxy
from tests.support.talk import PROTOCOL, Talk

ANN, BOB = NodeId("ann"), NodeId("bob")
MANY = 400
PATIENT = msgspec.structs.replace(HASTY, suspect_ms=10_000)
"""Connections may be cut for a while without anybody being suspected."""


class Pair:
    """Ann and bob with a proxy between them. The protocol adds nothing, so the channel shows as it is."""

    def __init__(self, ann: NodeHost, bob: NodeHost, proxy: Proxy) -> None:
        self.ann = ann
        self.bob = bob
        self.proxy = proxy
        self.to_ann = Inbox(ann)
        self.to_bob = Inbox(bob)

    def opinions(self, host: NodeHost) -> list[tuple[str, NodeId]]:
        assert isinstance(host.machine, Talk)
        return host.machine.opinions


@asynccontextmanager
async def pair(settings: NodeSettings = PATIENT, **proxy: float) -> AsyncIterator[Pair]:
    ann = build_host("ann", ["ann", "bob"], protocol=PROTOCOL, settings=settings)
    bob = build_host("bob", ["ann", "bob"], protocol=PROTOCOL, settings=settings)
    async with closing(ann, bob):
        between = Proxy(await bob.listen(), **proxy)  # type: ignore[arg-type]
        try:
            await ann.listen()
            await bob.start({})
            await ann.start({BOB: await between.start()})
            await until(lambda: connected(ann, "bob") and connected(bob, "ann"))
            yield Pair(ann, bob, between)
        finally:
            await between.close()


def numbered(count: int) -> list[bytes]:
    return [b"%06d" % i for i in range(count)]


@pytest.mark.parametrize("cut_every_bytes", [400, 1_777, 9_973])
def test_order_and_once_survive_streams_that_end_within_frames(cut_every_bytes: int) -> None:
    async def main() -> None:
        async with pair(cut_every_bytes=cut_every_bytes) as they:
            for payload in numbered(MANY):
                they.ann.submit("t", payload)
                they.bob.submit("t", payload)
            await until(lambda: len(they.to_bob.messages) >= MANY and len(they.to_ann.messages) >= MANY)
            assert they.to_bob.payloads == they.to_ann.payloads == numbered(MANY)
            assert they.proxy.cuts > 0

    run_async(main)


def test_a_frame_longer_than_connections_used_to_live_gets_through() -> None:
    async def main() -> None:
        async with pair(cut_every_bytes=3_001) as they:
            they.ann.submit("t", bytes(6_000))
            they.bob.submit("t", bytes(6_000))
            await until(lambda: bool(they.to_bob.messages and they.to_ann.messages))
            assert they.proxy.cuts > 0

    run_async(main)


def test_order_and_once_survive_resets_that_lose_what_is_on_its_way() -> None:
    async def main() -> None:
        async with pair() as they:
            for start in range(0, MANY, 20):
                for payload in numbered(MANY)[start : start + 20]:
                    they.ann.submit("t", payload)
                    they.bob.submit("t", payload)
                await asyncio.sleep(0)
                they.proxy.cut()
            await until(lambda: len(they.to_bob.messages) >= MANY and len(they.to_ann.messages) >= MANY)
            assert they.to_bob.payloads == they.to_ann.payloads == numbered(MANY)
            assert they.proxy.connections > 1

    run_async(main)


def test_nothing_is_kept_once_it_is_confirmed() -> None:
    async def main() -> None:
        async with pair() as they:
            for payload in numbered(MANY):
                they.ann.submit("t", payload)
            channel = they.ann.neighbours.channels[BOB]
            await until(lambda: channel.outstanding == 0)
            assert (channel.sent, channel.buffered) == (MANY, 0)

    run_async(main)


def test_many_packets_are_acknowledged_at_once_and_few_a_little_later() -> None:
    async def main() -> None:
        async with pair(msgspec.structs.replace(PATIENT, ack_every=3, ack_ms=60_000)) as they:
            channel = they.ann.neighbours.channels[BOB]
            for payload in numbered(2):
                they.ann.submit("t", payload)
            await until(lambda: len(they.to_bob.messages) == 2)
            await asyncio.sleep(0.05)
            assert channel.outstanding == 2
            they.ann.submit("t", b"one more")
            await until(lambda: channel.outstanding == 0)
        async with pair(msgspec.structs.replace(PATIENT, ack_every=1000, ack_ms=10)) as they:
            they.ann.submit("t", b"alone")
            channel = they.ann.neighbours.channels[BOB]
            await until(lambda: bool(they.to_bob.messages) and channel.outstanding == 0)

    run_async(main)


def test_a_half_open_connection_raises_suspicion_and_loses_nothing() -> None:
    async def main() -> None:
        async with pair(HASTY) as they:
            they.proxy.freeze()
            for payload in numbered(MANY):
                they.ann.submit("t", payload)
            await until(lambda: they.opinions(they.ann) == [("suspect", BOB)])
            await until(lambda: they.opinions(they.bob) == [("suspect", ANN)])
            they.proxy.thaw()
            await until(lambda: they.opinions(they.ann)[1:2] == [("trust", BOB)])
            await until(lambda: len(they.to_bob.messages) >= MANY)
            assert they.to_bob.payloads == numbered(MANY)

    run_async(main)


def test_an_idle_connection_is_kept_alive_by_heartbeats() -> None:
    async def main() -> None:
        async with pair(HASTY) as they:
            channel = they.ann.neighbours.channels[BOB]
            begun = channel.heard_ns
            await until(lambda: channel.heard_ns - begun > 3 * HASTY.suspect_ms * 1e6)
            assert they.opinions(they.ann) == they.opinions(they.bob) == []
            assert they.proxy.connections == 1

    run_async(main)


def test_a_peer_that_restarts_without_memory_gets_a_new_channel() -> None:
    async def main() -> None:
        async with pair() as they:
            they.ann.submit("t", b"to the first life")
            await until(lambda: they.to_bob.payloads == [b"to the first life"])
            they.proxy.refusing = True
            they.proxy.cut()
            await until(lambda: not connected(they.ann, "bob"))
            they.ann.submit("t", b"to nobody")
            await they.bob.close()
            reborn = build_host("bob", ["ann", "bob"], protocol=PROTOCOL, life=1, settings=PATIENT)
            async with closing(reborn):
                inbox = Inbox(reborn)
                they.proxy.target = await reborn.listen()
                await reborn.start({})
                they.proxy.refusing = False
                await until(lambda: connected(they.ann, "bob"))
                they.ann.submit("t", b"to the second life")
                await until(lambda: bool(inbox.messages))
                assert inbox.payloads == [b"to the second life"]
                assert they.opinions(they.ann) == [("suspect", BOB), ("trust", BOB)]

    run_async(main)


def test_a_full_channel_makes_publishers_wait_and_drops_nothing() -> None:
    small = msgspec.structs.replace(PATIENT, high_water_bytes=1 << 14)

    async def main() -> None:
        async with pair(small) as they:
            they.proxy.freeze()
            waiting = asyncio.create_task(_publish_all(they.ann))
            await until(lambda: they.ann.neighbours.channels[BOB].full)
            for _ in range(50):
                await asyncio.sleep(0)
            published = they.ann.published
            assert published < MANY
            assert they.ann.neighbours.channels[BOB].buffered < (1 << 14) + 4096
            they.proxy.thaw()
            await waiting
            await until(lambda: len(they.to_bob.messages) >= MANY)
            assert they.to_bob.payloads == [payload * 40 for payload in numbered(MANY)]

    run_async(main)


async def _publish_all(host: NodeHost) -> None:
    for payload in numbered(MANY):
        await host.wait_for_room()
        host.submit("t", payload * 40)


def test_slow_links_keep_order_too() -> None:
    async def main() -> None:
        async with pair(delay_s=0.002, bytes_per_s=2e6) as they:
            for payload in numbered(MANY):
                they.ann.submit("t", payload)
            await until(lambda: len(they.to_bob.messages) >= MANY)
            assert they.to_bob.payloads == numbered(MANY)

    run_async(main)


def test_what_a_node_did_is_on_record_before_anybody_can_know_of_it(tmp_path: Path) -> None:
    """So a process that is killed leaves a history in which nothing is missing that others have seen."""

    async def main() -> None:
        journal = Journal(tmp_path / "ann", packets=False)
        ann = build_host("ann", ["ann", "bob"], protocol=PROTOCOL, journal=journal)
        bob = build_host("bob", ["ann", "bob"], protocol=PROTOCOL)
        recorded: list[list[str | None]] = []
        bob.delivery_watchers.append(
            lambda _host, _message: recorded.append([row.msg for row in read_journal(tmp_path / "ann")])
        )
        async with closing(ann, bob):
            address = await bob.listen()
            await ann.listen()
            await bob.start({})
            await ann.start({BOB: address})
            await until(lambda: connected(ann, "bob"))
            for i in range(20):
                ann.submit("t", b"%d" % i)
                await asyncio.sleep(0)
            await until(lambda: len(recorded) == 20)
            assert all(f"ann#{i}" in known for i, known in enumerate(recorded, 1))

    run_async(main)


def test_a_publication_is_answered_when_the_machine_says_so() -> None:
    async def main() -> None:
        async with pair() as they:
            answered = await they.ann.publish("t", b"answer me")
            assert (answered.id, answered.payload) == ("ann#1", b"answer me")
            silent = they.ann.submit("t", b"no answer")
            await until(lambda: they.to_bob.payloads == [b"answer me", b"no answer"])
            assert not silent.done()
            await they.ann.close()
            with pytest.raises(ConnectionError, match="stopped before"):
                await silent

    run_async(main)


def test_a_refused_publication_never_happened() -> None:
    async def main() -> None:
        async with pair() as they:
            with pytest.raises(UsageError, match="cannot be said"):
                await they.ann.publish("t", b"unspeakable")
            assert (await they.ann.publish("t", b"answer me")).id == "ann#1"
            with pytest.raises(UsageError, match="over the limit"):
                await they.ann.publish("t", bytes(PATIENT.max_payload_bytes + 1))

    run_async(main)


def test_the_largest_payload_passes() -> None:
    async def main() -> None:
        async with pair() as they:
            they.ann.submit("t", bytes(PATIENT.max_payload_bytes))
            await until(lambda: bool(they.to_bob.messages))
            assert len(they.to_bob.payloads[0]) == PATIENT.max_payload_bytes

    run_async(main)

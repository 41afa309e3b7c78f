"""A client that is let in and then sends anything at all: the broker and its other clients go on."""

from __future__ import annotations

import asyncio
import random

import pytest

from ordercast import testing
from ordercast.broker.node import BROKER_CODEC
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.frames import packet_frame
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Attach, Resume, Subscribe
from ordercast.pubsub.topic_packets import TOPIC_PACKETS
from ordercast.pubsub.tree_packets import TREE_PACKETS
from tests.support.any_packet import any_packet
from tests.support.loop import run_async
from tests.support.wires import Stranger

_BEGINNINGS = ((), (Attach(1),), (Attach(2), Subscribe("t.x")), (Attach(3), Subscribe("t.x"), Resume("t.x", 3, {}, {})))


async def _mad_client(address: str, chance: random.Random) -> None:
    peer = await Stranger.connect(address)
    await peer.introduce("mallory", credentials=Credentials(), life=chance.randrange(3))
    known = CLIENT_PACKETS if chance.random() < 0.8 else (*TREE_PACKETS, *TOPIC_PACKETS)
    packets = [*chance.choice(_BEGINNINGS), *(any_packet(known, chance) for _ in range(chance.randint(1, 12)))]
    for packet in packets:
        peer.send(packet_frame(BROKER_CODEC.encode(packet)))
    await asyncio.sleep(0.003)
    await peer.close()


@pytest.mark.parametrize("seed", range(3))
def test_no_packet_of_a_client_stops_a_broker_or_harms_another_client(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        async with testing.cluster(2) as cluster, cluster.connect("ann", broker="b0") as ann:
            assert isinstance(cluster, testing.InProcessCluster)
            inbox = await ann.subscribe("t.y")
            for _ in range(40):
                await _mad_client(cluster.address, chance)
                for process in cluster.processes.values():
                    assert process.host.failure is None, process.host.failure
            await ann.publish("t.y", b"still here", guarantee="total", timeout=10)
            assert (await inbox.get(timeout=5)).payload == b"still here"

    run_async(main)

"""Random greetings and packets at a real broker: it serves honest clients afterwards, and each end is one line."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

import pytest

from ordercast import testing
from ordercast.broker.node import BROKER_CODEC
from ordercast.core.errors import PeerError
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.frames import greeting_frame, packet_frame
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Attach
from tests.fuzz.mutator import wounded
from tests.fuzz.targets import TARGETS
from tests.support.any_packet import any_packet
from tests.support.loop import run_async
from tests.support.seeds import fixed_and_todays
from tests.support.wires import LogLines, Stranger

STRANGERS = 60
_AT_ONCE = 10
CLIENTS = Credentials(client_token="of clients")


async def _says_anything(address: str, chance: random.Random) -> None:
    """One connection: half of them know the token of clients, and all talk nonsense sooner or later."""
    peer = await Stranger.connect(address)
    greetings, packets = TARGETS["greetings"].seeds, TARGETS["packets-of-brokers"].seeds
    with suppress(PeerError, ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        if chance.random() < 0.5:
            peer.send(greeting_frame(wounded(chance.choice(greetings), greetings, chance, text=False)))
        else:
            await peer.introduce(f"mallory{chance.randrange(9)}", credentials=CLIENTS, life=chance.randrange(1, 99))
            peer.send(packet_frame(BROKER_CODEC.encode(Attach(1))))
            for _ in range(chance.randrange(4)):
                peer.send(packet_frame(BROKER_CODEC.encode(any_packet(CLIENT_PACKETS, chance))))
            peer.send(packet_frame(wounded(chance.choice(packets), packets, chance, text=False)))
        await asyncio.wait_for(peer.end(), 0.2)
    await peer.close()


@pytest.mark.parametrize("seed", fixed_and_todays(1, 1))
def test_a_broker_that_strangers_and_clients_talk_nonsense_to_serves_the_others(seed: int) -> None:
    log = LogLines()
    logger = logging.getLogger("ordercast")
    logger.addHandler(log)
    chance = random.Random(f"brokers/{seed}")

    async def main() -> None:
        secrets = {"peer_token": "of brokers", "client_token": "of clients"}
        async with testing.cluster(2, **secrets) as cluster:
            assert isinstance(cluster, testing.InProcessCluster)
            broker = cluster.processes["b0"].host
            for _ in range(0, STRANGERS, _AT_ONCE):
                crowd = [_says_anything(cluster.address, random.Random(chance.random())) for _ in range(_AT_ONCE)]
                await asyncio.gather(*(asyncio.wait_for(one, 30) for one in crowd), return_exceptions=True)
            assert broker.failure is None
            async with (
                cluster.connect("ann", token="of clients") as ann,
                cluster.connect("bob", broker="b1", token="of clients") as bob,
            ):
                inbox = await bob.subscribe("honest")
                await ann.publish("honest", b"still here", guarantee="total")
                assert (await inbox.get(timeout=20)).payload == b"still here"
            assert all(process.host.failure is None for process in cluster.processes.values())

    try:
        run_async(main)
    finally:
        logger.removeHandler(log)
    told = [(event, facts) for event, facts in log.lines if "reason" in facts]
    assert all("\n" not in str(facts) and "Traceback" not in str(facts) for _, facts in told)
    assert len(log.reasons()) <= 2 * STRANGERS + 20  # A line for each, not one for each packet.

"""Over real sockets: a client makes nothing up, and what it remembers repairs a broker that has forgotten all."""

from __future__ import annotations

import asyncio

import ordercast
from ordercast import testing
from ordercast.broker.node import BROKER_CODEC
from ordercast.net.wire.credentials import Credentials, User
from ordercast.net.wire.frames import packet_frame
from ordercast.pubsub.client_packets import Attach, Resume, Subscribe
from ordercast.pubsub.publications import Publication
from tests.support.loop import run_async
from tests.support.wires import Stranger

ANN = User(name="ann", token="of ann")
EVE = User(name="eve", token="of eve", publish=())


def test_a_user_without_the_right_to_publish_cannot_do_so_by_way_of_a_history() -> None:
    async def main() -> None:
        async with (
            testing.cluster(1, user=(ANN, EVE), peer_token="of brokers") as brokers,
            ordercast.connect(brokers.address, "ann", token="of ann") as ann,
        ):
            inbox = await ann.subscribe("t")
            await ann.publish("t", b"mine", timeout=10)
            origin = (await inbox.get(5)).id.partition("/")[0]
            eve = await Stranger.connect(brokers.address)
            await eve.introduce("eve", credentials=Credentials(user="eve", client_token="of eve"))
            forged = Publication(origin, 2, "t", b"forged", keys=("",))
            for packet in (Attach(1), Subscribe("t"), Resume("t", 1, {}, {origin: 7}, (forged,))):
                eve.send(packet_frame(BROKER_CODEC.encode(packet)))
            await asyncio.sleep(0.2)
            await eve.close()
            await ann.publish("t", b"mine too", timeout=10)
            assert (await inbox.get(5)).payload == b"mine too"

    run_async(main)


def test_what_a_client_remembers_is_believed_by_a_broker_that_has_forgotten_everything() -> None:
    """Else the number that follows would be refused: the broker has never heard of those before it."""

    async def main() -> None:
        async with (
            testing.cluster(1, user=(ANN,), peer_token="of brokers") as brokers,
            ordercast.connect(brokers.address, "ann", token="of ann") as ann,
        ):
            inbox = await ann.subscribe("t")
            await ann.publish("t", b"before", timeout=10)
            assert (await inbox.get(5)).payload == b"before"
            await brokers.kill("b0")
            await brokers.restart("b0")
            await ann.publish("t", b"after", timeout=20)
            assert (await inbox.get(5)).payload == b"after"

    run_async(main)

"""The client's end over TCP: requests complete, nonsense is refused before anything is sent, the store works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.messages import Message
from ordercast.multicast import MulticastClient, join, protocol_name
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.services.kv_node import KeyValueStore
from ordercast.services.partitioned_kv import Partitioning
from tests.support.loop import run_async, until
from tests.support.serializability import Event, explains

HASTY = NodeSettings(heartbeat_ms=50, suspect_ms=1000, reconnect_ms=2, reconnect_max_ms=20, max_payload_bytes=1000)


def addresses(count: int) -> dict[str, str]:
    """Free ports of this machine, as far as one can know."""
    doors = [lasting_door() for _ in range(count)]
    found = {f"n{i}": address_of(door) for i, door in enumerate(doors)}
    for door in doors:
        door.close()
    return found


@asynccontextmanager
async def members(count: int, clients: tuple[str, ...] = (), **more: Any) -> AsyncIterator[dict[str, MulticastClient]]:
    servers = addresses(count)
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                join(name, servers, clients=clients, token=b"secret", settings=HASTY, **more)
            )
            for name in (*servers, *clients)
        }


class Inbox:
    def __init__(self, member: MulticastClient) -> None:
        self.payloads: list[bytes] = []
        member.on_delivery(self.take)

    def take(self, message: Message) -> None:
        self.payloads.append(message.payload)


@pytest.mark.parametrize("real_time", [False, True])
@pytest.mark.parametrize("protocol", ["daisy-chain", "skeen", "delporte-fauconnier"])
def test_a_multicast_returns_when_it_is_delivered_and_all_see_one_order(protocol: str, real_time: bool) -> None:
    async def main() -> None:
        async with members(3, ("c0",), protocol=protocol, real_time=real_time) as everyone:
            inboxes = {name: Inbox(member) for name, member in everyone.items()}
            sent = [b"%d" % i for i in range(30)]
            askers = [everyone["c0"], everyone["n1"]]
            await asyncio.gather(*(askers[i % 2].multicast(body, to=["n2", "n0"]) for i, body in enumerate(sent)))
            assert sorted(inboxes["n2"].payloads) == sorted(sent)
            await until(lambda: len(inboxes["n0"].payloads) == len(sent))
            assert inboxes["n0"].payloads == inboxes["n2"].payloads
            assert inboxes["n1"].payloads == inboxes["c0"].payloads == []

    run_async(main)


def test_a_group_takes_more_at_once_than_fits_into_a_frame() -> None:
    async def main() -> None:
        async with members(3, ("c0",), protocol="replicated-skeen") as everyone:
            inbox = Inbox(everyone["n2"])
            sent = [b"%03d" % i + bytes(HASTY.max_payload_bytes - 3) for i in range(200)]
            assert sum(map(len, sent)) > 2 * HASTY.max_frame_bytes
            await asyncio.gather(*(everyone["c0"].multicast(body, to=["n0", "n1", "n2"]) for body in sent))
            await until(lambda: len(inbox.payloads) == len(sent))
            assert inbox.payloads == sent

    run_async(main)


def test_nonsense_is_refused_in_one_line_and_nothing_is_sent() -> None:
    async def main() -> None:
        async with members(2, ("c0",)) as everyone:
            client = everyone["c0"]
            inbox = Inbox(everyone["n0"])
            for payload, to, problem in [
                (b"", [], "to: no destination is named"),
                (b"", ["n0", "n7"], "to: unknown server 'n7'; did you mean 'n1'"),
                (b"", ["n0", "c0"], "to: unknown server 'c0'"),
                (b"", ["n0", "n1", "n0"], "to: 'n0' is named twice"),
                (b"", "n0", "to: a list of servers is needed, not 'n0'"),
                (bytes(1001), ["n0"], "payload: 1001 bytes are over the limit of 1000"),
                ("text", ["n0"], "payload: bytes are needed, not str"),
            ]:
                with pytest.raises(UsageError, match=f"^{problem}") as caught:
                    await client.multicast(payload, to=to)  # type: ignore[arg-type]
                assert "\n" not in str(caught.value)
            await client.multicast(b"sense", to=["n0"])
            assert inbox.payloads == [b"sense"]
            assert client.host.published == 1

    run_async(main)


def test_a_group_that_makes_no_sense_cannot_be_joined() -> None:
    async def main(name: str, servers: dict[str, str], **more: Any) -> None:
        async with join(name, servers, **more):
            pass

    for name, servers, more, problem in [
        ("n1", {"n0": "localhost:0"}, {}, "name: 'n1' is neither a server nor a client"),
        ("n0", {"n0": "localhost"}, {}, "servers: the address 'localhost' of n0 is not HOST:PORT"),
        ("n0", {"n0": "localhost:0"}, {"clients": ["n0"]}, "clients: a node is named twice"),
        ("a b", {"n0": "localhost:0"}, {}, "name: 'a b' is no name for a node"),
        ("n0", {"n0": "localhost:0"}, {"protocol": "fifo"}, "protocol 'fifo' is no atomic multicast"),
        ("n0", {"n0": "localhost:0"}, {"options": {"rul": 1}}, "unknown option of daisy-chain 'rul'"),
    ]:
        with pytest.raises(UsageError, match=problem):
            asyncio.run(main(name, servers, **more))


def test_real_time_order_is_an_option_that_some_protocols_do_not_need() -> None:
    assert protocol_name("skeen", real_time=False) == "skeen"
    assert protocol_name("skeen", real_time=True) == "skeen-real-time"
    assert protocol_name("delporte-fauconnier", real_time=True) == "delporte-fauconnier"
    with pytest.raises(UsageError, match="there is no 'daisy-chain-published' with real-time order"):
        protocol_name("daisy-chain-published", real_time=True)


async def _load(store: KeyValueStore, keys: list[str], history: list[Event]) -> None:
    clock = asyncio.get_running_loop().time
    for i in range(6):
        writes = {key: f"{store.replica.node}-{i}".encode() for key in keys} if i % 2 else {}
        invoked = clock()
        reads = await store.transact([] if writes else keys, writes)
        history.append(Event(invoked, clock(), reads, dict(writes)))


def test_the_store_over_tcp_is_strictly_serializable() -> None:
    async def main() -> list[Event]:
        history: list[Event] = []
        async with members(3, real_time=True) as everyone:
            partitioning = Partitioning([["n0"], ["n1"], ["n2"]])
            stores = [KeyValueStore(member, partitioning) for member in everyone.values()]
            keys = [next(f"k{i}" for i in range(99) if partitioning.partition_of(f"k{i}") == p) for p in range(3)]
            await asyncio.gather(*(_load(store, keys[i:] + keys[:1], history) for i, store in enumerate(stores)))
            await stores[0].put(keys[1], b"last")
            assert await stores[2].get(keys[1]) == b"last"
        return history

    history = run_async(main)
    assert len(history) == 18
    assert explains(history, real_time=True)


def test_an_answer_that_does_not_fit_a_message_is_an_error_of_the_reader_only() -> None:
    async def main() -> None:
        async with members(2) as everyone:
            stores = [KeyValueStore(member, Partitioning([["n0"], ["n1"]])) for member in everyone.values()]
            far = [f"k{i}" for i in range(20) if stores[0].replica.partitioning.partition_of(f"k{i}") == 1]
            for key in far[:2]:
                await stores[0].put(key, bytes(600))
            with pytest.raises(UsageError, match="reads: the values take more than the 1000 bytes of a message"):
                await stores[0].transact(far[:2])
            with pytest.raises(UsageError, match=r"payload: \d+ bytes are over the limit of 1000"):
                await stores[0].put(far[0], bytes(1000))
            assert await stores[0].get(far[0]) == bytes(600)

    run_async(main)


def test_a_replicated_store_over_tcp_outlives_a_leader_in_every_group() -> None:
    async def main() -> None:
        servers = addresses(6)
        async with AsyncExitStack() as stack, AsyncExitStack() as doomed:
            stores = {}
            for name in servers:
                where = doomed if name in ("n0", "n3") else stack
                member = await where.enter_async_context(
                    join(name, servers, protocol="replicated-daisy-chain", real_time=True, settings=HASTY)
                )
                stores[name] = KeyValueStore(member, Partitioning([["n0", "n1", "n2"], ["n3", "n4", "n5"]]))
            keys = [f"k{i}" for i in range(8)]
            await stores["n1"].transact(writes=dict.fromkeys(keys, b"before"))
            asked = asyncio.create_task(stores["n4"].transact(keys))
            await doomed.aclose()
            assert set((await asked).values()) == {b"before"}
            await stores["n2"].transact(writes=dict.fromkeys(keys, b"after"))
            assert set((await stores["n5"].transact(keys)).values()) == {b"after"}

    run_async(main)

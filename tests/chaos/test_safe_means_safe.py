"""A publisher is told that its message is safe; in the same moment it and f brokers die. Everybody gets the message."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

import ordercast
from ordercast import testing
from ordercast.api import Client, Inbox
from ordercast.net.wire.credentials import join_address, split_address
from tests.support.loop import run_async
from tests.support.proxy import Proxy

ROOT = Path(__file__).parents[2]
PUBLISHER = """
import asyncio, os, signal, sys, ordercast

async def main():
    address, topic, guarantee, *pids = sys.argv[1:]
    client = await ordercast.connect(address, timeout=60)
    await client.publish(topic, b"safe", key="k", guarantee=guarantee, ack="safe", timeout=60)
    for pid in pids:
        os.kill(int(pid), signal.SIGKILL)
    os._exit(0)

asyncio.run(main())
"""


async def _publish_and_die(cluster: testing.ProcessCluster, edge: str, topic: str, victims: tuple[str, ...]) -> None:
    """Everybody at once, as soon as the publisher knows that it is safe."""
    pids = []
    for victim in victims:
        process = cluster.cluster.process(victim)
        assert process is not None
        pids.append(str(process.pid))
    guarantee = "total" if topic.endswith(("0", "2", "4")) else "causal"
    publisher = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PUBLISHER, cluster.address_of(edge), topic, guarantee, *pids,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, errors = await publisher.communicate()
    assert publisher.returncode == 0, errors.decode()


class Reader:
    """A subscriber that can be made deaf: what is on its way to it then is lost with the connection."""

    def __init__(self, broker: str, client: Client, inbox: Inbox, ear: Proxy) -> None:
        self.broker = broker
        self.client = client
        self.inbox = inbox
        self.ear = ear

    @classmethod
    async def join(cls, cluster: testing.ProcessCluster, broker: str, topic: str) -> Reader:
        ear = Proxy(split_address(cluster.address_of(broker)))
        address = join_address(*await ear.start())
        client = await ordercast.connect([address, *cluster.addresses], f"at-{broker}", timeout=60)
        return cls(broker, client, await client.subscribe(topic, timeout=60), ear)

    def be_deaf(self) -> None:
        self.ear.back.freeze()

    def hear_again(self) -> None:
        self.ear.cut()
        self.ear.refusing = True  # From now on it finds its own way.
        self.ear.back.thaw()

    async def leave(self) -> None:
        await self.client.abandon()
        await self.ear.close()


async def _try(
    cluster: testing.ProcessCluster, edge: str, topic: str, victims: tuple[str, ...], *, back: bool = False
) -> None:
    """Publish and kill; with `back`, nobody can get the message before the victims are there again."""
    readers = [await Reader.join(cluster, broker, topic) for broker in cluster.ids]
    try:
        for reader in readers:
            reader.be_deaf()
        await _publish_and_die(cluster, edge, topic, victims)
        if back:
            await asyncio.gather(*map(cluster.restart, victims))
        for reader in readers:
            reader.hear_again()
        for reader in readers:
            try:
                message = await reader.inbox.get(timeout=60)
            except TimeoutError:
                story = f"{topic} was safe at {edge}; {victims} died; the reader at {reader.broker} never got it"
                raise AssertionError(story) from None
            assert message.payload == b"safe"
    finally:
        for reader in readers:
            await reader.leave()
    if not back:
        await asyncio.gather(*map(cluster.restart, victims))
    await cluster.settle(60)


@pytest.mark.parametrize(
    ("brokers", "shape", "f"), [(3, "line", 1), (3, "star", 1), (5, "binary", 2)], ids=["line", "star", "five"]
)
def test_a_safe_message_survives_its_publisher_and_any_f_brokers(brokers: int, shape: testing.Shape, f: int) -> None:
    settings = msgspec.structs.replace(testing.QUICK, safe_copies=f + 1)

    async def main() -> None:
        async with testing.cluster(brokers, shape=shape, settings=settings, processes=True) as cluster:
            assert isinstance(cluster, testing.ProcessCluster)
            for i, victims in enumerate(combinations(cluster.ids, f)):
                await _try(cluster, cluster.ids[i % brokers], f"t{i}", victims)

    run_async(main, timeout_s=300)


def test_with_data_directories_a_safe_message_survives_all_brokers_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with testing.cluster(3, processes=True, data=tmp_path) as cluster:
            assert isinstance(cluster, testing.ProcessCluster)
            for i, edge in enumerate(cluster.ids):
                await _try(cluster, edge, f"t{i}", tuple(cluster.ids), back=True)

    run_async(main, timeout_s=200)

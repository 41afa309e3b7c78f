"""`ordercast.testing.cluster`: brokers for the tests of programs, in this process or in their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast import testing
from ordercast.api import ConnectError
from ordercast.core.errors import UsageError
from ordercast.net.log.files import Disk
from tests.support.chaos import judge_drained
from tests.support.loop import run_async, until


def test_a_message_crosses_the_tree(tmp_path: Path) -> None:
    async def main() -> None:
        async with testing.cluster(3, shape="line", trace=tmp_path) as cluster:
            assert len(cluster.addresses) == 3
            assert cluster.address == cluster.addresses[0]
            async with (
                cluster.connect("ann", trace=tmp_path) as ann,
                cluster.connect("bob", broker="b2", trace=tmp_path) as bob,
            ):
                inbox = await bob.subscribe("news.*")
                sent = await ann.publish("news.today", b"hello", key="k", guarantee="total")
                message = await inbox.get(timeout=10)
                assert (message.id, message.payload, message.publisher) == (sent, b"hello", "ann")

    run_async(main)
    assert judge_drained(tmp_path).exit_code() == 0


def test_the_tree_is_repaired_when_a_broker_is_killed_and_takes_it_back_when_it_returns() -> None:
    async def main() -> None:
        async with testing.cluster(3) as cluster:
            assert isinstance(cluster, testing.InProcessCluster)
            first = cluster.processes["b0"].host.me.life
            await cluster.kill("b0")
            await cluster.settle()
            await cluster.restart("b0")
            await cluster.settle()
            overlays = {name: process.broker.tree for name, process in cluster.processes.items()}
            assert not overlays["b0"].is_root  # The others have gone on without it; it is one of them now.
            assert overlays["b0"].life > first
            with pytest.raises(UsageError, match="unknown broker 'b9'"):
                await cluster.kill("b9")

    run_async(main)


def test_the_shapes_of_trees() -> None:
    assert testing.parents(4, "star") == [None, 0, 0, 0]
    assert testing.parents(4, "line") == [None, 0, 1, 2]
    assert testing.parents(7, "binary") == [None, 0, 0, 1, 1, 2, 2]
    with pytest.raises(UsageError, match="unknown shape 'ring'"):
        testing.parents(3, "ring")  # type: ignore[arg-type]


def test_tokens_are_asked_for() -> None:
    async def main() -> None:
        async with testing.cluster(2, peer_token="brokers", client_token="clients") as cluster:
            async with cluster.connect("ann", token="clients"):
                pass
            with pytest.raises(ConnectError, match="does not know the token"):
                await cluster.connect("eve", token="brokers").__aenter__()

    run_async(main)


def test_what_was_safe_outlives_all_brokers_and_its_publisher(tmp_path: Path) -> None:
    """With data directories even the end of every broker at once loses nothing that was called safe."""

    async def main() -> None:
        async with testing.cluster(3, data=tmp_path) as cluster:
            bob = await cluster.connect("bob", broker="b1").__aenter__()
            inbox = await bob.subscribe("news")
            ann = await cluster.connect("ann", broker="b2").__aenter__()
            await ann.publish("news", b"first")
            assert (await inbox.get(timeout=5)).payload == b"first"
            await cluster.kill("b1")  # Where bob is: he does not get the next ones from there.
            for i in range(20):
                await ann.publish("news", str(i).encode(), guarantee="total" if i % 5 == 0 else "causal")
            await ann.abandon()
            for broker in ("b0", "b2"):
                await cluster.kill(broker)
            for broker in cluster.ids:
                await cluster.restart(broker)
            got = [int((await inbox.get(timeout=20)).payload) for _ in range(20)]
            assert got == list(range(20))
            await bob.close()

    run_async(main)


class FullDisk(Disk):
    full = False

    def sync(self, file: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().sync(file)


def test_a_broker_whose_disk_fails_stops_and_the_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with testing.cluster(3, data=tmp_path) as cluster:
            assert isinstance(cluster, testing.InProcessCluster)
            async with cluster.connect("ann", broker="b1") as ann, cluster.connect("bob", broker="b2") as bob:
                inbox = await bob.subscribe("news")
                disk = FullDisk()
                failing = cluster.processes["b1"]
                assert failing._ledger is not None
                failing._ledger.log._disk = disk
                disk.full = True
                await ann.publish("news", b"survives", timeout=20)
                assert isinstance(failing.host.failure, OSError)
                assert (await inbox.get(timeout=10)).payload == b"survives"
                await until(lambda: ann.broker != "b1")
                cluster.processes.pop("b1")
                await failing.kill()

    run_async(main)


def test_brokers_as_processes() -> None:
    async def main() -> None:
        async with (
            testing.cluster(3, processes=True) as cluster,
            cluster.connect("ann") as ann,
            cluster.connect("bob", broker="b1") as bob,
        ):
            inbox = await bob.subscribe("news")
            await cluster.kill("b1")
            await ann.publish("news", b"still", guarantee="total", timeout=20)
            assert (await inbox.get(timeout=20)).payload == b"still"

    run_async(main)


def test_payloads_of_the_largest_size_are_held_and_released_in_packets_that_fit() -> None:
    """What waits behind a total is released at once, and is far more than one packet may be."""

    async def main() -> None:
        async with (
            testing.cluster(2) as cluster,
            cluster.connect("ann", broker="b1") as ann,
            cluster.connect("bob") as bob,
        ):
            inbox = await bob.subscribe("t")
            for i in range(15):
                ann.publish_soon("t", bytes([i]) * (1 << 20), guarantee="total" if i % 7 == 0 else "causal")
            await ann.flush(timeout=20)
            got = [(await inbox.get(timeout=20)).payload[0] for _ in range(15)]
            assert got == list(range(15))
            for process in cluster.processes.values():  # type: ignore[attr-defined]
                assert process.host.failure is None

    run_async(main)

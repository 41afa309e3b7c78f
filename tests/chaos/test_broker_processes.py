"""Real processes, killed, stopped and cut off: every promise holds, by the word of the judge."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from ordercast import testing
from ordercast.testing import EmbeddedCluster
from tests.support.chaos import Talker, everybody_has_everything, judge_drained
from tests.support.chaos_run import behind_proxies
from tests.support.loop import run_async
from tests.support.proxy import Proxy

TOPICS = ["accounts.PT", "accounts.ES"]
Faults = Callable[[EmbeddedCluster], Awaitable[None]]


def _run(trace: Path, faults: Faults, *, brokers: int = 4, count: int = 60, data: Path | None = None) -> None:
    """Three clients talk while the faults happen; then everybody has everything, and the judge looks at it."""

    async def main() -> None:
        async with testing.cluster(brokers, shape="binary", processes=True, trace=trace, data=data) as cluster:
            addresses = cluster.addresses
            talkers = [
                await Talker.join(addresses[i:] + addresses[:i], f"c{i}", TOPICS, trace) for i in range(1, brokers)
            ]
            await asyncio.gather(faults(cluster), *(talker.talk(count, 0.04) for talker in talkers))
            await everybody_has_everything(talkers)
            for talker in talkers:
                await talker.leave()

    run_async(main, timeout_s=90)
    verdict = judge_drained(trace)
    assert verdict.exit_code() == 0, verdict


def test_every_promise_holds_while_brokers_are_killed_and_restarted(tmp_path: Path) -> None:
    async def faults(cluster: EmbeddedCluster) -> None:
        await asyncio.sleep(0.3)
        await cluster.kill("b1")
        await asyncio.sleep(0.5)
        await cluster.kill("b0")
        await asyncio.sleep(0.2)
        await cluster.restart("b1")
        await cluster.restart("b0")

    _run(tmp_path / "run", faults)


def test_every_promise_holds_while_a_broker_stands_still(tmp_path: Path) -> None:
    async def faults(cluster: EmbeddedCluster) -> None:
        assert isinstance(cluster, testing.ProcessCluster)
        for broker in ("b1", "b0"):
            await asyncio.sleep(0.2)
            await cluster.signal(broker, signal.SIGSTOP)
            await asyncio.sleep(1.5)
            await cluster.signal(broker, signal.SIGCONT)

    _run(tmp_path / "run", faults)


def test_every_promise_holds_while_the_network_delays_cuts_and_swallows(tmp_path: Path) -> None:
    trace = tmp_path / "run"

    async def disturb(proxies: list[Proxy]) -> None:
        for proxy in proxies:
            proxy.there.delay_s, proxy.back.delay_s = 0.004, 0.011
        await asyncio.sleep(0.3)
        proxies[1].cut()
        await asyncio.sleep(0.3)
        proxies[0].cut()
        await asyncio.sleep(0.3)
        proxies[2].there.freeze()  # It can still be heard, and hears nothing.
        await asyncio.sleep(1.3)
        proxies[2].thaw()
        proxies[0].freeze()
        await asyncio.sleep(1.3)
        proxies[0].thaw()
        proxies[1].there.bytes_per_s = 200_000

    async def main() -> None:
        cluster, proxies = await behind_proxies(tmp_path, trace, 4)
        addresses = [entry.address for entry in cluster.config.broker]
        try:
            await asyncio.to_thread(cluster.up)
            assert await asyncio.to_thread(cluster.await_tree)
            talkers = [await Talker.join(addresses[i:] + addresses[:i], f"c{i}", TOPICS, trace) for i in range(1, 4)]
            await asyncio.gather(disturb(proxies), *(talker.talk(60, 0.06) for talker in talkers))
            await everybody_has_everything(talkers)
            for talker in talkers:
                await talker.leave()
        finally:
            await asyncio.to_thread(cluster.down)
            for proxy in proxies:
                await proxy.close()

    run_async(main, timeout_s=90)
    verdict = judge_drained(trace)
    assert verdict.exit_code() == 0, verdict

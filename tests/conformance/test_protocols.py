"""Every protocol keeps its promises in the simulator and over TCP, where connections are cut again and again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ordercast.core.ids import NodeId
from ordercast.core.messages import Guarantee
from ordercast.net.supervise.cluster import run_together
from ordercast.protocols import CATALOGUE, lookup
from ordercast.scenario.model import Clique, Detector, OpenLoad, Overlay, ReplyLoad, Scenario, Tree
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async
from tests.support.proxy import Address, Proxy

WRONG = {"unordered", "daisy-chain-published", "locamu-published"}
"""In the catalogue for the judge to catch."""
RIGHT = sorted(name for name in set(CATALOGUE) - WRONG if CATALOGUE[name].reach is None)
"""Those for trees only have a suite of their own."""
BROADCASTS = [name for name in RIGHT if CATALOGUE[name].guarantee is not Guarantee.ATOMIC]
MESSAGES = 240


def scenario(protocol: str, overlay: Overlay) -> Scenario:
    atomic = lookup(protocol).guarantee is Guarantee.ATOMIC
    to = 2 if atomic else 0
    return Scenario(
        name="conformance",
        overlay=overlay,
        protocol=protocol,
        duration_ms=20_000,
        # Not part of what is tested: a loaded machine must not look like a crashed one.
        detector=Detector(delay_ms=5_000),
        workload=[
            OpenLoad(rate_per_s=1_000, limit=MESSAGES, destinations=to),
            ReplyLoad(probability=0.3, depth=2, limit=MESSAGES, destinations=to),
        ],
    )


def run_simulated(value: Scenario, out: Path) -> None:
    simulate(value, lookup(value.protocol), seed=5, out=out)


def run_over_tcp(value: Scenario, out: Path) -> None:
    """With a proxy on every link that resets the connection after some kilobytes, most likely within a frame."""
    proxies: list[Proxy] = []

    async def route(_dialer: NodeId, _peer: NodeId, address: Address) -> Address:
        proxies.append(Proxy(address, cut_every_bytes=2_503 + 811 * len(proxies)))
        return await proxies[-1].start()

    async def main() -> None:
        try:
            await run_together(value, seed=5, out=out, route=route)
        finally:
            for proxy in proxies:
                await proxy.close()

    run_async(main)
    assert sum(proxy.cuts for proxy in proxies) >= len(proxies), "hardly anything was cut"


RUNTIMES = {"simulator": run_simulated, "tcp": run_over_tcp}


def check(value: Scenario, runtime: str, out: Path) -> None:
    RUNTIMES[runtime](value, out)
    (verdict,) = judge_path(out)
    problems = [msgspec.to_builtins(result) for result in verdict.results if result.violations]
    assert verdict.exit_code() == 0, problems or verdict
    published = sum(result.deliveries for result in verdict.results if result.check == "agreement")
    assert published >= MESSAGES


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("protocol", RIGHT)
def test_a_clique_keeps_what_the_protocol_promises(protocol: str, runtime: str, tmp_path: Path) -> None:
    check(scenario(protocol, Clique(nodes=4)), runtime, tmp_path / "run")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("protocol", BROADCASTS)
def test_a_tree_keeps_what_the_protocol_promises(protocol: str, runtime: str, tmp_path: Path) -> None:
    check(scenario(protocol, Tree(nodes=7)), runtime, tmp_path / "run")

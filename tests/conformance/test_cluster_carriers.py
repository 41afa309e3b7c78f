"""Causal clusters keep their order in the simulator, on datagrams and over connections; one scenario, one judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.net.supervise.cluster import run_together
from ordercast.protocols import lookup
from ordercast.scenario.load import load_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from tests.support.loop import run_async

ROOT = Path(__file__).parents[2]


def scenario(*changes: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / "cluster.toml", ["duration_ms=800.0", "options.round_ms=20.0", *changes])


async def simulated(out: Path) -> int:
    value = scenario()
    return simulate(value, lookup(value.protocol), out=out).delivered


async def over_udp(out: Path) -> int:
    return (await run_together(scenario("carrier=udp"), out=out)).delivered


async def over_tcp(out: Path) -> int:
    return (await run_together(scenario("carrier=tcp", "link.loss=0.0"), out=out)).delivered


async def leased_over_udp(out: Path) -> int:
    """Entries are leased from managers, which are named in the scenario and reached at their addresses."""
    value = scenario("carrier=udp", "link.loss=0.05")
    options = {**value.options, "managers": ["n3", "n4", "n5"], "claim_ms": 100.0}
    del options["coordinators"]
    return (await run_together(msgspec.structs.replace(value, options=options), out=out)).delivered


@pytest.mark.parametrize("runtime", [simulated, over_udp, over_tcp, leased_over_udp])
def test_everybody_gets_updates_in_causal_order(runtime: Callable[[Path], Awaitable[int]], tmp_path: Path) -> None:
    async def main() -> int:
        return await runtime(tmp_path / "run")

    delivered = run_async(main)
    (verdict,) = judge_path(tmp_path / "run")
    checks = {result.check: result.verdict for result in verdict.results}
    assert checks["optimistic-causal"] == checks["integrity"] == "pass"
    assert verdict.exit_code() == 0
    assert delivered >= 8 * 20, "updates were made, and most of them arrived"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (("carrier=tcp",), r"link\.loss: connections lose nothing"),
        (('options.coordinators=[]', 'options.managers=["n3", "n4", "n9"]'), r"options\.managers: unknown node 'n9'"),
        (
            ("overlay.kind=line", 'options.coordinators=[]', 'options.managers=["n3", "n4", "n5"]'),
            r"options\.managers: n0 does not know n3 at first \(overlay\)",
        ),
    ],
)  # fmt: skip
def test_what_real_processes_cannot_do_is_refused_by_its_field(
    changes: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=complaint):
            await run_together(scenario(*changes), out=tmp_path / "run")

    run_async(main)

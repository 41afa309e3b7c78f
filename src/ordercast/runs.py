"""Runs from Python: simulate, then ask the run for its verdict and its metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast import sim
from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.choosing import protocol_of
from ordercast.scenario.load import load_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.catalogue import lookup

if TYPE_CHECKING:
    from ordercast.verify.metrics.values import RunMetrics
    from ordercast.verify.verdict import Verdict


class Run:
    """A run directory. Verdict and metrics are worked out when first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def verdict(self) -> Verdict:
        """The judge's verdict, without Spark."""
        from ordercast.verify.judge import judge_path

        (verdict,) = judge_path(self.path)
        return verdict

    @cached_property
    def metrics(self) -> RunMetrics:
        """The costs of the run, measured without Spark."""
        from ordercast.verify.metrics.local import measure

        (metrics,) = measure([self.path])
        return metrics

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def simulate(
    scenario: str | Path | Scenario,
    *,
    protocol: str | ProtocolInfo | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Run:
    """Run a scenario under virtual time; without `out`, in a new temporary directory.

    Args:
        scenario: a scenario file, or a scenario built in Python.
        protocol: a name, `FILE.py:NAME`, or a ProtocolInfo; the scenario's own if not given.
        seed: the scenario's own if not given.
        out: the run directory to write.
        overrides: `key=value` changes to a scenario file.
    """
    value = scenario if isinstance(scenario, Scenario) else load_scenario(Path(scenario), overrides)
    info = protocol if isinstance(protocol, ProtocolInfo) else lookup(protocol_of(value, protocol))
    path = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="ordercast-")) / "run"
    sim.simulate(value, info, seed=seed, out=path)
    return Run(path)


def shrink_failing(
    scenario: Scenario,
    protocol: ProtocolInfo,
    *,
    seed: int | None = None,
    check: str | None = None,
    progress: sim.Progress | None = None,
) -> tuple[Scenario, str]:
    """A smaller scenario that still fails the same check, and that check.

    Raises:
        UsageError: the scenario does not fail.
    """
    from ordercast.sim.shrink import shrink

    seed = scenario.seed if seed is None else seed
    failing = _failing_checks(scenario, protocol, seed)
    if not failing or (check is not None and check not in failing):
        raise UsageError(f"{scenario.name} with {protocol.name} and seed {seed} does not fail {check or 'any check'}")
    target = check or failing[0]
    small = shrink(
        scenario,
        protocol,
        lambda smaller: target in _failing_checks(smaller, protocol, seed),
        seed=seed,
        progress=progress,
    )
    return small, target


def _failing_checks(scenario: Scenario, protocol: ProtocolInfo, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = simulate(scenario, protocol=protocol, seed=seed, out=Path(directory) / "run")
        return [result.check for result in run.verdict.results if result.verdict == "fail"]

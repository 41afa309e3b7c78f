"""Runtime A: virtual time, one thread, one seed. The same machines that run over TCP run here."""

from __future__ import annotations

from pathlib import Path

from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.model import Scenario
from ordercast.sim import run
from ordercast.sim.overlays.run import simulate_overlay
from ordercast.sim.run import Progress, Simulation

__all__ = ["Progress", "Simulation", "simulate"]


def simulate(
    scenario: Scenario,
    protocol: ProtocolInfo,
    *,
    seed: int | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Run `scenario`; with `out`, leave its trace there. Same arguments, same trace, byte for byte."""
    if protocol.name == "broker":
        from ordercast.sim.pubsub.run import simulate_pubsub  # Late: nobody else needs brokers and clients.

        return simulate_pubsub(scenario, protocol, seed=seed, out=out, progress=progress)
    if protocol.build_overlay is not None:
        return simulate_overlay(scenario, protocol, seed=seed, out=out, progress=progress)
    return run.simulate(scenario, protocol, seed=seed, out=out, progress=progress)

"""The comparison once more with real processes: four servers and eight clients over TCP, on this machine's clock.

Each process runs a server and two clients. What is measured depends on the machine and on what else it does, so only
relations with wide margins are claimed, by medians.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import cast

from ordercast.experiments.atomic_multicast.runs import DCC, DF, FEW, SKEEN, SYSTEMS, destinations, measured_and_judged
from ordercast.experiments.atomic_multicast.scales import COMPARED, FEW_SERVERS, SOME_CLIENTS
from ordercast.experiments.kit.study import Row
from ordercast.scenario.model import ClosedLoad, Scenario, Servers


def configuration(system: str, workload: str, *, duration_ms: float, seed: int) -> Row:
    return {
        "system": system,
        "workload": workload,
        "layout": "",
        "random": 0.0,
        "servers": FEW_SERVERS,
        "clients": SOME_CLIENTS,
        "duration_ms": duration_ms,
        "seed": seed,
    }


def _scale(systems: Sequence[str], duration_ms: float, seeds: int) -> list[Row]:
    return [
        configuration(system, workload, duration_ms=duration_ms, seed=seed)
        for system, workload, seed in product(systems, FEW, range(seeds))
    ]


TCP_SCALES = {
    "quick": _scale((SKEEN, DF, DCC), duration_ms=2_000.0, seeds=5),
    "paper": _scale(COMPARED, duration_ms=30_000.0, seeds=7),
}


def measure(parameters: Row) -> Row:
    """Run one configuration with real processes, measure its trace and have it judged."""
    from ordercast.net.supervise.cluster import run_processes
    from ordercast.protocols import lookup

    name, _ = SYSTEMS[str(parameters["system"])]
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        run_processes(scenario(parameters), name, out=run, processes=FEW_SERVERS)
        return measured_and_judged(run, parameters, genuine=lookup(name).genuine)


def scenario(parameters: Row) -> Scenario:
    """The scenario of one configuration."""
    return Scenario(
        name="atomic-multicast-tcp",
        overlay=Servers(nodes=cast("int", parameters["servers"]), clients=cast("int", parameters["clients"])),
        workload=[ClosedLoad(publishers="clients", to=destinations(parameters), until="completed")],
        options=SYSTEMS[str(parameters["system"])][1],
        duration_ms=cast("float", parameters["duration_ms"]),
        seed=cast("int", parameters["seed"]),
    )

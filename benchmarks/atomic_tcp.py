"""Atomic multicast among real processes: the daisy chain beside Skeen and Delporte-Fauconnier, in one run.

    python benchmarks/atomic_tcp.py [--seconds 3] [--rounds 3] [--destinations 2]

Four servers over TCP on this machine, one process each, 32 closed-loop clients spread over the processes, 64-byte
payloads to random sets of servers. Prints the median of the rounds, taken in turn so that the machine's moods hit all
protocols alike, and the ratio to the daisy chain's rule `lite`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from ordercast.net.supervise.cluster import run_processes
from ordercast.scenario.model import ClosedLoad, RandomTo, Scenario, Servers, Trace

SERVERS, CLIENTS = 4, 32
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "daisy-chain, lite": ("daisy-chain", {"rule": "lite"}),
    "daisy-chain, strict": ("daisy-chain", {"rule": "strict"}),
    "skeen": ("skeen", {}),
    "delporte-fauconnier": ("delporte-fauconnier", {}),
}


def deliveries_per_s(system: str, destinations: int, seconds: float, seed: int) -> float:
    protocol, options = SYSTEMS[system]
    scenario = Scenario(
        name="atomic-tcp-benchmark",
        overlay=Servers(nodes=SERVERS, clients=CLIENTS),
        workload=[ClosedLoad(publishers="clients", to=RandomTo(count=destinations), until="completed")],
        options=options,
        duration_ms=seconds * 1000,
        trace=Trace(record="app"),
    )
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        outcome = run_processes(scenario, protocol, seed=seed, out=Path(directory) / "run", processes=SERVERS)
    return outcome.delivered / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--destinations", type=int, default=2)
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for seed in range(asked.rounds):
        for system, measured in rates.items():
            measured.append(deliveries_per_s(system, asked.destinations, asked.seconds, seed))
    print(
        f"{SERVERS} servers, {CLIENTS} clients, {asked.destinations} destinations, {asked.rounds} x {asked.seconds} s"
    )
    print(f"{'protocol':24} {'deliveries/s':>13} {'range':>17} {'to lite':>8}")
    base = statistics.median(rates["daisy-chain, lite"])
    for system, measured in rates.items():
        median = statistics.median(measured)
        spread = f"{min(measured):,.0f}-{max(measured):,.0f}"
        print(f"{system:24} {median:13,.0f} {spread:>17} {median / base:8.2f}")


if __name__ == "__main__":
    main()

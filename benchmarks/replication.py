"""What crashes and real-time order cost: the atomic multicasts plain, replicated and with real-time order, in one run.

    python benchmarks/replication.py

Virtual time with a cost for every packet, so the figures are the same on every machine. Closed loops without thinking:
the mean latency is the number of clients over the throughput.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.sim.links.world import World
from ordercast.sim.run import live

MESSAGES = 2000
REPLICAS = 3
GROUPS = 4
PAIRS = [
    [f"n{REPLICAS * group + i}" for group in pair for i in range(REPLICAS)] for pair in combinations(range(GROUPS), 2)
]
TWO = {"kind": "random", "count": 2}


def run(protocol: str, servers: int, to: dict[str, Any], clients: int) -> None:
    scenario = parse_scenario(
        {
            "name": "replication",
            "overlay": {"kind": "servers", "nodes": servers, "clients": clients},
            "duration_ms": 60_000.0,
            "link": {"latency_ms": {"kind": "exponential", "min_ms": 0.05, "mean_ms": 0.02}},
            "node": {
                "cpu": {
                    "per_packet_us": 8.0,
                    "per_byte_us": 0.01,
                    "per_delivery_us": 2.0,
                    "per_send_us": 8.0,
                    "per_sent_byte_us": 0.01,
                }
            },
            "workload": [
                {"kind": "closed", "publishers": "clients", "until": "completed", "limit": MESSAGES, "to": to}
            ],
        }
    )
    world = World(scenario, lookup(protocol), 1, None)
    completions: list[int] = []
    world.completion_watchers.append(lambda _host, _message: completions.append(world.clock.now))
    live(world)
    assert len(completions) == MESSAGES
    throughput = MESSAGES / completions[-1] * 1e9
    packets = sum(channel.sent for channel in world.channels()) / MESSAGES
    print(f"{protocol:34} {servers:7} {clients:7} {throughput:9.0f} {clients / throughput * 1e3:9.3f} {packets:8.1f}")


def main() -> None:
    print(f"{'protocol':34} servers clients  msgs/s    mean ms  packets")
    for clients in (1, 32):
        for protocol in (
            "daisy-chain", "daisy-chain-real-time", "skeen", "skeen-real-time", "delporte-fauconnier",
        ):  # fmt: skip
            run(protocol, 8, TWO, clients)
        for protocol in ("daisy-chain", "skeen", "delporte-fauconnier"):
            run(protocol, GROUPS, TWO, clients)
            run(f"replicated-{protocol}", GROUPS * REPLICAS, {"kind": "explicit", "sets": PAIRS}, clients)
        run("replicated-daisy-chain-real-time", GROUPS * REPLICAS, {"kind": "explicit", "sets": PAIRS}, clients)


if __name__ == "__main__":
    main()

"""Runs one configuration of the atomic multicast studies and measures it: sixteen servers, closed-loop clients.

Costs of a server, in microseconds, for each input: 8, plus 0.01 a byte received; 2 a delivery; 8 plus 0.01 a byte for
each packet sent, answers included. Bytes are those of the real encoding, counters of variable length included.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal, cast

from ordercast.experiments.atomic_multicast.measures import measures
from ordercast.experiments.kit.claims import judged
from ordercast.experiments.kit.study import Row
from ordercast.scenario.model import (
    AnyTo,
    ClosedLoad,
    Cpu,
    GroupsTo,
    Link,
    NodeOverride,
    RandomTo,
    Scenario,
    Servers,
    To,
    TpccTo,
)
from ordercast.scenario.tables import Exponential

SKEEN, DF = "skeen", "delporte-fauconnier"
DCC, DCC_RV = "strict, whole clocks", "strict"
"""The daisy chain as the article has it, corrected: with whole clocks, and with reduced ones."""
LITE, COVER = "lite", "cover"
LITE_WHOLE, COVER_WHOLE = "lite, whole clocks", "cover, whole clocks"

_CHAIN = "daisy-chain"
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    SKEEN: (SKEEN, {}),
    DF: (DF, {}),
    DCC: (_CHAIN, {"rule": "strict", "reduced": False}),
    DCC_RV: (_CHAIN, {"rule": "strict", "reduced": True}),
    LITE: (_CHAIN, {"rule": "lite", "reduced": True}),
    COVER: (_CHAIN, {"rule": "cover", "reduced": True}),
    LITE_WHOLE: (_CHAIN, {"rule": "lite", "reduced": False}),
    COVER_WHOLE: (_CHAIN, {"rule": "cover", "reduced": False}),
}
"""What is compared: name to protocol and its options."""

RANDOM: dict[str, To] = {
    "rand2": RandomTo(count=2), "rand4": RandomTo(count=4), "rand8": RandomTo(count=8), "randN": AnyTo(),
}  # fmt: skip
FEW = ("rand2", "rand4")
"""Random destinations where there are only four servers."""
GROUPS = {"2x8": 2, "4x4": 4, "8x2": 8}
"""Servers per group; the name adds the number of groups among sixteen."""
TPCC = "tpcc"
STRIDED, CONTIGUOUS = "strided", "contiguous"
SERVERS = 16

_COSTS = Cpu(per_packet_us=8.0, per_byte_us=0.01, per_send_us=8.0, per_sent_byte_us=0.01, per_delivery_us=2.0)
_LINK = Link(latency_ms=Exponential(min_ms=0.05, mean_ms=0.02))
_ENOUGH_MS = 3_600_000.0
"""The load ends by its number of messages, long before this."""
_CHECKS = ["integrity", "agreement", "prefix", "acyclic"]


def configuration(
    system: str,
    workload: str,
    clients: int,
    *,
    messages: int,
    seed: int = 0,
    servers: int = SERVERS,
    layout: str = "",
    random: float = 0.0,
) -> Row:
    """`layout` and `random`, the share of messages that go to random servers instead, are of groups alone."""
    return {
        "system": system,
        "workload": workload,
        "layout": layout,
        "random": random,
        "servers": servers,
        "clients": clients,
        "messages": messages,
        "seed": seed,
    }


def measure(parameters: Row) -> Row:
    """Simulate one configuration, measure its trace and have it judged."""
    from ordercast.protocols import lookup
    from ordercast.sim import simulate

    protocol = lookup(SYSTEMS[str(parameters["system"])][0])
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        simulate(scenario(parameters), protocol, out=run)
        return measured_and_judged(run, parameters, genuine=protocol.genuine)


def measured_and_judged(run: Path, parameters: Row, *, genuine: bool) -> Row:
    """Measures of the trace at `run`, and the verdict on it."""
    from ordercast.verify.judge import judge_path

    (verdict,) = judge_path(run, checks=[*_CHECKS, "genuine"] if genuine else _CHECKS)
    return {**measures(run, server_names(cast("int", parameters["servers"]))), **judged(verdict)}


def weigh(parameters: Row) -> float:
    """Packets, which decide how long a simulation takes; handling a clock costs as much as two packets."""
    size = {"rand2": 2, "rand4": 4, "rand8": 8, "randN": 8.5, **GROUPS}.get(str(parameters["workload"]), 1.2)
    packets = size * size if parameters["system"] == SKEEN else 3 * size
    return cast("int", parameters["messages"]) * (packets + 2)


def server_names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


def scenario(parameters: Row) -> Scenario:
    """The scenario of one configuration."""
    count = cast("int", parameters["servers"])
    _, options = SYSTEMS[str(parameters["system"])]
    return Scenario(
        name="atomic-multicast",
        overlay=Servers(nodes=count, clients=cast("int", parameters["clients"])),
        workload=[
            ClosedLoad(
                publishers="clients",
                to=destinations(parameters),
                until="completed",
                limit=cast("int", parameters["messages"]),
            )
        ],
        options=options,
        duration_ms=_ENOUGH_MS,
        link=_LINK,
        nodes=[NodeOverride(nodes=server_names(count), cpu=_COSTS)],
        seed=cast("int", parameters["seed"]),
    )


def destinations(parameters: Row) -> To:
    """How the messages of a configuration find their destinations."""
    workload = str(parameters["workload"])
    if workload == TPCC:
        return TpccTo()
    if workload in RANDOM:
        return RANDOM[workload]
    layout: Literal["contiguous", "strided"] = "contiguous" if parameters["layout"] == CONTIGUOUS else "strided"
    return GroupsTo(size=GROUPS[workload], layout=layout, random=cast("float", parameters["random"]))

"""The source's evaluation as scenarios: eight brokers on three continents, five clients, bank operations, crashes.

The figure of the overlay is not in the source's text: the tree is the one that its logs show, latencies are the means
of the ranges that it gives. Every pair of processes has the latency of its regions, also after a repair.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal, cast

from ordercast.core.chance import mix, salt, unit
from ordercast.experiments.kit.study import Row
from ordercast.scenario.brokers import BrokerClient, BrokerTree, RegionLatency
from ordercast.scenario.model import Crash, Fault, LinkOverride, Scenario, Schedule, Step
from ordercast.services.bank_workload import BankWorkload

PARENTS = {"b1": "b0", "b2": "b0", "b3": "b0", "b4": "b1", "b5": "b1", "b6": "b2", "b7": "b3"}
BROKERS = ("b0", *PARENTS)
CLIENTS = {"c0": ("b4", "topic1"), "c1": ("b5", "topic2"), "c2": ("b6", "topic2"), "c3": ("b6", "topic1"),
           "c4": ("b7", "topic1")}  # fmt: skip
"""Client to its first edge broker and its topic."""
EUROPE, AMERICA, ASIA = "Europe", "North America", "Asia"
REGIONS = {"b0": EUROPE, "b1": AMERICA, "b2": EUROPE, "b3": ASIA, "b4": AMERICA, "b5": AMERICA, "b6": EUROPE,
           "b7": ASIA}  # fmt: skip
BETWEEN_REGIONS = {(EUROPE, AMERICA): 115.0, (EUROPE, ASIA): 240.0, (AMERICA, ASIA): 200.0, (EUROPE, EUROPE): 30.0,
                   (AMERICA, AMERICA): 40.0, (ASIA, ASIA): 35.0}  # fmt: skip
"""One way, in milliseconds."""
RANGES = {(EUROPE, AMERICA): (70.0, 160.0), (EUROPE, ASIA): (180.0, 300.0), (AMERICA, ASIA): (70.0, 300.0)}
"""What the source gives for pairs of continents; within one it gives `WITHIN`."""
WITHIN = (5.0, 70.0)
NEAR = {("b1", "b4"): 25.0, ("b2", "b6"): 15.0}
"""Brokers that are nearer to each other than their regions say."""
TO_EDGE_MS = 5.0

FAILING: dict[str, tuple[str, ...]] = {
    "S0": (), "S1": ("b1",), "S2": ("b0",), "S3": ("b1", "b4"), "S4": ("b0", "b1"), "S5": ("b1", "b2", "b3"),
    "E6": ("b3",),
}  # fmt: skip
"""Scenario to the brokers that crash, together. E6 is no scenario of the source's, only one of its statements."""
SCENARIOS = ("S0", "S1", "S2", "S3", "S4", "S5")
FAULTS = {name: len(FAILING[name]) for name in SCENARIOS}

DEGREE, MAX_HOPS = 3, 3
INTERVAL_MS = 50.0
START_MS = 5_000.0
"""By then the tree stands and everybody is a member."""
FAULT_SHARE = 0.4
"""The brokers crash when so much of the publications have been made."""
AFTER_MS = 5_000.0
"""How long after the crash its effect is looked at by itself."""
_TAIL_MS = 100.0
_DRAIN_MS = 3_600_000.0
"""More than the longest queue that a saturated run leaves behind."""
_LEVELS = {"get_balance": "eventual", "deposit": "causal"}
MEANS, DRAWN = "means", "drawn"
"""Latencies: the means of the source's ranges, or drawn from these ranges, for every pair and seed."""
SIMULATED, PROCESSES = "simulated", "processes"
MAIN = "main"


def configuration(
    scenario: str,
    *,
    seed: int,
    operations: int,
    keys: int = 100,
    order_scope: str = "key",
    view_order: str = "ancestors-first",
    buffer: int = 50_000,
    runs: str = SIMULATED,
    transfers: bool = True,
    latencies: str = MEANS,
    part: str = MAIN,
) -> Row:
    """The parameters of one run.

    `buffer`: entries above which clients are asked to pause. `transfers`: a third of the totals carry two keys.
    `part`: which question the run is for.
    """
    return {
        "part": part,
        "scenario": scenario,
        "runs": runs,
        "faults": len(FAILING[scenario]),
        "keys": keys,
        "transfers": transfers,
        "operations": operations,
        "order_scope": order_scope,
        "view_order": view_order,
        "buffer": buffer,
        "seed": seed,
        **({"latencies": latencies} if latencies != MEANS else {}),
    }


def fault_ms(operations: int) -> float:
    return START_MS + FAULT_SHARE * operations * INTERVAL_MS


def scenario(parameters: Row) -> Scenario:
    """The simulated run with these parameters."""
    operations = cast("int", parameters["operations"])
    name = str(parameters["scenario"])
    drawn_for = cast("int", parameters["seed"]) if parameters.get("latencies") == DRAWN else None
    faults: list[Fault] = [Crash(node=broker, at_ms=fault_ms(operations)) for broker in FAILING[name]]
    return Scenario(
        name=f"ginger-{name.lower()}",
        overlay=overlay(),
        links=[LinkOverride(between=pair, latency_ms=latency) for pair, latency in _pairs(drawn_for).items()],
        workload=[Schedule(steps=steps(parameters))],
        fault=faults,
        options=broker_options(parameters),
        duration_ms=START_MS + operations * INTERVAL_MS + _TAIL_MS,
        drain_ms=_DRAIN_MS,
        seed=cast("int", parameters["seed"]),
    )


def broker_options(parameters: Row) -> dict[str, Any]:
    """The source's parameters; partitions do not happen."""
    return {
        "total_degree": DEGREE,
        "max_hops": MAX_HOPS,
        "request_ms": 2000,
        "stability_ms": 500,
        "buffer_soft_limit": parameters["buffer"],
        "order_scope": parameters["order_scope"],
        "view_order": parameters["view_order"],
        "partitions": "excluded",
    }


def overlay() -> BrokerTree:
    return BrokerTree(
        parents=PARENTS,
        clients={name: BrokerClient(edge=edge, topics=[topic]) for name, (edge, topic) in CLIENTS.items()},
        regions=REGIONS,
        latency=[RegionLatency(between=pair, latency_ms=latency) for pair, latency in BETWEEN_REGIONS.items()],
    )


def _pairs(drawn_for: int | None) -> dict[tuple[str, str], float]:
    """Pairs with a latency of their own; with a seed, all pairs of brokers."""
    brokers = NEAR if drawn_for is None else _drawn(drawn_for)
    return brokers | {(client, edge): TO_EDGE_MS for client, (edge, _) in CLIENTS.items()}


def _drawn(seed: int) -> dict[tuple[str, str], float]:
    """One way between any two brokers, drawn from the range of their regions."""
    found = {}
    for pair in combinations(BROKERS, 2):
        ends = REGIONS[pair[0]], REGIONS[pair[1]]
        low, high = WITHIN if ends[0] == ends[1] else RANGES.get(ends) or RANGES[ends[1], ends[0]]
        found[pair] = low + (high - low) * unit(mix(salt(seed, "latency", *pair), 0))
    return found


def steps(parameters: Row) -> list[Step]:
    """Every client publishes every 50 ms, each in a phase of its own: the bank's operations on accounts at random."""
    operations, seed = cast("int", parameters["operations"]), cast("int", parameters["seed"])
    load = BankWorkload(accounts=cast("int", parameters["keys"]), operations=operations, seed=seed)
    planned = []
    for client, (_, topic) in CLIENTS.items():
        phase = INTERVAL_MS * unit(mix(salt(seed, "phase", client), 0))
        for number, (name, arguments) in enumerate(load.calls(client)):
            at = START_MS + phase + number * INTERVAL_MS
            keys = keys_of(name, arguments) if parameters["transfers"] else keys_of(name, arguments)[:1]
            planned.append(Step(node=client, at_ms=at, topic=topic, keys=keys, guarantee=level_of(name)))
    return sorted(planned, key=lambda step: cast("float", step.at_ms))


def keys_of(operation: str, arguments: tuple[Any, ...]) -> list[str]:
    return [str(account) for account in arguments[: 2 if operation == "transfer" else 1]]


def level_of(operation: str) -> Literal["eventual", "causal", "total"]:
    level = _LEVELS.get(operation, "total")
    return cast("Literal['eventual', 'causal', 'total']", level)


def latency_ms(one: str, other: str) -> float:
    """One way between two brokers, in the simulation."""
    pair = NEAR.get((one, other), NEAR.get((other, one)))
    if pair is not None:
        return pair
    ends = REGIONS[one], REGIONS[other]
    return BETWEEN_REGIONS.get(ends, BETWEEN_REGIONS.get((ends[1], ends[0]), 0.0))


def mean_path_ms() -> float:
    """From a publisher to another member of its topic along the tree, the mean over all such pairs."""
    paths = [
        2 * TO_EDGE_MS + _between(edge, other_edge)
        for client, (edge, topic) in CLIENTS.items()
        for other, (other_edge, other_topic) in CLIENTS.items()
        if client != other and topic == other_topic
    ]
    return sum(paths) / len(paths)


def _between(one: str, other: str) -> float:
    up, down = _to_root(one), _to_root(other)
    return sum(latency_ms(*link) for link in set(up) ^ set(down))


def _to_root(broker: str) -> list[tuple[str, str]]:
    links = []
    while broker in PARENTS:
        links.append((broker, PARENTS[broker]))
        broker = PARENTS[broker]
    return links

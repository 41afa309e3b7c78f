"""How one configuration of the studies is run: a tree, publishers that send as fast as they can or may, one window.

A node has one server for both directions (`charge` "both"): a copy takes its bytes over the bandwidth at the sender,
then the latency of the link, then its bytes over the bandwidth at the receiver, each behind what came before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal, cast

from ordercast.core.chance import shuffled
from ordercast.experiments.kit.claims import UNDECIDED, judged
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu.measures import Meter
from ordercast.scenario.model import (
    ClosedLoad,
    Everyone,
    Groups,
    Link,
    Node,
    OpenLoad,
    Scenario,
    Subtrees,
    Trace,
    Tree,
)

LOCAMU, DELTA, CBCAST, BARRIERS = "locamu", "delta-neighbourhood", "cbcast", "causal-barriers"
MODEL, WIRE = "model", "wire"
"""Sizes as the source counts them, and as they are encoded."""
BOTH, SENDER = "both", "tx"
"""Whose server a copy takes time of."""
ROOT, RANDOM = "root", "random"
ONE, SUBTREES = "one", "subtrees"
MEMBER, ANY = "member", "any"
"""Which groups a publisher chooses from."""
CORRECTED, PUBLISHED = "corrected", "published"
ORDER_HELD = "order held"
"""What the judge says of a run that ended with its window, so that nobody can ask what is missing."""

WINDOW = 64
"""Packets on their way that a link of a publisher may have."""
AS_FAST_AS_IT_CAN = 0.0
_MOST_PER_S = 1e8
_ENOUGH_MS = 7_200_000.0
_NEVER_MS = 600_000.0
"""Nothing is lost here: what is sent again would only have waited."""
_BASE_MBPS = 100.0
COMPLETE = "agreement"
"""The check that needs a run to its end."""


def configuration(
    protocol: str,
    *,
    figures: str = "",
    nodes: int = 511,
    publishers: int = 1,
    placement: str = RANDOM,
    rate_per_s: float = AS_FAST_AS_IT_CAN,
    groups: str = ONE,
    topics: str = MEMBER,
    mbps: float = _BASE_MBPS,
    latency_ms: float = 1.0,
    payload: int = 32,
    f: int = 1,
    profile: str = CORRECTED,
    degree: int = 3,
    sizes: str = MODEL,
    charge: str = BOTH,
    window: int = WINDOW,
    outstanding: int = 0,
    warm: int = 20,
    before: int = 0,
    messages: int = 100,
    drain: bool = True,
    seed: int = 0,
) -> Row:
    """The base configuration of the source, but for what is given.

    `figures` says what it is drawn in, one word each; `rate_per_s` is of each publisher. A publisher waits while one of
    its links has `window` packets on their way or, if it is given, while `outstanding` messages of its own are not
    delivered by all. `warm` and `messages` are deliveries per node before the measurement and in it; `before` is how
    many messages are published before it at least. Without `drain` the run ends with the measurement, and whatever is
    on its way then stays there.
    """
    return {
        "figures": figures,
        "protocol": protocol,
        "nodes": nodes,
        "publishers": publishers,
        "placement": placement,
        "rate_per_s": rate_per_s,
        "groups": groups,
        "topics": topics,
        "mbps": mbps,
        "latency_ms": latency_ms,
        "payload": payload,
        "f": f,
        "profile": profile,
        "degree": degree,
        "sizes": sizes,
        "charge": charge,
        "window": window,
        "outstanding": outstanding,
        "warm": warm,
        "before": before,
        "messages": messages,
        "drain": drain,
        "seed": seed,
    }


def measure(parameters: Row) -> Row:
    """Simulate one configuration, measure it, and have its deliveries judged."""
    from ordercast.protocols import lookup
    from ordercast.sim.run import simulate

    protocol = lookup(str(parameters["protocol"]))
    meter = Meter(parameters, chosen(parameters))
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        simulate(scenario(parameters), protocol, out=run, drive=meter.drive)
        return {**meter.results(), **_judged(run)}


def _judged(run: Path) -> Row:
    from ordercast.verify.judge import judge_path

    (verdict,) = judge_path(run)
    unknown = {result.check for result in verdict.results if result.claimed and result.verdict == "unknown"}
    row = judged(verdict)
    return {**row, "judged": ORDER_HELD} if row["judged"] == UNDECIDED and unknown == {COMPLETE} else row


def scenario(parameters: Row) -> Scenario:
    """The scenario of one configuration."""
    mbps = cast("float", parameters["mbps"])
    sizes = cast("Literal['wire', 'model']", parameters["sizes"])
    groups: Groups = Subtrees() if parameters["groups"] == SUBTREES else Everyone()
    return Scenario(
        name="locamu",
        overlay=Tree(nodes=cast("int", parameters["nodes"]), branching=cast("int", parameters["degree"]) - 1),
        groups=groups,
        workload=[_load(parameters)],
        options=_options(parameters),
        duration_ms=_ENOUGH_MS,
        drain_ms=_ENOUGH_MS,
        link=Link(latency_ms=cast("float", parameters["latency_ms"])),
        node=Node(bandwidth_mbps=mbps, shared=bool(mbps) and parameters["charge"] == BOTH),
        sizes=sizes,
        trace=Trace(record="app"),
        seed=cast("int", parameters["seed"]),
    )


def _options(parameters: Row) -> dict[str, Any]:
    options: dict[str, Any] = {"tally": parameters["sizes"] == MODEL}
    if parameters["protocol"] in (LOCAMU, DELTA):
        options["f"] = parameters["f"]
    if parameters["protocol"] == LOCAMU:
        options["profile"] = parameters["profile"]
    else:
        options["retransmit_ms"] = _NEVER_MS
    return options


def _load(parameters: Row) -> OpenLoad | ClosedLoad:
    publishers = chosen(parameters)
    payload = cast("int", parameters["payload"])
    topics: Literal["member", "any"] = "any" if parameters["topics"] == ANY else "member"
    rate = cast("float", parameters["rate_per_s"]) * len(publishers)
    outstanding = cast("int", parameters["outstanding"])
    if parameters["protocol"] == DELTA and not rate:
        return ClosedLoad(publishers=publishers, topics=topics, payload_bytes=payload, until="completed")
    if outstanding:
        return ClosedLoad(
            publishers=publishers, topics=topics, payload_bytes=payload, outstanding=outstanding, rate_per_s=rate
        )
    return OpenLoad(
        publishers=publishers,
        topics=topics,
        payload_bytes=payload,
        rate_per_s=rate or _MOST_PER_S,
        arrival="regular",
        window=cast("int", parameters["window"]),
    )


def chosen(parameters: Row) -> list[str]:
    """Who publishes: the first nodes, of which the root is one, or a random choice that belongs to the seed."""
    count, nodes = cast("int", parameters["publishers"]), cast("int", parameters["nodes"])
    names = [f"n{i}" for i in range(nodes)]
    if parameters["placement"] == ROOT:
        return names[:count]
    return list(shuffled(names, cast("int", parameters["seed"]), "publishers", 0)[:count])


def weigh(parameters: Row) -> float:
    """Copies of messages, which decide how long a simulation takes; some headers are much longer than others."""
    # In 511 nodes a publication to one of the publisher's subtrees goes to a quarter of them on average.
    before = max(cast("int", parameters["warm"]), cast("int", parameters["before"]) // 4)
    messages = before + cast("int", parameters["messages"])
    together = cast("int", parameters["outstanding"]) * cast("int", parameters["publishers"])
    on_their_way = 0 if parameters["rate_per_s"] else together or 2 * cast("int", parameters["window"])
    dearer = 3.0 ** (cast("int", parameters["f"]) - 1) * (cast("int", parameters["degree"]) / 3)
    crowded = cast("int", parameters["publishers"]) / 100 if parameters["groups"] == SUBTREES else 1.0
    cost = {LOCAMU: 3.0 * dearer, BARRIERS: 5.0 * max(crowded, 1.0)}.get(str(parameters["protocol"]), 1.0)
    return cast("int", parameters["nodes"]) * (messages + on_their_way) * cost

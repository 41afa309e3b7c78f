"""Runs one configuration of the studies: a tree, publishers that send as fast as they can or may, one window.

A node has one server for both directions (`charge` "both"): a copy takes its bytes over the bandwidth at the sender,
then the latency of the link, then its bytes over the bandwidth at the receiver, each behind what came before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.core.chance import shuffled
from ordercast.experiments.kit.claims import UNDECIDED, judged
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu.measures import Meter
from ordercast.scenario.model import (
    ClosedLoad,
    Everyone,
    Groups,
    Link,
    NodeCapacity,
    OpenLoad,
    Scenario,
    Subtrees,
    Trace,
    Tree,
)

LOCAMU, DELTA, CBCAST, BARRIERS = "locamu", "delta-neighbourhood", "cbcast", "causal-barriers"
MODEL: Literal["model"] = "model"
WIRE: Literal["wire"] = "wire"
"""Sizes as the source counts them, and as they are encoded."""
BOTH, SENDER = "both", "tx"
"""Whose server a copy takes time of."""
ROOT, RANDOM = "root", "random"
ONE, SUBTREES = "one", "subtrees"
MEMBER: Literal["member"] = "member"
ANY: Literal["any"] = "any"
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


class RunSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration: the base configuration of the source, but for what is given.

    A publisher waits while one of its links has `window` packets on their way or, if it is given, while `outstanding`
    messages of its own are not delivered by all.
    """

    figures: str = ""
    """What it is drawn in, one word each."""
    protocol: str
    nodes: int = 511
    publishers: int = 1
    placement: str = RANDOM
    rate_per_s: float = AS_FAST_AS_IT_CAN
    """Of each publisher."""
    groups: str = ONE
    topics: Literal["member", "any"] = MEMBER
    mbps: float = _BASE_MBPS
    latency_ms: float = 1.0
    payload: int = 32
    f: int = 1
    profile: str = CORRECTED
    degree: int = 3
    sizes: Literal["wire", "model"] = MODEL
    charge: str = BOTH
    window: int = WINDOW
    outstanding: int = 0
    warm: int = 20
    """Deliveries per node before the measurement."""
    before: int = 0
    """Messages published before it, at least."""
    messages: int = 100
    """Deliveries per node in the measurement."""
    drain: bool = True
    """Whether the run goes on until everything has arrived; else what is on its way at the end stays there."""
    seed: int = 0


def configuration(protocol: str, **changes: Any) -> Row:
    """The parameters of one run: a setting as plain values."""
    return msgspec.structs.asdict(RunSetting(protocol=protocol, **changes))


def measure(parameters: Row) -> Row:
    """Simulate one configuration, measure it, and have its deliveries judged."""
    from ordercast.protocols import lookup
    from ordercast.sim.run import simulate

    setting = msgspec.convert(parameters, RunSetting)
    protocol = lookup(setting.protocol)
    meter = Meter(
        chosen(setting), warm=setting.warm, before=setting.before, messages=setting.messages, degree=setting.degree,
        mbps=setting.mbps, drains=setting.drain,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        simulate(scenario(setting), protocol, out=run, drive=meter.drive)
        return {**meter.results(), **_judged(run)}


def _judged(run: Path) -> Row:
    from ordercast.verify.judge import judge_path

    (verdict,) = judge_path(run)
    unknown = {result.check for result in verdict.results if result.claimed and result.verdict == "unknown"}
    row = judged(verdict)
    return {**row, "judged": ORDER_HELD} if row["judged"] == UNDECIDED and unknown == {COMPLETE} else row


def scenario(setting: RunSetting) -> Scenario:
    """The scenario of one configuration."""
    groups: Groups = Subtrees() if setting.groups == SUBTREES else Everyone()
    return Scenario(
        name="locamu",
        overlay=Tree(nodes=setting.nodes, branching=setting.degree - 1),
        groups=groups,
        workload=[_load(setting)],
        options=_options(setting),
        duration_ms=_ENOUGH_MS,
        drain_ms=_ENOUGH_MS,
        link=Link(latency_ms=setting.latency_ms),
        node=NodeCapacity(bandwidth_mbps=setting.mbps, shared=bool(setting.mbps) and setting.charge == BOTH),
        sizes=setting.sizes,
        trace=Trace(record="app"),
        seed=setting.seed,
    )


def _options(setting: RunSetting) -> dict[str, Any]:
    options: dict[str, Any] = {"tally": setting.sizes == MODEL}
    if setting.protocol in (LOCAMU, DELTA):
        options["f"] = setting.f
    if setting.protocol == LOCAMU:
        options["profile"] = setting.profile
    else:
        options["retransmit_ms"] = _NEVER_MS
    return options


def _load(setting: RunSetting) -> OpenLoad | ClosedLoad:
    publishers = chosen(setting)
    common: dict[str, Any] = {
        "publishers": publishers, "topics": setting.topics, "payload_bytes": setting.payload,
    }  # fmt: skip
    rate = setting.rate_per_s * len(publishers)
    if setting.protocol == DELTA and not rate:
        return ClosedLoad(**common, until="completed")
    if setting.outstanding:
        return ClosedLoad(**common, outstanding=setting.outstanding, rate_per_s=rate)
    return OpenLoad(**common, rate_per_s=rate or _MOST_PER_S, arrival="regular", window=setting.window)


def chosen(setting: RunSetting) -> list[str]:
    """Who publishes: the first nodes, of which the root is one, or a random choice that belongs to the seed."""
    names = [f"n{i}" for i in range(setting.nodes)]
    if setting.placement != ROOT:
        names = list(shuffled(names, setting.seed, "publishers", 0))
    return names[: setting.publishers]


def weigh(parameters: Row) -> float:
    """Copies of messages, which decide how long a simulation takes; some headers are much longer than others."""
    setting = msgspec.convert(parameters, RunSetting)
    # In 511 nodes a publication to one of the publisher's subtrees goes to a quarter of them on average.
    before = max(setting.warm, setting.before // 4)
    messages = before + setting.messages
    together = setting.outstanding * setting.publishers
    on_their_way = 0 if setting.rate_per_s else together or 2 * setting.window
    dearer = 3.0 ** (setting.f - 1) * (setting.degree / 3)
    crowded = setting.publishers / 100 if setting.groups == SUBTREES else 1.0
    cost = {LOCAMU: 3.0 * dearer, BARRIERS: 5.0 * max(crowded, 1.0)}.get(setting.protocol, 1.0)
    return setting.nodes * (messages + on_their_way) * cost

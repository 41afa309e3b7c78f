"""The configurations of the studies as scenarios: who is there, how it moves, who publishes."""

from __future__ import annotations

import math
from itertools import combinations
from typing import cast

from ordercast.core.chance import mix, salt, shuffled, unit
from ordercast.experiments.kit.study import Row
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.model import (
    Crash,
    Detector,
    Fault,
    Link,
    LinkOverride,
    OpenLoad,
    Regular,
    Scenario,
    Trace,
)

ORIGINS = 20
"""So many processes publish where it is not said, however many there are."""
_LINKS_PER_LN = 1.85
"""A process has so many links for every unit of ln N, as Spray comes to have by itself."""
_FACTORS = (0.1, 1.0, 1.0, 1.0, 10.0)
"""Of the latency, where links differ."""
_PAYLOAD = 64


def point(**given: object) -> Row:
    """A configuration: what is not given is as in most of them."""
    usual: Row = {
        "protocol": "preventive",
        "nodes": 100,
        "latency_ms": 50.0,
        "period_s": 60.0,
        "messages": 20,
        "rate_per_s": 1.0,
        "churn_per_minute": 0.0,
        "links_differ": False,
        "hold_ms": 0.0,
        "max_buffer": 1024,
        "memory": "vector",
        "origins": ORIGINS,
        "seed": 0,
    }
    return {**usual, **cast("Row", given)}


def degree(nodes: int) -> int:
    """Links of a process at the beginning."""
    links = round(_LINKS_PER_LN * math.log(nodes))
    return links + (links * nodes) % 2


def warm_up_ms(parameters: Row) -> float:
    """One period, in which every process changes its neighbours once; where nothing moves, until links are open."""
    period = cast("float", parameters["period_s"]) * 1000
    return max(period, 6 * cast("float", parameters["latency_ms"])) if period else 20_000.0


def scenario_of(parameters: Row) -> Scenario:
    """The scenario of one configuration."""
    nodes, seed = cast("int", parameters["nodes"]), cast("int", parameters["seed"])
    latency, period = cast("float", parameters["latency_ms"]), cast("float", parameters["period_s"])
    rate, messages = cast("float", parameters["rate_per_s"]), cast("int", parameters["messages"])
    begin = warm_up_ms(parameters)
    talk_ms = 1000 * messages / rate
    tail_ms = 20 * latency * (10 if parameters["links_differ"] else 1)
    joiners = _joiners(parameters, begin + talk_ms)
    total = nodes + joiners + (nodes + joiners) * degree(nodes) % 2
    return Scenario(
        name="preventive-study",
        overlay=Regular(nodes=total, degree=degree(nodes)),
        link=Link(latency_ms=latency),
        links=_differing(total, latency, seed) if parameters["links_differ"] else [],
        workload=[
            OpenLoad(
                rate_per_s=rate,
                arrival="regular",
                publishers=_publishers(parameters),
                limit=messages,
                payload_bytes=_PAYLOAD,
                start_ms=begin,
                guarantee="causal",
            )
        ],
        detector=Detector(delay_ms=max(4 * latency, 100.0)),
        fault=_churn(parameters, nodes, total, begin, talk_ms),
        options={
            "sampling": "spray" if period else "fixed",
            "period_ms": 1000 * (period or 60.0),
            "ack_ms": 6 * latency * (10 if parameters["links_differ"] else 1) + 1000,
            "hold_ms": cast("float", parameters["hold_ms"]) or 10 * latency + 2000,
            "join_ms": 10 * latency + 5000,
            "max_buffer": parameters["max_buffer"],
            **_memory(str(parameters["memory"])),
        },
        duration_ms=begin + talk_ms + tail_ms,
        drain_ms=max(120_000.0, 60 * latency) * (10 if parameters["links_differ"] else 1),
        trace=Trace(record="app"),
        seed=seed,
    )


def _memory(kind: str) -> dict[str, object]:
    """Memories of links need a copy back to the sender, and do without digests."""
    return {} if kind == "vector" else {"memory": kind, "skip_sender": False, "fallback": "hint"}


def _publishers(parameters: Row) -> list[str]:
    """Some that are there from the beginning and stay."""
    first = [f"n{i}" for i in range(cast("int", parameters["nodes"]) // 2)]
    return shuffled(first, cast("int", parameters["seed"]), "publishers")[: cast("int", parameters["origins"])]


def _joiners(parameters: Row, span_ms: float) -> int:
    share = cast("float", parameters["churn_per_minute"])
    return math.ceil(cast("int", parameters["nodes"]) * share * span_ms / 60_000 / 100) if share else 0


def _churn(parameters: Row, nodes: int, total: int, begin: float, talk_ms: float) -> list[Fault]:
    """As many join as go; of those that go, half leave and half crash. Publishers stay."""
    joiners = _joiners(parameters, begin + talk_ms)
    late = [f"n{i}" for i in range(nodes, total)]
    gone = shuffled([f"n{i}" for i in range(nodes // 2, nodes)], cast("int", parameters["seed"]), "gone")[:joiners]
    span = begin + talk_ms
    salted = salt(cast("int", parameters["seed"]), "churn")
    faults: list[Fault] = [Join(node=name, at_ms=_at(salted, i, span)) for i, name in enumerate(late)]
    for i, name in enumerate(gone):
        at = _at(salted, i + total, span)
        faults.append(Leave(node=name, at_ms=at) if i % 2 else Crash(node=name, at_ms=at))
    return faults


def _at(salted: int, number: int, span_ms: float) -> float:
    return round(span_ms * (0.1 + 0.85 * unit(mix(salted, number))), 3)


def _differing(nodes: int, latency: float, seed: int) -> list[LinkOverride]:
    salted = salt(seed, "factors")
    return [
        LinkOverride(between=(f"n{i}", f"n{j}"), latency_ms=latency * _FACTORS[mix(salted, i, j) % len(_FACTORS)])
        for i, j in combinations(range(nodes), 2)
    ]

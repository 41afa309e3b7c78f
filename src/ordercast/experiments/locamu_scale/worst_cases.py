"""Figure 5.4: its points, from closed forms, and runs whose largest headers are held against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale import zipf
from ordercast.experiments.locamu_scale.closed_forms import (
    barriers_header,
    barriers_memory,
    cbcast_header,
    cbcast_memory,
    entries,
    locamu_memory,
    within,
)
from ordercast.experiments.locamu_scale.simulated import Sizes, as_whole, by_tally, lived
from ordercast.protocols.locamu.rules import radii
from ordercast.protocols.locamu.sizes import formula, largest
from ordercast.scenario.model import BurstLoad, Everyone, Explicit, Groups, Link, Scenario, Tree

FORM, RUN = "closed form", "run"
ZIPF, ONE = "zipf", "one"
SIZES = tuple(2**k for k in range(10, 17))
LARGE = SIZES[-1]
REDUNDANCIES = tuple(range(1, 9))
DEGREES = tuple(range(3, 10))
DEGREE, F = 3, 1
"""Where they are not what is varied."""
ONE_GROUP_NODES = 1_024
DIFFERENCES, WHOLE = "differences", "whole"
"""Whether copies carry what changed, or everything."""

_BURST_MS = 400.0
"""Long enough for a burst to be delivered and acknowledged."""
_PAYLOAD = 32


def _form(nodes: int, *, f: int = F, degree: int = DEGREE, groups: str = ZIPF) -> Row:
    return {"part": FORM, "groups": groups, "nodes": nodes, "f": f, "degree": degree}


def _run(protocol: str, nodes: int, bursts: int, *, headers: str, groups: str = ZIPF, f: int = F) -> Row:
    return {
        "part": RUN, "protocol": protocol, "groups": groups, "nodes": nodes, "f": f, "degree": DEGREE,
        "headers": headers, "bursts": bursts, "seed": 0,
    }  # fmt: skip


def _forms() -> list[Row]:
    points = [_form(nodes) for nodes in SIZES]
    points += [_form(LARGE, f=f) for f in REDUNDANCIES[1:]]
    points += [_form(LARGE, degree=degree) for degree in DEGREES[1:]]
    return [*points, _form(ONE_GROUP_NODES, groups=ONE)]


def _runs(bursts: int, small: int, tiny: int) -> list[Row]:
    rows = [_run("locamu", ONE_GROUP_NODES, bursts, headers=headers) for headers in (DIFFERENCES, WHOLE)]
    rows += [_run("locamu", small, bursts, headers=headers, f=2) for headers in (DIFFERENCES, WHOLE)]
    rows += [
        _run("cbcast", small, bursts, headers=headers, groups=groups)
        for headers in (DIFFERENCES, WHOLE)
        for groups in (ZIPF, ONE)
    ]
    rows += [_run("causal-barriers", tiny, bursts, headers=WHOLE, groups=groups) for groups in (ZIPF, ONE)]
    return rows


SCALES = {"quick": _forms() + _runs(2, 127, 63), "paper": _forms() + _runs(4, 255, 127)}


_COMPUTED = (
    "members", "non_empty_groups", "locamu_formula", "locamu_published", "locamu_corrected", "cbcast", "barriers",
    "locamu_memory_published", "locamu_memory", "cbcast_memory", "barriers_memory", "neighbourhood",
)  # fmt: skip
_MEASURED = ("bound", "model_most", "model_mean", "wire_most", "wire_mean", "judged", "failed_checks")


def completed(rows: Sequence[Row]) -> list[Row]:
    """The rows with a value, or none, for everything that claims and figures look at: parts have different columns."""
    empty: Row = dict.fromkeys((*_COMPUTED, *_MEASURED, "protocol", "headers", "bursts", "seed"))
    return [{**empty, **row} for row in rows]


def measure(parameters: Row) -> Row:
    return _computed(parameters) if parameters["part"] == FORM else _simulated(parameters)


def weigh(parameters: Row) -> float:
    """Hops, roughly, and those of f = 2 and of the baselines cost several times as much."""
    if parameters["part"] == FORM:
        return 1.0
    nodes, bursts = cast("int", parameters["nodes"]), cast("int", parameters["bursts"])
    return nodes * bursts * (20.0 if parameters["protocol"] != "locamu" else 10.0 * cast("int", parameters["f"]) ** 3)


def bound(row: Row) -> int:
    """The closed form that a run's largest whole header is held against."""
    nodes, protocol = cast("int", row["nodes"]), row["protocol"]
    if protocol == "locamu":
        return largest(cast("int", row["degree"]), cast("int", row["f"]))
    if protocol == "cbcast":
        return cbcast_header(entries(nodes, str(row["groups"])))
    return barriers_header(nodes)


def _computed(parameters: Row) -> Row:
    nodes, f, degree = (cast("int", parameters[name]) for name in ("nodes", "f", "degree"))
    members = entries(nodes, str(parameters["groups"]))
    linked = within(degree, f + 1)
    return {
        "members": members,
        "non_empty_groups": sum(size > 0 for size in zipf.group_sizes(nodes)) if parameters["groups"] == ZIPF else 1,
        "locamu_formula": formula(degree, f),
        "locamu_published": largest(degree, f, "published"),
        "locamu_corrected": largest(degree, f),
        "cbcast": cbcast_header(members),
        "barriers": barriers_header(nodes),
        "locamu_memory_published": locamu_memory(degree, f, "published"),
        "locamu_memory": locamu_memory(degree, f, "corrected"),
        "cbcast_memory": cbcast_memory(members, linked),
        "barriers_memory": barriers_memory(nodes),
        "neighbourhood": within(degree, radii(f, "corrected").window) + 1,
    }


def _simulated(parameters: Row) -> Row:
    from ordercast.protocols import lookup

    count = as_whole if parameters["headers"] == WHOLE else by_tally
    sizes = Sizes(lookup(str(parameters["protocol"])), count)
    run = lived(scenario(parameters), sizes.protocol)
    return {"published": run.world.published, "bound": bound(parameters), **sizes.row(), **run.judged}


def scenario(parameters: Row) -> Scenario:
    """Everyone publishes at the same instant to any group, again and again: nothing fills headers faster."""
    nodes, bursts, seed = (cast("int", parameters[name]) for name in ("nodes", "bursts", "seed"))
    options: dict[str, object] = {"tally": True}
    if parameters["protocol"] != "causal-barriers":
        options["delta"] = parameters["headers"] == DIFFERENCES
    if parameters["protocol"] == "locamu":
        options["f"] = parameters["f"]
    return Scenario(
        name="locamu-5.4",
        protocol=str(parameters["protocol"]),
        options=options,
        overlay=Tree(nodes=nodes, branching=cast("int", parameters["degree"]) - 1),
        groups=_groups(nodes, seed) if parameters["groups"] == ZIPF else Everyone(),
        link=Link(latency_ms=1.0),
        workload=[BurstLoad(size=1, every_ms=_BURST_MS, topics="any", payload_bytes=_PAYLOAD)],
        duration_ms=_BURST_MS * bursts,
        seed=seed,
    )


def _groups(nodes: int, seed: int) -> Groups:
    """The groups of figure 5.4 that have members, each with members at random."""
    from ordercast.core.chance import shuffled

    names = [f"n{i}" for i in range(nodes)]
    sizes = [size for size in zipf.group_sizes(nodes) if size]
    return Explicit({f"g{k}": shuffled(names, seed, "zipf-group", k)[:size] for k, size in enumerate(sizes)})

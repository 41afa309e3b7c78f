"""Make a failing broker run small: fewer faults, clients, brokers and publications that still fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ordercast.core.errors import UsageError
from ordercast.scenario.brokers import BrokerTree, Cut
from ordercast.scenario.model import Fault, OpenLoad, Partition, Scenario

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails, tries: int = 400) -> Scenario:
    """A smaller scenario that fails too, as small as so many tries allow."""
    best = scenario
    while True:
        for smaller in _smaller(best):
            tries -= 1
            if tries < 0:
                return best
            try:
                if fails(smaller):
                    best = smaller
                    break
            except UsageError:
                continue
        else:
            return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    replace = msgspec.structs.replace
    for i in range(len(scenario.fault)):
        yield replace(scenario, fault=[fault for j, fault in enumerate(scenario.fault) if j != i])
    tree = scenario.overlay
    assert isinstance(tree, BrokerTree)
    for name in tree.clients:
        if len(tree.clients) > 1:
            yield _without(scenario, name, clients={n: c for n, c in tree.clients.items() if n != name})
    for name in tree.parents:
        below = [child for child, parent in tree.parents.items() if parent == name]
        if not below and all(client.edge != name for client in tree.clients.values()):
            yield _without(scenario, name, parents={b: p for b, p in tree.parents.items() if b != name})
    for i in range(len(scenario.workload)):
        if len(scenario.workload) > 1:
            yield replace(scenario, workload=[load for j, load in enumerate(scenario.workload) if j != i])
    for i, load in enumerate(scenario.workload):
        assert isinstance(load, OpenLoad)
        for limit in _limits(load.limit or 256):
            loads = list(scenario.workload)
            loads[i] = replace(load, limit=limit)
            yield replace(scenario, workload=loads)


def _limits(now: int) -> list[int]:
    return sorted({n for n in (1, now // 2, now - now // 4, now - 1) if 0 < n < now})


def _without(scenario: Scenario, gone: str, **tree: object) -> Scenario:
    faults: list[Fault] = []
    for fault in scenario.fault:
        if isinstance(fault, Partition):
            sides = tuple([name for name in side if name != gone] for side in fault.sides)
            if all(sides):
                faults.append(msgspec.structs.replace(fault, sides=sides))
        elif gone not in (getattr(fault, "node", None), *(fault.between if isinstance(fault, Cut) else ())):
            faults.append(fault)
    overlay = msgspec.structs.replace(scenario.overlay, **tree)
    return msgspec.structs.replace(scenario, overlay=overlay, fault=faults)

"""Destinations of messages without a topic: each way of choosing maps 64 random bits to a set of servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from ordercast.core.chance import mix, unit
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.scenario.model import AnyTo, ExplicitTo, GroupsTo, RandomTo, To, TpccTo

Choose = Callable[[int], tuple[NodeId, ...]]
"""From random bits to destinations, in the order of the servers."""

# Far from what the rest of a message is drawn with: the same bits choose guarantee and keys.
_SIZE, _GROUP, _RANDOM, _HOME, _KIND, _LINES, _OTHER = range(101, 108)

# TPC-C: shares of the transactions that may leave their home warehouse, and how often they do.
_NEW_ORDER, _PAYMENT = 0.45, 0.43
_FEWEST_LINES, _MOST_LINES = 5, 15
_REMOTE_LINE = 0.01
_REMOTE_CUSTOMER = 0.15


def chooser(to: To, servers: Sequence[NodeId], where: str) -> Choose:
    """The function for one `[workload.to]` table; what makes no sense is named by its field."""
    match to:
        case RandomTo(count=count):
            _check(1 <= count <= len(servers), f"{where}.count: {count} is not from 1 to {len(servers)}")
            return lambda bits: _subset(servers, count, bits)
        case AnyTo():
            return lambda bits: _subset(servers, 1 + mix(bits, _SIZE) % len(servers), bits)
        case TpccTo(warehouses_per_node=each):
            _check(each >= 1, f"{where}.warehouses_per_node: {each} is not at least 1")
            return lambda bits: _tpcc(servers, each, bits)
        case GroupsTo():
            return _groups(to, servers, where)
        case ExplicitTo(sets=sets):
            return _explicit(sets, servers, where)
        case _:
            assert_never(to)


def _check(condition: bool, problem: str) -> None:
    if not condition:
        raise UsageError(problem)


def _subset(servers: Sequence[NodeId], count: int, bits: int) -> tuple[NodeId, ...]:
    """The first `count` places of a shuffle, all subsets alike; in the order of the servers."""
    places = list(range(len(servers)))
    for i in range(count):
        j = i + mix(bits, _RANDOM, i) % (len(places) - i)
        places[i], places[j] = places[j], places[i]
    return tuple(servers[place] for place in sorted(places[:count]))


def _groups(to: GroupsTo, servers: Sequence[NodeId], where: str) -> Choose:
    size = to.size
    _check(
        size >= 1 and len(servers) % size == 0,
        f"{where}.size: {len(servers)} servers do not fall into groups of {size}",
    )
    _check(0 <= to.random <= 1, f"{where}.random: {to.random} is not a probability")
    count = len(servers) // size
    strided = to.layout == "strided"
    groups = [tuple(servers[i::count] if strided else servers[i * size : (i + 1) * size]) for i in range(count)]

    def choose(bits: int) -> tuple[NodeId, ...]:
        if to.random and unit(mix(bits, _KIND)) < to.random:
            return _subset(servers, size, bits)
        return groups[mix(bits, _GROUP) % count]

    return choose


def _explicit(sets: list[list[str]], servers: Sequence[NodeId], where: str) -> Choose:
    _check(bool(sets), f"{where}.sets: no set to choose from")
    for i, names in enumerate(sets):
        _check(bool(names), f"{where}.sets[{i}]: no destination")
        _check(len(set(names)) == len(names), f"{where}.sets[{i}]: names a destination twice")
        for name in names:
            if name not in servers:
                raise UsageError(f"{where}.sets[{i}]: {unknown_name('server', name, servers)}")
    known = [tuple(server for server in servers if server in names) for names in sets]
    return lambda bits: known[mix(bits, _GROUP) % len(known)]


def _tpcc(servers: Sequence[NodeId], each: int, bits: int) -> tuple[NodeId, ...]:
    """Home and remote warehouses of one transaction, as the servers that hold them (TPC-C rev. 5.11, 2.4.1, 2.5.1)."""
    warehouses = len(servers) * each
    home = mix(bits, _HOME) % warehouses
    touched = {home}
    kind = unit(mix(bits, _KIND))
    if kind < _NEW_ORDER:
        lines = _FEWEST_LINES + mix(bits, _LINES) % (_MOST_LINES - _FEWEST_LINES + 1)
        remote = [line for line in range(lines) if unit(mix(bits, _LINES, 1 + line)) < _REMOTE_LINE]
        touched.update(_another(home, warehouses, mix(bits, _OTHER, line)) for line in remote)
    elif kind < _NEW_ORDER + _PAYMENT and unit(mix(bits, _LINES)) < _REMOTE_CUSTOMER:
        touched.add(_another(home, warehouses, mix(bits, _OTHER)))
    return tuple(servers[place] for place in sorted({warehouse // each for warehouse in touched}))


def _another(home: int, warehouses: int, bits: int) -> int:
    """Any warehouse but `home`; the only one there is, if there is only one."""
    return (home + 1 + bits % (warehouses - 1)) % warehouses if warehouses > 1 else home

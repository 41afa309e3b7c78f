"""Checks every pair of bank replicas: what they did, and where they ended.

Between two synchronisation points of an account the orders of deposits may differ, so balances are compared right after
a `total` operation on the account, and at the end. All amounts are known from the operations themselves, so the sum of
the balances can be computed from the outcomes: initial + deposits - accepted withdrawals + interest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ordercast.core.ids import Topic
from ordercast.services.bank import TOPIC
from ordercast.services.replica import Applied, Replica


class BankStep(msgspec.Struct, frozen=True, array_like=True):
    """One operation as one replica did it; comparable and storable as JSON."""

    msg: str
    operation: str
    arguments: tuple[Any, ...]
    refused: str | None
    value: Any


class ReplicaHistory(msgspec.Struct):
    """The history of one replica: what it did, and where it ended."""

    replica: str
    steps: list[BankStep]
    balances: dict[str, int]
    initial: dict[str, int] = {}
    """Balances at the start of `steps`, for a replica that began from a snapshot."""
    whole: bool = True
    """Whether the steps begin at the beginning; one that began from a snapshot has done a part of the operations."""


_TOTAL = ("withdraw", "transfer", "apply_interest")


def steps_of(applied: Applied) -> list[BankStep]:
    """The operations of one delivery; a refused unit is one step per call, all refused."""
    if applied.unit is None:
        return [BankStep(applied.publication.id, "", (), applied.outcome.refused, None)]
    values = applied.outcome.values or (None,) * len(applied.unit.calls)
    calls = zip(applied.unit.calls, values, strict=True)
    return [
        BankStep(applied.publication.id, call.operation, call.arguments, applied.outcome.refused, value)
        for call, value in calls
    ]


def balances_of(replica: Replica, topic: str = TOPIC) -> dict[str, int]:
    """The balances of a replica."""
    return {account: int(held) for account, held in replica.contents(Topic(topic), "BankService").items()}


def bank_violations(histories: Sequence[ReplicaHistory]) -> list[str]:
    """Every way in which the replicas disagree with each other or with arithmetic, in words; empty: all is well."""
    found = [f"{history.replica}: {problem}" for history in histories for problem in _arithmetic(history)]
    for history in histories[1:]:
        found += [f"{histories[0].replica} and {history.replica}: {p}" for p in _compare(histories[0], history)]
    return found


def _arithmetic(history: ReplicaHistory) -> list[str]:
    expected = sum(history.initial.values())
    for step in history.steps:
        if step.refused is None:
            expected += _change(step)
    held = sum(history.balances.values())
    problems = [] if held == expected else [f"the balances sum up to {held}, the operations to {expected}"]
    return problems + [f"account {acc} ends below zero: {b}" for acc, b in sorted(history.balances.items()) if b < 0]


def _change(step: BankStep) -> int:
    """The change of the sum of all balances by an operation that happened."""
    match step.operation:
        case "deposit":
            return int(step.arguments[1])
        case "withdraw":
            return -int(step.arguments[1])
        case "apply_interest":
            return int(step.value[1])
        case _:
            return 0


def _compare(one: ReplicaHistory, other: ReplicaHistory) -> list[str]:
    problems: list[str] = []
    mine, theirs = _by_id(one), _by_id(other)
    if one.whole and other.whole:
        alone = sorted(mine.keys() ^ theirs.keys())
        problems += [f"{msg} was done by {one.replica if msg in mine else other.replica} only" for msg in alone]
    for msg in sorted(mine.keys() & theirs.keys()):
        problems += _decisions(msg, mine[msg], theirs[msg])
    for acc in sorted(one.balances.keys() | other.balances.keys()):
        held = one.balances.get(acc, 0), other.balances.get(acc, 0)
        if held[0] != held[1]:
            problems.append(f"account {acc} ends at {held[0]} and {held[1]}")
    return problems


def _decisions(msg: str, mine: list[BankStep], theirs: list[BankStep]) -> list[str]:
    """Same refusals, and the same balance right after each total operation."""
    problems = []
    for a, b in zip(mine, theirs, strict=True):
        if a.operation not in _TOTAL:
            continue
        if a.refused != b.refused:
            problems.append(f"{msg} {a.operation}: {_decision(a)} here, {_decision(b)} there")
        elif a.refused is None and _plain(a.value) != _plain(b.value):
            problems.append(f"{msg} {a.operation}: {a.value} after it here, {b.value} there")
    return problems


def _by_id(history: ReplicaHistory) -> Mapping[str, list[BankStep]]:
    found: dict[str, list[BankStep]] = {}
    for step in history.steps:
        found.setdefault(step.msg, []).append(step)
    return found


def _decision(step: BankStep) -> str:
    return "done" if step.refused is None else f"refused ({step.refused})"


def _plain(value: Any) -> Any:
    """A value that went through JSON comes back with lists for tuples."""
    return list(value) if isinstance(value, tuple) else value

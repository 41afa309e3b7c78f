"""Sizes a recovery buffer, and the number of members to ask. docs/protocols/cluster.md, CLU-7.

The theorem: a buffer of `slots` places takes every update once, first in, first out. An update that is put in is still
there after `rounds` rounds exactly if fewer than `slots` others came meanwhile. Assumed: each of `creators` processes
makes an update in a round with `probability`, independently of others and of earlier rounds, and when an update arrives
depends on that update alone. In bursts more is lost: add the spread of delays to `rounds`.
"""

from __future__ import annotations

import math

import msgspec

from ordercast.core.errors import UsageError


class Load(msgspec.Struct, frozen=True):
    """The load on a recovery buffer while an update must stay in it."""

    creators: int
    """Coordinators, not members."""
    probability: float
    """Of an update by one of them in one round."""
    rounds: int
    """Gossip (`rounds`), detection (a digest: 1), and both patiences of who misses it."""

    @property
    def trials(self) -> int:
        return self.creators * self.rounds

    @property
    def expected(self) -> float:
        """Updates that come meanwhile, on average."""
        return self.trials * self.probability


def check_load(load: Load) -> None:
    """Refuse what is no load, by its field."""
    if load.creators < 1 or load.rounds < 1:
        raise UsageError(f"creators and rounds: {load.creators} and {load.rounds}; both are at least 1")
    if not 0 < load.probability <= 1:
        raise UsageError(f"probability: {load.probability} is not above 0 and at most 1")


def loss_bound(load: Load, slots: int) -> float:
    """CLU-7.1: no more than this is the probability that the update is gone; 1 where the theorem says nothing."""
    mean = load.expected
    if slots <= mean:
        return 1.0
    over = slots / mean - 1
    return math.exp(mean * (over - (1 + over) * math.log1p(over)))


def loss_exact(load: Load, slots: int) -> float:
    """CLU-7.2: the probability itself, that `slots` or more others come."""
    n, p = load.trials, load.probability
    if slots > n:
        return 0.0
    if p == 1 or slots <= 0:
        return 1.0
    log_term = math.lgamma(n + 1) - math.lgamma(slots + 1) - math.lgamma(n - slots + 1)
    term = math.exp(log_term + slots * math.log(p) + (n - slots) * math.log1p(-p))
    total, k = 0.0, slots
    while k <= n and (term > total * 1e-17 or k < load.expected):
        total += term
        term *= (n - k) / (k + 1) * p / (1 - p)
        k += 1
    return min(1.0, total)


def slots_for(load: Load, loss: float) -> int:
    """CLU-7.2: the smallest buffer whose loss is at most that."""
    check_load(load)
    if not 0 < loss < 1:
        raise UsageError(f"loss: {loss} is not between 0 and 1")
    low, high = 0, load.trials + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if loss_exact(load, middle) <= loss else (middle, high)
    return high


def members_to_ask(failure: float, *, crashed: float, has: float = 1.0, lost: float = 0.0) -> int:
    """CLU-7.3: so many, whatever the size of the group, all fail with at most the probability `failure`.

    Assumed: they crash, lack the update (`has`: one has it) and lose packets (`lost`) independently of each other.
    """
    answers = (1 - crashed) * has * (1 - lost) ** 2
    if not 0 < failure < 1 or not 0 < answers <= 1:
        raise UsageError(
            f"failure {failure}, crashed {crashed}, has {has}, lost {lost}: probabilities of a usable answer"
        )
    return 1 if answers == 1 else max(1, math.ceil(math.log(failure) / math.log1p(-answers) - 1e-12))

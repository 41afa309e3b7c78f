"""Theory of recovery: how likely a buffer still has an update, and how likely one of k members answers."""

from __future__ import annotations

import math


def tail(trials: int, probability: float, slots: int) -> float:
    """P(X >= slots) for so many independent updates, each made with this probability: the update is gone."""
    return 1.0 - sum(_term(trials, probability, made) for made in range(slots))


def _term(trials: int, probability: float, made: int) -> float:
    log = math.lgamma(trials + 1) - math.lgamma(made + 1) - math.lgamma(trials - made + 1)
    return math.exp(log + made * math.log(probability) + (trials - made) * math.log1p(-probability))


def bound(mean: float, slots: float) -> float:
    """The source's bound in its general form: (e^d / (1 + d)^(1 + d))^mean for slots = (1 + d) mean; 1 below that."""
    excess = slots / mean - 1
    return math.exp(mean * (excess - (1 + excess) * math.log1p(excess))) if excess > 0 else 1.0


def slots_for(trials: int, probability: float, accepted: float) -> int:
    """The fewest slots with which an update is gone with at most the accepted probability."""
    return next(slots for slots in range(1, trials + 2) if tail(trials, probability, slots) <= accepted)


def answered(asked: int, dead: float, has_it: float, loss: float) -> float:
    """The probability that at least one of so many members answers with the update, if they fail independently."""
    usable = (1 - dead) * has_it * (1 - loss) ** 2
    return 1 - (1 - usable) ** asked

"""The workload of the source's evaluation: keys drawn evenly, guarantees by a mix, operations by guarantee.

Eventual: get_balance; causal: deposit; total: withdraw, transfer and apply_interest in equal parts. Transfers draw two
different accounts. Everything is drawn by identity (seed, client, number): one operation less changes no other one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from ordercast.core.errors import UsageError

_LARGEST = 10_000
_TOTALS = ("withdraw", "transfer", "apply_interest")


class BankWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """n_key_items, n_operations per client, the mix, the interval."""

    accounts: int = 100
    operations: int = 500
    eventual: float = 0.4
    causal: float = 0.3
    total: float = 0.3
    interval_ms: float = 50.0
    seed: int = 0

    def __post_init__(self) -> None:
        """A UsageError names the field that makes no sense."""
        mix = (self.eventual, self.causal, self.total)
        if min(mix) < 0 or abs(sum(mix) - 1) > 1e-9:
            raise UsageError(f"mix {mix}: three shares that add up to 1 are needed")
        if self.accounts < 1 or self.operations < 0 or self.interval_ms < 0:
            raise UsageError("workload: accounts must be at least 1, operations and interval_ms at least 0")

    def calls(self, client: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Operation and arguments, one after the other."""
        for number in range(self.operations):
            yield self.call(client, number)

    def call(self, client: str, number: int) -> tuple[str, tuple[Any, ...]]:
        chance = random.Random(f"{self.seed}/{client}/{number}")  # noqa: S311 - a workload, not a secret
        account = self.account(chance.randrange(self.accounts))
        level = chance.random()
        if level < self.eventual:
            return "get_balance", (account,)
        amount = chance.randint(1, _LARGEST)
        if level < self.eventual + self.causal:
            return "deposit", (account, amount)
        name = chance.choice(_TOTALS)
        if name == "transfer" and self.accounts > 1:
            others = [i for i in range(self.accounts) if self.account(i) != account]
            return name, (account, self.account(chance.choice(others)), amount)
        if name == "apply_interest":
            return name, (account,)
        return "withdraw", (account, amount)

    @staticmethod
    def account(index: int) -> str:
        return f"acc{index:04d}"

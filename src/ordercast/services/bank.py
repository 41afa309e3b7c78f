"""The bank: five operations on accounts, in integer cents, from reads that may be stale to synchronisation points."""

from __future__ import annotations

from ordercast.services.operations import OperationRefused, operation, service
from ordercast.services.staging import Cells

RATE = (1, 100)
"""Interest: one cent in a hundred."""
TOPIC = "bank-pt"
MOST_CENTS = 2**53
"""Every store, client and number format that people use can hold it."""


@service(topic=TOPIC)
class BankService:
    """Amounts are positive numbers of cents. An account that nobody has paid into holds nothing."""

    store: Cells

    @operation(level="eventual", keys=lambda acc: [acc], read_only=True)
    def get_balance(self, acc: str) -> int:
        """The balance of the account at this replica."""
        return self._balance(acc)

    @operation(level="causal", keys=lambda acc, amount: [acc], commutes_with=["deposit"])  # noqa: ARG005
    def deposit(self, acc: str, amount: int) -> int:
        """Add to the account; its new balance."""
        return self._set(acc, self._balance(acc) + _checked(amount))

    @operation(level="linear", keys=lambda acc, amount: [acc])  # noqa: ARG005
    def withdraw(self, acc: str, amount: int) -> int:
        """Take from the account, if it holds so much; its new balance."""
        return self._set(acc, self._covered(acc, amount) - amount)

    @operation(level="linear", keys=lambda src, dst, amount: [src, dst])  # noqa: ARG005
    def transfer(self, src: str, dst: str, amount: int) -> tuple[int, int]:
        """Move from one account to another, if the first holds so much; their new balances."""
        left = self._set(src, self._covered(src, amount) - amount)
        held = self._set(dst, self._balance(dst) + amount)
        return (held, held) if src == dst else (left, held)

    @operation(level="linear", keys=lambda acc: [acc])
    def apply_interest(self, acc: str) -> tuple[int, int]:
        """Add the interest, rounded half to even; the new balance and what was added."""
        balance = self._balance(acc)
        added = interest(balance)
        return self._set(acc, balance + added), added

    def _balance(self, acc: str) -> int:
        held = self.store.get(acc)
        return 0 if held is None else int(held)

    def _covered(self, acc: str, amount: int) -> int:
        balance = self._balance(acc)
        if balance < _checked(amount):
            raise OperationRefused("insufficient funds")
        return balance

    def _set(self, acc: str, balance: int) -> int:
        if balance > MOST_CENTS:
            raise OperationRefused(f"an account holds at most {MOST_CENTS} cents")
        self.store.put(acc, b"%d" % balance)
        return balance


def bank_on(topic: str) -> type[BankService]:
    """The same bank on another topic: one bank a country, say."""
    if topic == TOPIC:
        return BankService
    return service(topic=topic, name=BankService.__name__)(type(BankService.__name__, (BankService,), {}))


def interest(balance: int) -> int:
    """Of a balance in cents, in cents, half a cent to the even one."""
    numerator, denominator = RATE
    whole, rest = divmod(balance * numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def _checked(amount: int) -> int:
    if not isinstance(amount, int) or isinstance(amount, bool) or amount <= 0:
        raise OperationRefused(f"{amount!r} is not a positive number of cents")
    return amount

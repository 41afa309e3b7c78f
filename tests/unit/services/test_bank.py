"""The bank's arithmetic, its workload, and the checks over replicas: each can fail."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.services.bank import interest
from ordercast.services.bank_checks import BankStep, ReplicaHistory, bank_violations
from ordercast.services.bank_workload import BankWorkload


@given(st.integers(0, 10**15))
def test_interest_is_rounded_half_to_even(balance: int) -> None:
    assert interest(balance) == round(Fraction(balance, 100))


def test_the_half_cents() -> None:
    assert [interest(b) for b in (0, 49, 50, 51, 150, 250, 350)] == [0, 0, 0, 1, 2, 2, 4]


def test_the_workload_is_the_same_each_time_and_has_the_mix() -> None:
    workload = BankWorkload(accounts=10, operations=4000, seed=5)
    calls = list(workload.calls("c0"))
    assert calls == list(workload.calls("c0"))
    assert calls != list(workload.calls("c1"))
    share = {name: count / 4000 for name, count in Counter(name for name, _ in calls).items()}
    expected = {"get_balance": 0.4, "deposit": 0.3, "withdraw": 0.1, "transfer": 0.1, "apply_interest": 0.1}
    assert share.keys() == expected.keys()
    assert all(abs(share[name] - expected[name]) < 0.03 for name in share)
    assert all(args[0] != args[1] for name, args in calls if name == "transfer")


@pytest.mark.parametrize("fields", [{"total": 0.5}, {"eventual": -0.1, "causal": 0.8}, {"accounts": 0}])
def test_a_workload_that_makes_no_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        BankWorkload(**fields)  # type: ignore[arg-type]


def _history(**changes: object) -> ReplicaHistory:
    steps = [
        BankStep("c#1", "deposit", ("a", 100), None, 100),
        BankStep("c#2", "withdraw", ("a", 30), None, 70),
        BankStep("c#3", "withdraw", ("a", 300), "insufficient funds", None),
        BankStep("c#4", "transfer", ("a", "b", 20), None, (50, 20)),
        BankStep("c#5", "apply_interest", ("a",), None, (50, 0)),
    ]
    return msgspec.structs.replace(ReplicaHistory("r", steps, {"a": 50, "b": 20}), **changes)


def test_equal_histories_have_no_violation_also_after_a_trip_through_json() -> None:
    again = msgspec.json.decode(msgspec.json.encode(_history(replica="s")), type=ReplicaHistory)
    assert bank_violations([_history(), again]) == []


def _with(index: int, **changes: object) -> list[BankStep]:
    steps = _history().steps
    steps[index] = msgspec.structs.replace(steps[index], **changes)
    return steps


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"steps": _with(1, refused="insufficient funds"), "balances": {"a": 80, "b": 20}}, "done here, refused"),
        ({"steps": _with(3, value=(51, 20))}, "after it here"),
        ({"balances": {"a": 20, "b": 50}}, "account a ends at 50 and 20"),
        ({"steps": _history().steps[:-1]}, "c#5 was done by r only"),
        ({"balances": {"a": 51, "b": 20}}, "the balances sum up to 71, the operations to 70"),
        ({"balances": {"a": 71, "b": -1}}, "below zero"),
    ],
)
def test_each_kind_of_disagreement_is_found(other: dict[str, object], words: str) -> None:
    found = bank_violations([_history(), _history(replica="s", **other)])
    assert any(words in problem for problem in found), found

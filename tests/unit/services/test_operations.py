"""Declarations: levels, keys, topics, and what is wrong with them."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.messages import Guarantee
from ordercast.services.bank import BankService
from ordercast.services.frontend import plan
from ordercast.services.operations import operation, service, service_of


@service(topic=lambda iban, *_: f"accounts.{iban[:2]}", key_levels={"PT-vault": "linear"})
class Accounts:
    @operation(level="causal", keys=lambda iban, amount: [iban])
    def deposit(self, iban: str, amount: int = 1) -> None: ...

    @operation(level="eventual", keys=lambda iban: [iban], read_only=True)
    def look(self, iban: str) -> None: ...

    @operation(level="total")
    def close_day(self) -> None: ...


def test_linear_is_another_word_for_total() -> None:
    assert service_of(BankService).operations["withdraw"].level == Guarantee.TOTAL


def test_the_level_of_a_call_is_the_highest_of_operation_and_keys() -> None:
    assert plan(Accounts, "deposit", ("PT-1", 5), {}).level == Guarantee.CAUSAL
    assert plan(Accounts, "deposit", ("PT-vault", 5), {}).level == Guarantee.TOTAL
    assert plan(Accounts, "look", ("PT-vault",), {}).level == Guarantee.TOTAL


def test_the_topic_may_be_a_function_of_the_arguments() -> None:
    assert plan(Accounts, "deposit", ("ES-1", 5), {}).topic == "accounts.ES"
    with pytest.raises(UsageError, match="topic cannot be found"):
        plan(Accounts, "close_day", (), {})


def test_arguments_by_name_and_defaults_travel_by_position() -> None:
    assert plan(Accounts, "deposit", (), {"iban": "PT-1"}).call.arguments == ("PT-1", 1)


def test_keys_are_sorted_without_repeats_and_never_none() -> None:
    transfer = service_of(BankService).operations["transfer"]
    assert transfer.key_items(("b", "a", 1)) == ("a", "b")
    assert transfer.key_items(("a", "a", 1)) == ("a",)
    assert service_of(Accounts).operations["close_day"].key_items(()) == ("",)


def test_a_call_that_does_not_fit_is_refused_before_it_is_published() -> None:
    with pytest.raises(UsageError, match="operation 'deposit'"):
        plan(Accounts, "deposit", (), {})
    with pytest.raises(UsageError, match="did you mean 'deposit'"):
        plan(Accounts, "deposi", (), {})


def test_declarations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown level 'strong'"):
        operation(level="strong")
    with pytest.raises(UsageError, match="by position"):

        @operation(level="total")
        def named_only(self: object, *, acc: str) -> None: ...

    with pytest.raises(UsageError, match="commutes_with of Broken"):

        @service(topic="t")
        class Broken:
            @operation(level="causal", commutes_with=["nothing"])
            def put(self) -> None: ...

    with pytest.raises(UsageError, match="has no operation"):
        service(topic="t")(type("Empty", (), {}))
    with pytest.raises(UsageError, match="is not a service"):
        service_of(int)


def test_writes_below_total_that_do_not_commute_are_named_as_hazards() -> None:
    assert service_of(BankService).hazards() == []
    assert service_of(Accounts).hazards() == [("deposit", "deposit")]


def test_two_reads_always_commute() -> None:
    bank = service_of(BankService)
    assert bank.commute("get_balance", "get_balance")
    assert bank.commute("deposit", "deposit")
    assert not bank.commute("deposit", "apply_interest")

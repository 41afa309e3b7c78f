"""Runs that were no bank, read as one: agreeing orders pass, a broken synchronisation point shows."""

from __future__ import annotations

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.services.bank_checks import bank_violations
from ordercast.services.bank_replay import as_bank_call, bank_histories


def _publication(number: int, level: Guarantee, *keys: str, origin: str = "a") -> Publication:
    return Publication(Origin(origin), number, Topic("t1"), b"x", level, keys or ("k",))


def test_every_guarantee_has_its_operation() -> None:
    names = [as_bank_call(_publication(1, level)).operation for level in (Guarantee(n) for n in range(3))]
    assert names == ["get_balance", "get_balance", "deposit"]
    assert as_bank_call(_publication(1, Guarantee.TOTAL, "k", "l")).operation == "transfer"
    assert as_bank_call(_publication(1, Guarantee.TOTAL)).operation in ("withdraw", "apply_interest")


def test_deposits_may_come_in_any_order_between_two_totals() -> None:
    one, two = (_publication(1, Guarantee.CAUSAL, origin=origin) for origin in "ab")
    total = _publication(2, Guarantee.TOTAL)
    histories = bank_histories({"x": [one, two, total], "y": [two, one, total], "z": [one, two, total]})
    assert all(step.refused is None for step in histories[0].steps[:2])
    assert bank_violations(histories) == []


def test_a_deposit_on_the_wrong_side_of_a_total_is_found() -> None:
    found = []
    for number in range(2, 12):
        deposit, total = _publication(1, Guarantee.CAUSAL, origin="b"), _publication(number, Guarantee.TOTAL)
        found += bank_violations(bank_histories({"x": [deposit, total], "y": [total, deposit]}))
    assert found


def test_a_lost_publication_is_found() -> None:
    deposit = _publication(1, Guarantee.CAUSAL)
    assert bank_violations(bank_histories({"x": [deposit], "y": []}))

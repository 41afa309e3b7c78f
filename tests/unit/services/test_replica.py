"""Exactly once, in order, all of a unit or nothing; the same refusals wherever it is applied."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.operations import operation, service
from ordercast.services.replica import Replica
from ordercast.services.staging import Cells
from ordercast.services.stores.memory import MemoryStore, MemoryTxn
from ordercast.services.stores.port import StoreError
from ordercast.services.wire import Call
from tests.support.bank_lab import BANK, bank_dispatcher, published, raw, unit


def _balance(replica: Replica, account: str) -> object:
    return replica.read(BANK, Call("BankService", "get_balance", (account,)))


def test_what_is_delivered_twice_is_applied_once() -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    deposit = published("deposit", "a", 5)
    assert len(replica.apply([deposit, deposit])) == 1
    assert replica.apply([deposit]) == []
    assert _balance(replica, "a") == 5


def test_the_received_set_read_back_is_what_was_applied() -> None:
    store = MemoryStore()
    replica = Replica(store, bank_dispatcher())
    numbers = [("ann", 1), ("ann", 3), ("bob", 1), ("ann", 2), ("bob", 4)]
    replica.apply([published("deposit", "a", 1, number=n, origin=o) for o, n in numbers])
    again = Replica(store, bank_dispatcher())
    assert again.received(BANK) == {"ann": (3, ()), "bob": (1, (4,))} == replica.received(BANK)
    assert again.apply([published("deposit", "a", 1, number=4, origin="bob")]) == []
    assert _balance(again, "a") == 5


def test_a_unit_is_undone_as_a_whole_if_one_part_refuses() -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    replica.apply([published("deposit", "a", 5)])
    before = replica.digest(BANK)
    (applied,) = replica.apply([unit([("deposit", ("b", 3)), ("withdraw", ("a", 6))], number=2)])
    assert applied.outcome.refused == "insufficient funds"
    assert replica.digest(BANK) == before
    assert Received(replica.received(BANK)).low == {"ann": 2}
    (applied,) = replica.apply([unit([("withdraw", ("a", 5)), ("deposit", ("b", 3))], number=3)])
    assert applied.outcome.values == (0, 3)


def test_operations_of_one_batch_see_each_other_and_not_what_was_undone() -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    applied = replica.apply(
        [
            published("deposit", "a", 5, number=1),
            unit([("withdraw", ("a", 2)), ("withdraw", ("a", 9))], number=2),
            published("withdraw", "a", 5, number=3),
        ]
    )
    assert [a.outcome.refused for a in applied] == [None, "insufficient funds", None]
    assert _balance(replica, "a") == 0


@pytest.mark.parametrize(
    ("publication", "reason"),
    [
        (raw(Call("BankService", "withdraw", ("a", 1)), level=Guarantee.CAUSAL), "published as causal, needs total"),
        (raw(Call("BankService", "transfer", ("a", "b", 1))), "without the keys"),
        (raw(Call("BankService", "rob", ("a",))), "no operation 'rob'"),
        (raw(Call("BankService", "deposit", ("a",))), "missing a required argument"),
        (raw(Call("BankService", "deposit", (["a"], 1))), "deposit"),
        (raw(Call("BankService", "deposit", ("a", "many"))), "not a positive number"),
        (raw(Call("BankService", "deposit", ("a", -1))), "not a positive number"),
        (raw(Call("Casino", "deposit", ("a", 1))), "no service 'Casino'"),
    ],
)
def test_what_was_published_against_its_declaration_is_refused_everywhere_alike(
    publication: Publication, reason: str
) -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    (applied,) = replica.apply([publication])
    assert applied.outcome.refused is not None
    assert reason in applied.outcome.refused
    assert replica.has(publication)


def test_bytes_that_are_no_operation_are_skipped_and_counted_as_received() -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    for payload in (b"", b"\xc1", b"\x93\x01\x02\x03", b"\xff" * 10):
        odd = msgspec.structs.replace(raw(), payload=payload, number=len(payload) + 1)
        (applied,) = replica.apply([odd])
        assert applied.unit is None
        assert replica.has(odd)


class FailingStore(MemoryStore):
    """Fails at the calls whose numbers were given."""

    def __init__(self, fails: set[int], *, after: bool) -> None:
        super().__init__()
        self.fails = fails
        self.after = after
        self.commits = 0

    def begin(self) -> MemoryTxn:
        return FailingTxn(self)


class FailingTxn(MemoryTxn):
    def commit(self) -> None:
        store = self._open()
        assert isinstance(store, FailingStore)
        store.commits += 1
        failing = store.commits in store.fails
        if failing and not store.after:
            raise StoreError("disk on fire")
        super().commit()
        if failing:
            raise StoreError("connection lost while committing")


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_commit_is_retried_with_the_same_entries_also_if_it_had_happened(after: bool) -> None:
    store = FailingStore({1, 2, 4}, after=after)
    errors: list[int] = []
    replica = Replica(store, bank_dispatcher(), retry=lambda _error, attempt: errors.append(attempt))
    for number in (1, 2, 3):
        replica.apply([published("deposit", "a", 10, number=number)])
    assert errors == [1, 2, 1]
    assert _balance(replica, "a") == 30
    assert Replica(store, bank_dispatcher()).received(BANK) == {"ann": (3, ())}


@service(topic="bank-pt")
class Odd:
    store: Cells

    @operation(level="total")
    def crash(self) -> None:
        self.store.put("half", b"done")
        raise KeyError("bug")

    @operation(level="eventual", read_only=True)
    def peep(self) -> None:
        self.store.put("sneaky", b"write")


def test_an_operation_that_fails_is_refused_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Dispatcher()
    dispatcher.register(Odd())
    replica = Replica(MemoryStore(), dispatcher)
    empty = replica.digest(BANK)
    for number, name in enumerate(("crash", "peep"), 1):
        (applied,) = replica.apply([raw(Call("Odd", name, ()), keys=("",), number=number)])
        assert applied.outcome.refused is not None
        assert f"{name} failed" in applied.outcome.refused
    assert replica.digest(BANK) == empty
    assert "crash" in caplog.text


def test_a_snapshot_replaces_state_and_received_set() -> None:
    giver, taker = (Replica(MemoryStore(), bank_dispatcher()) for _ in range(2))
    giver.apply([published("deposit", "a", 5), published("deposit", "b", 7, origin="bob")])
    taker.apply([published("deposit", "z", 1, origin="zoe")])
    taker.start_over(BANK)
    assert taker.must_start_over(BANK)
    taker.restore(giver.snapshot(BANK))
    assert not taker.must_start_over(BANK)
    assert taker.digest(BANK) == giver.digest(BANK)
    assert taker.received(BANK) == giver.received(BANK) == {"ann": (1, ()), "bob": (1, ())}
    assert Replica(taker.store, bank_dispatcher()).received(BANK) == giver.received(BANK)


def test_a_snapshot_of_a_service_that_is_not_here_changes_nothing() -> None:
    giver, taker = Replica(MemoryStore(), bank_dispatcher()), Replica(MemoryStore(), Dispatcher())
    giver.apply([published("deposit", "a", 5)])
    with pytest.raises(UsageError, match="no service 'BankService'"):
        taker.restore(giver.snapshot(BANK))
    assert taker.received(BANK) == {}


def test_digests_depend_on_the_data_only() -> None:
    one, other = (Replica(MemoryStore(), bank_dispatcher()) for _ in range(2))
    deposits = [published("deposit", "a", n, number=n) for n in (1, 2, 3)]
    one.apply(deposits)
    other.apply(deposits[::-1])
    assert one.digest(BANK) == other.digest(BANK)
    other.apply([published("deposit", "a", 1, origin="bob")])
    assert one.digest(BANK) != other.digest(BANK)


def test_own_operations_are_known_to_be_own() -> None:
    seen: list[bool] = []

    @service(topic="bank-pt")
    class Watcher:
        @operation(level="total")
        def look(self) -> None:
            seen.append(self.context.own)  # type: ignore[attr-defined]

    dispatcher = Dispatcher()
    dispatcher.register(Watcher())
    replica = Replica(MemoryStore(), dispatcher)
    replica.apply([raw(Call("Watcher", "look", ()), keys=("",), number=n) for n in (1, 2)], own=Origin("eve"))
    replica.apply([raw(Call("Watcher", "look", ()), keys=("",), number=3)], own=Origin("ann"))
    assert seen == [True, True, False]

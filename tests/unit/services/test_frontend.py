"""Calls: eager publication, values from the local echo, refusals, lost sessions, local reads, transactions."""

from __future__ import annotations

import asyncio

import pytest

from ordercast.core.errors import UsageError
from ordercast.services.bank import BankService
from ordercast.services.bus import BusSessionLost
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.local_bus import LocalHub
from ordercast.services.node import ReplicaNode
from ordercast.services.operations import OperationRefused, operation, service
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.transactions import CrossTopicTransaction
from tests.support.bank_lab import BANK, BankNode, rest
from tests.support.loop import run_async


def test_a_call_completes_with_the_value_of_the_local_replica() -> None:
    async def main() -> None:
        hub = LocalHub(seed=1)
        ann, bob = BankNode(hub.connect("ann")), BankNode(hub.connect("bob"))
        async with ann.node, bob.node:
            assert await ann.bank.deposit("a", 10) == 10
            assert await ann.bank.withdraw("a", 4) == 6
            assert await ann.bank.transfer("a", "b", 1) == (5, 1)
            with pytest.raises(OperationRefused, match="insufficient funds"):
                await ann.bank.withdraw("a", 100)
            await rest(hub)
            assert await bob.bank.get_balance("a") == 5
            assert [s.refused for s in bob.steps][:4] == [None, None, None, "insufficient funds"]

    run_async(main)


def test_calling_publishes_at_once_and_in_the_order_of_the_calls() -> None:
    async def main() -> None:
        hub = LocalHub(seed=2)
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            later = [ann.bank.deposit("a", 1), ann.bank.withdraw("a", 1), ann.bank.deposit("a", 5)]
            ann.bank.deposit.send("a", 7)
            assert await asyncio.gather(*later) == [1, 0, 5]
            await rest(hub)
            assert [s.operation for s in ann.steps] == ["deposit", "withdraw", "deposit", "deposit"]

    run_async(main)


def test_an_eventual_read_may_be_answered_without_a_publication() -> None:
    async def main() -> None:
        hub = LocalHub()
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            bank = ann.node.frontend(publish_reads=False).of(BankService)
            await bank.deposit("a", 3)
            assert await bank.get_balance("a") == 3
            assert [s.operation for s in ann.steps] == ["deposit"]
            assert await ann.bank.get_balance("a") == 3
            assert [s.operation for s in ann.steps] == ["deposit", "get_balance"]

    run_async(main)


def test_a_fenced_session_fails_what_waits_and_what_comes() -> None:
    async def main() -> None:
        hub = LocalHub()
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            waiting = ann.bank.deposit("a", 1)
            hub.fence(ann.node.bus.origin)
            with pytest.raises(BusSessionLost, match="fenced"):
                await waiting
            await asyncio.sleep(0)
            with pytest.raises(BusSessionLost):
                ann.bank.deposit("a", 1)
            assert ann.node.replica.must_start_over(BANK)

    run_async(main)


def test_a_stopped_replica_leaves_no_call_waiting() -> None:
    async def main() -> None:
        ann = BankNode(LocalHub().connect("ann"))
        await ann.node.start()
        waiting = ann.bank.deposit("a", 1)
        await ann.node.stop()
        with pytest.raises(BusSessionLost):
            await waiting

    run_async(main)


def test_a_topic_that_the_replica_does_not_hold_is_refused_to_the_caller() -> None:
    @service(topic="elsewhere")
    class Elsewhere:
        @operation(level="total")
        def go(self) -> None: ...

    async def main() -> None:
        ann = BankNode(LocalHub().connect("ann"))
        async with ann.node:
            with pytest.raises(UsageError, match="this replica has only bank-pt"):
                ann.node.frontend().of(Elsewhere).go()
            with pytest.raises(AttributeError, match="no operation 'rob'"):
                ann.bank.rob  # noqa: B018

    run_async(main)


def test_a_transaction_is_one_publication_and_all_or_nothing() -> None:
    async def main() -> None:
        hub = LocalHub(seed=3)
        ann, bob = BankNode(hub.connect("ann")), BankNode(hub.connect("bob"))
        async with ann.node, bob.node:
            frontend = ann.node.frontend()
            async with frontend.transaction() as tx:
                bank = tx.of(BankService)
                bank.deposit("a", 10)
                bank.withdraw("a", 4)
                async with frontend.transaction() as inner:
                    inner.of(BankService).deposit("b", 1)
            assert tx.values == (10, 6, 1)
            with pytest.raises(OperationRefused):  # noqa: PT012
                async with frontend.transaction() as tx:
                    tx.call(BankService, "deposit", "c", 5)
                    tx.call(BankService, "withdraw", "a", 7)
            assert tx.values == ()
            with pytest.raises(UsageError, match="is over"):
                tx.call(BankService, "deposit", "c", 5)
            await rest(hub)
            assert len(set(ann.order)) == len(set(bob.order)) == 2
            assert ann.history().balances == bob.history().balances == {"a": 6, "b": 1}

    run_async(main)


def test_an_exception_inside_the_block_publishes_nothing_and_an_empty_one_neither() -> None:
    async def main() -> None:
        hub = LocalHub()
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with ann.node.frontend().transaction() as tx:
                    tx.call(BankService, "deposit", "a", 1)
                    raise ZeroDivisionError
            async with ann.node.frontend().transaction():
                pass
            assert await ann.bank.get_balance("a") == 0
            assert len(ann.order) == 1

    run_async(main)


def test_a_transaction_over_two_topics_is_refused_at_commit() -> None:
    @service(topic=lambda country: country)
    class Countries:
        @operation(level="causal")
        def visit(self, country: str) -> None: ...

    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.register(Countries(), "*")
        node = ReplicaNode(LocalHub().connect("ann"), MemoryStore(), dispatcher, topics=["pt", "es"])
        async with node:
            with pytest.raises(CrossTopicTransaction, match="es, pt"):  # noqa: PT012
                async with node.frontend().transaction() as tx:
                    tx.of(Countries).visit("pt")
                    tx.of(Countries).visit("es")
            await node.frontend().of(Countries).visit("pt")

    run_async(main)

"""A new or fenced replica starts from another one's state, and nothing is lost or doubled around it."""

from __future__ import annotations

import asyncio

import pytest

from ordercast.core.ids import Origin
from ordercast.services import snapshot_exchange
from ordercast.services.bank_checks import bank_violations
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.local_bus import LocalHub
from ordercast.services.stores.memory import MemoryStore
from tests.services.conftest import Opener
from tests.support.bank_lab import BANK, BankNode, rest, run_workload
from tests.support.loop import run_async


@pytest.mark.parametrize("seed", range(6))
def test_a_replica_that_joins_in_the_middle_of_the_traffic_ends_like_the_others(seed: int) -> None:
    async def main() -> None:
        hub = LocalHub(seed=seed)
        ann, bob = BankNode(hub.connect("ann")), BankNode(hub.connect("bob"))
        async with ann.node, bob.node:
            await run_workload([ann, bob], BankWorkload(accounts=4, operations=40, seed=seed))
            await rest(hub)
            hub.stabilise()
            more = asyncio.ensure_future(
                run_workload([ann, bob], BankWorkload(accounts=4, operations=40, seed=seed + 100))
            )
            await asyncio.sleep(0)
            cho = BankNode(hub.connect("cho"))
            async with cho.node:
                assert await cho.bank.deposit("acc0000", 1) > 1  # It has the balance of the others.
                await more
                await rest(hub)
                histories = [node.history() for node in (ann, bob, cho)]
                histories[2].whole = False
                assert [p for p in bank_violations(histories) if "sum up" not in p] == []
                assert cho.node.replica.received(BANK) == ann.node.replica.received(BANK)
                assert 0 < len(cho.order) < len(ann.order)
                assert not set(cho.order) - set(ann.order)

    run_async(main)


def test_a_young_topic_needs_no_snapshot() -> None:
    async def main() -> None:
        hub = LocalHub()
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            await ann.bank.deposit("a", 1)
            bob = BankNode(hub.connect("bob"))
            async with bob.node:
                await rest(hub)
                assert bob.order == ann.order

    run_async(main)


def test_a_fenced_replica_takes_the_state_of_a_member_in_its_next_session(opener: Opener) -> None:
    async def main() -> None:
        hub = LocalHub(seed=9)
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            bob = BankNode(hub.connect("bob"), opener())
            await bob.node.start()
            await bob.bank.deposit("a", 5)
            hub.fence(Origin("bob"))
            while bob.node.lost is None:
                await asyncio.sleep(0.001)
            await bob.node.stop()
            await ann.bank.deposit("a", 7)
            bob = BankNode(hub.connect("bob", 1), opener())
            async with bob.node:
                assert bob.order == []  # All of it came with the snapshot.
                assert bob.history().balances == {"a": 12}
                assert not bob.node.replica.must_start_over(BANK)

    run_async(main)


def test_a_restarted_session_goes_on_from_its_own_store(opener: Opener) -> None:
    async def main() -> None:
        hub = LocalHub(seed=4)
        ann = BankNode(hub.connect("ann"))
        async with ann.node:
            bob = BankNode(hub.connect("bob"), opener())
            await bob.node.start()
            await run_workload([ann, bob], BankWorkload(accounts=2, operations=20))
            await bob.node.stop()
            await run_workload([ann], BankWorkload(accounts=2, operations=20, seed=1))
            again = BankNode(hub.connect("bob"), opener())
            async with again.node:
                await rest(hub)
                assert sorted(bob.order + again.order) == sorted(ann.order)
                assert again.history().balances == ann.history().balances

    run_async(main)


def test_a_session_whose_state_is_older_than_the_base_takes_a_snapshot() -> None:
    """It would otherwise miss what became stable while it was no member, without noticing."""

    async def main() -> None:
        hub = LocalHub()
        ann, store = BankNode(hub.connect("ann")), MemoryStore()
        async with ann.node:
            bob = BankNode(hub.connect("bob"), store)
            await bob.node.start()
            await ann.bank.deposit("a", 1)
            await rest(hub)
            await bob.node.stop()
            hub.fence(Origin("bob"))  # The process is gone and hears nothing of it.
            await ann.bank.deposit("a", 1)
            hub.stabilise()
            again = BankNode(hub.connect("bob", 1), store)
            async with again.node:
                assert again.history().balances == {"a": 2}
                assert again.order == []

    run_async(main)


def test_a_member_that_dies_after_it_was_picked_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_exchange, "CHUNK_BYTES", 16)
    silent = {Origin("ann")}
    send = snapshot_exchange.SnapshotExchange._send_state

    def dies(self: snapshot_exchange.SnapshotExchange, topic: object, token: bytes) -> None:
        if self._me not in silent:
            send(self, topic, token)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_exchange.SnapshotExchange, "_send_state", dies)

    async def main() -> None:
        hub = LocalHub()
        ann, bob = BankNode(hub.connect("ann")), BankNode(hub.connect("bob"))
        async with ann.node, bob.node:
            await ann.bank.deposit("a", 1)
            await rest(hub)
            hub.stabilise()
            cho = BankNode(hub.connect("cho"), ask_again_s=0.05)
            starting = asyncio.ensure_future(cho.node.start())
            await asyncio.sleep(0.12)
            hub.fence(Origin("ann"))
            await starting
            assert cho.history().balances == {"a": 1}
            await cho.node.stop()

    run_async(main)


def test_garbage_on_the_control_topic_does_no_harm() -> None:
    async def main() -> None:
        hub = LocalHub()
        ann = BankNode(hub.connect("ann"))
        eve = hub.connect("eve")
        async with ann.node:
            control = snapshot_exchange.control_topic(BANK)
            for payload in (b"", b"\xc1", b"\x93\x04\x01", b"\x92\x02\xc4\x00"):
                eve.publish(control, payload, ("",), 1)  # type: ignore[arg-type]
            assert await ann.bank.deposit("a", 1) == 1

    run_async(main)

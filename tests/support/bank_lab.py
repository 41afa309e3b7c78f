"""Bank replicas on a local bus, for tests: run a workload, let it come to rest, compare."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.services.bank import TOPIC, BankService
from ordercast.services.bank_checks import BankStep, ReplicaHistory, balances_of, steps_of
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.frontend import plan
from ordercast.services.local_bus import LocalBus, LocalHub
from ordercast.services.node import ReplicaNode
from ordercast.services.replica import Applied
from ordercast.services.stores import Store
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.wire import Call, Unit, encode_body

BANK = Topic(TOPIC)


def bank_dispatcher() -> Dispatcher:
    dispatcher = Dispatcher()
    dispatcher.register(BankService())
    return dispatcher


def published(name: str, *args: Any, number: int = 1, origin: str = "ann") -> Publication:
    """A call as it is delivered."""
    return unit([(name, args)], number=number, origin=origin)


def unit(calls: Sequence[tuple[str, Sequence[Any]]], *, number: int = 1, origin: str = "ann") -> Publication:
    planned = [plan(BankService, name, tuple(args), {}) for name, args in calls]
    body = encode_body(Unit(b"", tuple(p.call for p in planned)))
    keys = tuple(sorted({key for p in planned for key in p.keys}))
    return Publication(Origin(origin), number, BANK, body, max(p.level for p in planned), keys)


def raw(
    *calls: Call, keys: tuple[str, ...] = ("a",), level: Guarantee = Guarantee.TOTAL, number: int = 1
) -> Publication:
    """Whatever calls, with keys and level that nobody checked."""
    return Publication(Origin("eve"), number, BANK, encode_body(Unit(b"", calls)), level, keys)


class BankNode:
    """A node, and what it did."""

    def __init__(self, bus: LocalBus, store: Store | None = None, **options: Any) -> None:
        self.steps: list[BankStep] = []
        self.order: list[str] = []
        kept = store if store is not None else MemoryStore()
        self.node = ReplicaNode(bus, kept, bank_dispatcher(), topics=[BANK], observe=self._seen, nonce=b"", **options)
        self.bank = self.node.frontend().of(BankService)

    def _seen(self, applied: Applied) -> None:
        self.steps += steps_of(applied)
        self.order.append(applied.publication.id)

    async def ended(self) -> ReplicaHistory:
        """Between two deliveries."""
        return await self.node.look(lambda _: self.history())

    def history(self) -> ReplicaHistory:
        return ReplicaHistory(str(self.node.bus.origin), list(self.steps), balances_of(self.node.replica))


async def run_workload(nodes: Sequence[BankNode], workload: BankWorkload, *, wait: bool = False) -> None:
    """Every node asks for its operations, each after a turn of the loop, or each after the answer to the last."""

    async def one(node: BankNode) -> None:
        for name, args in workload.calls(str(node.node.bus.origin)):
            operation = getattr(node.bank, name)
            if wait:
                await asyncio.gather(operation(*args), return_exceptions=True)
            else:
                operation.send(*args)
                await asyncio.sleep(0)

    await asyncio.gather(*(one(node) for node in nodes))


async def rest(hub: LocalHub) -> None:
    async with asyncio.timeout(30):
        while not hub.idle():
            await asyncio.sleep(0.001)

"""A bank with two replicas on a tree of three brokers; one broker is killed on the way, and nobody's money is lost.

python examples/bank.py
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from ordercast.services.bank import TOPIC, BankService
from ordercast.services.client_bus import ClientBus
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.node import ReplicaNode
from ordercast.services.operations import OperationRefused
from ordercast.services.stores import open_store
from ordercast.testing import EmbeddedCluster, cluster


async def replica(stack: AsyncExitStack, brokers: EmbeddedCluster, name: str, broker: str) -> ReplicaNode:
    """A replica with its data in memory; `open_store` takes the path of a SQLite file or a PostgreSQL DSN as well."""
    dispatcher = Dispatcher()
    dispatcher.register(BankService())
    client = await stack.enter_async_context(brokers.connect(name, broker=broker))
    return await stack.enter_async_context(
        ReplicaNode(ClientBus(client), open_store("memory"), dispatcher, topics=[TOPIC])
    )


async def main() -> None:
    async with cluster(brokers=3) as brokers, AsyncExitStack() as stack:
        lisbon = await replica(stack, brokers, "lisbon", "b1")
        porto = await replica(stack, brokers, "porto", "b2")
        bank, other = lisbon.frontend().of(BankService), porto.frontend().of(BankService)

        print("deposit:", await bank.deposit("ana", 100_00))
        print("transfer:", await bank.transfer("ana", "rui", 30_00))
        await brokers.kill("b1")
        print("withdrawn at the other replica:", await other.withdraw("rui", 10_00))
        try:
            await bank.withdraw("ana", 500_00)
        except OperationRefused as refused:
            print("refused:", refused.reason)

        async with lisbon.frontend().transaction() as tx:
            tx.of(BankService).withdraw("ana", 20_00)
            tx.of(BankService).apply_interest("rui")
        print("transaction:", tx.values)
        while lisbon.replica.received(TOPIC) != porto.replica.received(TOPIC):
            await asyncio.sleep(0.01)
        print("replicas are equal:", await lisbon.digest(TOPIC) == await porto.digest(TOPIC))


if __name__ == "__main__":
    asyncio.run(main())

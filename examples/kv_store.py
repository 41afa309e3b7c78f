"""A bank on a partitioned key-value store: accounts on three servers, transfers that touch two of them as one step.

    python examples/kv_store.py

Every server is a node of the store and talks TCP to the others. The tellers' accounts do not overlap, so the sum over
all of them must not change; the last line says whether it did.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

from ordercast.multicast import join
from ordercast.services.kv_node import KeyValueStore
from ordercast.services.partitioned_kv import Partitioning

ACCOUNTS = [f"account-{i}" for i in range(9)]
OPENING = 100
TELLERS_DO = 20


def free_addresses(count: int) -> dict[str, str]:
    """Ports on this machine that nobody listens on at the moment."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = {f"server-{i}": f"127.0.0.1:{door.getsockname()[1]}" for i, door in enumerate(listening)}
    for door in listening:
        door.close()
    return addresses


async def transfer_all(store: KeyValueStore, teller: int) -> None:
    """Move money between the three accounts of this teller: read all, then write all."""
    source, first, second = (ACCOUNTS[(teller * 3 + i) % len(ACCOUNTS)] for i in range(3))
    for _ in range(TELLERS_DO):
        balances = await store.transact([source, first, second])
        have = {account: int(balance or b"0") for account, balance in balances.items()}
        if have[source] < 2:
            return
        after = {source: have[source] - 2, first: have[first] + 1, second: have[second] + 1}
        await store.transact(writes={account: b"%d" % balance for account, balance in after.items()})


async def main() -> bool:
    servers = free_addresses(3)
    async with AsyncExitStack() as stack:
        partitioning = Partitioning([[server] for server in servers])
        stores = [
            KeyValueStore(await stack.enter_async_context(join(server, servers, real_time=True)), partitioning)
            for server in servers
        ]
        await stores[0].transact(writes=dict.fromkeys(ACCOUNTS, b"%d" % OPENING))
        await asyncio.gather(*(transfer_all(store, teller) for teller, store in enumerate(stores)))
        balances = await stores[1].transact(ACCOUNTS)
        for account, balance in balances.items():
            print(
                f"{account} on {partitioning.partitions[partitioning.partition_of(account)][0]}: {int(balance or b'0')}"
            )
        total = sum(int(balance or b"0") for balance in balances.values())
        kept = total == OPENING * len(ACCOUNTS)
        print(f"sum {total}: {'nothing was lost' if kept else 'money was lost or made'}")
        return kept


if __name__ == "__main__":
    raise SystemExit(0 if asyncio.run(main()) else 1)

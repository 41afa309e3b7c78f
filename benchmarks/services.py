"""Operations per second that a replica applies, by store and by how many share a commit.

`python benchmarks/services.py [OPERATIONS]`, or `python benchmarks/services.py --sessions N`: what N sessions that
publish once and end leave in a replica; those that have ended are closed a thousand at a time. The PostgreSQL server is
a private one with its default durability, or the one that ORDERCAST_TEST_POSTGRES names. The limit to compare with is
the memory store: what the service itself costs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pubsub_memory import resident_bytes

from ordercast.core.ids import Topic
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.replica import Replica
from ordercast.services.stores import Store
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.stores.postgres import PostgresStore
from ordercast.services.stores.sqlite import SqliteStore
from tests.support.bank_lab import bank_dispatcher, published
from tests.support.postgres import NoServer, server

TOPIC = Topic("bank-pt")
CLOSED_AT_A_TIME = 1000
BATCHES = (1, 10, 100, 1000)


def rate(store: Store, operations: int, batch: int) -> float:
    """Decode, check, apply and commit; nothing of the network."""
    workload = BankWorkload(accounts=100, operations=operations)
    log = [published(name, *args, number=n) for n, (name, args) in enumerate(workload.calls("c0"), 1)]
    replica = Replica(store, bank_dispatcher())
    start = time.perf_counter()
    for first in range(0, len(log), batch):
        replica.apply(log[first : first + batch])
    spent = time.perf_counter() - start
    replica.close()
    return operations / spent


def sessions(path: Path, count: int) -> None:
    """Rows of sessions and bytes of memory and file, after half of the sessions and after all of them."""
    replica = Replica(SqliteStore(path, synchronous="OFF"), bank_dispatcher())
    seen = []
    for first in range(1, count, CLOSED_AT_A_TIME):
        behind = first + CLOSED_AT_A_TIME
        replica.apply([published("deposit", "a", 1, origin=f"c{i}~1.{i}.0.b0") for i in range(first, behind)])
        replica.fold(TOPIC, {"0.b0": (1, behind)})
        if behind - 1 in (count // 2, count):
            rows = len(replica.received(TOPIC))
            seen.append((resident_bytes(os.getpid()), path.stat().st_size))
            print(f"{behind - 1:9} sessions: {rows} rows, {seen[-1][0] / 2**20:.1f} MiB, file {seen[-1][1]} bytes")
    grown = [(after - before) / (count // 2) for before, after in zip(*seen, strict=True)]
    print(f"second half: {grown[0]:+.1f} bytes of memory and {grown[1]:+.1f} of file a session")
    replica.close()


def main() -> None:
    if sys.argv[1:2] == ["--sessions"]:
        with tempfile.TemporaryDirectory() as directory:
            sessions(Path(directory) / "replica.db", int(sys.argv[2]))
        return
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        openers: dict[str, Callable[[int], Store]] = {
            "memory": lambda _: MemoryStore(),
            "sqlite, synchronous=FULL": lambda batch: SqliteStore(directory / f"full{batch}.db"),
            "sqlite, synchronous=NORMAL": lambda b: SqliteStore(directory / f"normal{b}.db", synchronous="NORMAL"),
        }
        try:
            dsn = stack.enter_context(server(durable=True))
            openers["postgresql"] = lambda batch: PostgresStore(dsn, schema=f"bench{batch}")
        except NoServer as reason:
            print(f"postgresql: {reason}")
        print(f"operations/s applied by one replica, {operations} operations (fewer where each waits for a disk)")
        print(f"{'per commit':28}" + "".join(f"{batch:>12,}" for batch in BATCHES))
        for name, opener in openers.items():
            fewer = {batch: operations if name == "memory" else min(operations, 2000 * batch) for batch in BATCHES}
            rates = [rate(opener(batch), fewer[batch], batch) for batch in BATCHES]
            print(f"{name:28}" + "".join(f"{r:>12,.0f}" for r in rates))


if __name__ == "__main__":
    main()

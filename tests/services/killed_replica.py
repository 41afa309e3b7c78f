"""Applies a log of deliveries to a store and is killed on the way, at every step or at any moment, again and again.

Run by test_exactly_once.py as a program of its own, because it forks: `killed_replica.py LOG STORE MODE COUNT`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received
from ordercast.services.replica import Replica
from ordercast.services.stores import Store, Txn, open_store
from tests.support.bank_lab import BANK, bank_dispatcher

BATCH = 3


class KillingStore:
    """Ends the process, as kill -9 does, at the call of the given number: before it or after it."""

    waits = True

    def __init__(self, store: Store, at: int) -> None:
        self.store = store
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self) -> KillingTxn:
        self.step()
        txn = self.store.begin()
        self.step()
        return KillingTxn(self, txn)

    def close(self) -> None:
        self.store.close()


class KillingTxn:
    def __init__(self, store: KillingStore, txn: Txn) -> None:
        self._store = store
        self._txn = txn
        self.get, self.put, self.delete, self.abort = txn.get, txn.put, txn.delete, txn.abort

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        self._store.step()
        self._txn.write(changes)
        self._store.step()

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        return self._txn.scan(prefix)

    def commit(self) -> None:
        self._store.step()
        self._txn.commit()
        self._store.step()


def work(log: list[Publication], where: str, kill_at: int) -> None:
    """One life: resume from what the store says, apply the rest in order, a few at a time."""
    replica = Replica(KillingStore(open_store(where), kill_at), bank_dispatcher())
    have = Received(replica.received(BANK))
    rest = [p for p in log if (p.origin, p.number) not in have]
    for start in range(0, len(rest), BATCH):
        replica.apply(rest[start : start + BATCH])
    replica.close()


def life(log: list[Publication], where: str, kill_at: int = 0, kill_after_s: float = 0.0) -> bool:
    """Whether the child came to its end before it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(log, where, kill_at)
            status = 0
        finally:
            os._exit(status)
    if kill_after_s:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("a life ended by an error")
    return os.WIFEXITED(status)


def main() -> None:
    log = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[Publication])
    where, mode, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
    chance = random.Random(count)
    kills = 0
    if mode == "steps":  # A fresh life from where the last one was killed, one step further each time.
        for step in range(1, count + 1):
            kills += not life(log, where, kill_at=step)
    else:
        for _ in range(count):
            kills += not life(log, where, kill_after_s=chance.uniform(0.001, 0.03))
    life(log, where)
    sys.stdout.write(f"{kills}\n")


if __name__ == "__main__":
    main()

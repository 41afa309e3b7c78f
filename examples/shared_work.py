"""Three workers share payments, one of them dies at the worst moment, and every payment has its effect exactly once.

    python examples/shared_work.py

The effect and the id of the message are written in one transaction of SQLite. A message that comes again, because its
worker died between the transaction and `done`, finds its id there and changes nothing.
"""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from ordercast import testing
from ordercast.api import Client, Work, WorkSettings
from ordercast.pubsub.keeping import KeepTable

KEEP = (KeepTable(filter="payments"), KeepTable(filter="groups.>", compact="key"))
WORK = WorkSettings(silent_ms=800)
ACCOUNTS, PAYMENTS = 5, 50


def pay(bank: sqlite3.Connection, message: Work) -> bool:
    """Book the payment, unless it is booked already; whether it was new."""
    with bank:  # One transaction: the effect and the id, or neither.
        new = bank.execute("INSERT OR IGNORE INTO seen VALUES (?)", (message.id,)).rowcount == 1
        if new:
            amount = int(message.payload)
            bank.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, message.key))
    return new


async def worker(client: Client, bank: sqlite3.Connection, dies_after: int = 0) -> None:
    inbox = await client.subscribe("payments", group="tellers", start="earliest", work=WORK)
    booked = 0
    async for message in inbox:
        booked += pay(bank, message)
        if dies_after and booked >= dies_after:
            await client.abandon()  # Paid, and nobody was told: somebody else will be handed it again.
            return
        message.done()


async def main(directory: Path) -> None:
    bank = sqlite3.connect(directory / "bank.sqlite")
    bank.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER)")
    bank.execute("CREATE TABLE seen (id TEXT PRIMARY KEY)")
    bank.executemany("INSERT INTO accounts VALUES (?, 0)", [(f"account-{i}",) for i in range(ACCOUNTS)])
    async with (
        testing.cluster(1, data=directory, keep=KEEP, fsync="never") as brokers,
        brokers.connect("cashier") as cashier,
        brokers.connect("teller-0") as teller_0,
        brokers.connect("teller-1") as teller_1,
    ):
        teller_2 = await brokers.connect("teller-2").__aenter__()
        for number in range(PAYMENTS):
            cashier.publish_soon("payments", b"10", key=f"account-{number % ACCOUNTS}")
        await cashier.flush()
        dying = asyncio.create_task(worker(teller_2, bank, dies_after=7))
        await dying
        others = [asyncio.create_task(worker(teller, bank)) for teller in (teller_0, teller_1)]
        while bank.execute("SELECT count(*) FROM seen").fetchone()[0] < PAYMENTS:
            await asyncio.sleep(0.05)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    for name, balance in bank.execute("SELECT name, balance FROM accounts ORDER BY name"):
        print(f"{name}: {balance}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))

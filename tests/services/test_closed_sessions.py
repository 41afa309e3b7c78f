"""Ended sessions leave intervals in a replica's store, not rows; and whoever joins later has what they did."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from ordercast.core.ids import Origin
from ordercast.pubsub.publications import Publication
from ordercast.services import node as replica_node
from ordercast.services.client_bus import ClientBus
from ordercast.services.replica import Replica, ReplicaSnapshot
from ordercast.services.snapshot_exchange import (
    Chunk,
    Here,
    Offer,
    SnapshotExchange,
    SnapshotRequest,
    control_topic,
)
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.stores.sqlite import SqliteStore
from ordercast.testing import QUICK, EmbeddedCluster, cluster
from tests.services.conftest import Opener
from tests.support.bank_lab import BANK, BankNode, bank_dispatcher, published
from tests.support.loop import run_async, until

QUICKLY_FOLDED = msgspec.structs.replace(QUICK, fold_ms=200)
SESSIONS = 12


def session(number: int) -> Origin:
    return Origin(f"c{number}~7.{number}.0.b0")


def rows(replica: Replica) -> int:
    return len(replica.received(BANK))


def test_ended_sessions_leave_no_rows_and_are_still_done_once(opener: Opener) -> None:
    log = [published("deposit", "a", 1, origin=session(i)) for i in range(1, 101)]
    replica = Replica(opener(), bank_dispatcher())
    replica.apply(log)
    assert rows(replica) == 100
    replica.fold(BANK, {"0.b0": (1, 100)})
    assert list(replica.received(BANK)) == ["c100~7"]
    assert replica.apply(log) == []
    replica.close()
    again = Replica(opener(), bank_dispatcher())
    assert list(again.received(BANK)) == ["c100~7"]
    assert again.apply(log) == []
    assert again.contents(BANK, "BankService") == {"a": b"100"}
    again.close()


def test_rows_of_stores_from_before_there_were_tickets_count() -> None:
    store = MemoryStore()
    store.data[f"r {BANK} c1~7"] = msgspec.msgpack.encode((2, (4,)))
    replica = Replica(store, bank_dispatcher())
    known = [published("deposit", "a", 1, origin=session(1), number=number) for number in (1, 2, 3, 4)]
    assert [done.publication.number for done in replica.apply(known)] == [3]


async def _short_sessions(brokers: EmbeddedCluster) -> None:
    for i in range(SESSIONS):
        async with brokers.connect(f"short{i}") as client:
            call = published("deposit", "a", 1)
            await client.publish(BANK, call.payload, keys=call.keys, guarantee=call.guarantee)


async def _replica(brokers: EmbeddedCluster, name: str, store: object = None, **options: object) -> BankNode:
    client = await brokers.connect(name, **options).__aenter__()  # type: ignore[arg-type]
    return BankNode(ClientBus(client), store or MemoryStore(), ask_again_s=0.5)  # type: ignore[arg-type]


async def _folded(node: BankNode) -> None:
    closed = node.node.bus.closed
    await until(lambda: sum(sum(bounds[1::2]) - sum(bounds[::2]) for bounds in closed().values()) >= SESSIONS)


async def _balance(node: BankNode) -> bytes | None:
    return (await node.node.look(lambda replica: replica.contents(BANK, "BankService"))).get("a")


def test_a_replica_has_rows_of_the_sessions_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_node, "FOLD_S", 0.0)

    async def main() -> None:
        async with cluster(brokers=1, settings=QUICKLY_FOLDED) as brokers:
            ann = await _replica(brokers, "ann")
            async with ann.node:
                await _short_sessions(brokers)
                await _folded(ann)
                await ann.bank.deposit("a", 1)
                await ann.bank.deposit("a", 1)
                assert await ann.node.look(rows) == 1

    run_async(main)


def test_whoever_joins_when_sessions_are_folded_has_what_they_did() -> None:
    async def main() -> None:
        async with cluster(brokers=1, settings=QUICKLY_FOLDED) as brokers:
            ann = await _replica(brokers, "ann")
            async with ann.node:
                await _short_sessions(brokers)
                await _folded(ann)
                bob = await _replica(brokers, "bob")
                async with bob.node:
                    assert await _balance(bob) == b"%d" % SESSIONS
                    await bob.bank.deposit("a", 1)

    run_async(main)


def test_the_first_replica_of_a_topic_waits_for_nobody_though_others_have_ended() -> None:
    async def main() -> None:
        async with cluster(brokers=1, settings=QUICKLY_FOLDED) as brokers, brokers.connect("reader") as reader:
            inbox = await reader.subscribe("elsewhere")
            async with brokers.connect("short") as client:
                await client.publish("elsewhere", b"")
            await inbox.get(timeout=20)
            reading = asyncio.ensure_future(inbox.get())
            await until(lambda: bool(reader.closed_sessions()))
            reading.cancel()
            ann = await _replica(brokers, "ann")
            async with asyncio.timeout(20), ann.node:
                assert await ann.bank.deposit("b", 1) == 1

    run_async(main)


def test_the_same_session_goes_on_from_its_store_when_sessions_were_folded(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1, settings=QUICKLY_FOLDED) as brokers:
            for life in range(3):
                ann = await _replica(brokers, "ann", SqliteStore(tmp_path / "ann.db"), data=tmp_path / "ann")
                async with asyncio.timeout(20), ann.node:
                    await _short_sessions(brokers)
                    await until(lambda: len(ann.order) >= SESSIONS)  # noqa: B023
                    assert await _balance(ann) == b"%d" % (SESSIONS * (life + 1))
                    assert not ann.node.replica.must_start_over(BANK)
                await asyncio.sleep(0.5)

    run_async(main)


class _Heard:
    """A replica's side of the exchange, and what it says."""

    def __init__(self, replica: Replica) -> None:
        self.said: list[object] = []
        self.exchange = SnapshotExchange(Origin("me"), replica, lambda _, word: self.said.append(word), lambda: b"t")

    def hear(self, word: object) -> ReplicaSnapshot | None:
        packed = msgspec.msgpack.encode(word)
        self.said.clear()
        return self.exchange.hear(Publication(Origin("you"), 1, control_topic(BANK), packed))


def test_who_has_a_state_never_lets_another_believe_that_it_is_alone() -> None:
    replica = Replica(MemoryStore(), bank_dispatcher())
    heard = _Heard(replica)
    asked = SnapshotRequest(b"q", {Origin("~1.0.b0"): 9})
    heard.hear(asked)
    assert heard.said == [msgspec.msgpack.encode(Here(b"q"))]
    replica.fold(BANK, {"0.b0": (1, 10)})
    heard.hear(asked)
    assert heard.said == [msgspec.msgpack.encode(Offer(b"q"))]
    heard.exchange.ask(BANK, {Origin("~1.0.b0"): 99})
    heard.hear(asked)
    assert heard.said == []  # It waits itself, and has nothing that could be lost.
    replica.apply([published("deposit", "a", 1)])
    heard.hear(asked)
    assert heard.said == [msgspec.msgpack.encode(Here(b"q"))]
    assert heard.exchange.alone(BANK)
    heard.hear(Here(b"t"))
    assert not heard.exchange.alone(BANK)


@pytest.mark.parametrize(
    ("closed", "origins"),
    [
        ({"0.b0": (3, 1)}, {}),
        ({"0.b0": (1,)}, {}),
        ({}, {"a": "b~1.1.0.b0"}),
        ({}, {"a": "a~0." + "9" * 5000 + ".0.b0"}),
    ],
)
def test_a_snapshot_with_sessions_that_cannot_be_is_of_no_use(closed: dict[str, object], origins: object) -> None:
    heard = _Heard(Replica(MemoryStore(), bank_dispatcher()))
    heard.exchange.ask(BANK, {})
    heard.hear(Offer(b"t"))
    state = {"topic": BANK, "received": {}, "services": {}, "closed": closed, "origins": origins}
    assert heard.hear(Chunk(b"t", 0, 1, msgspec.msgpack.encode(state))) is None
    assert BANK in heard.exchange.wishes

"""What others publish to services: whatever it is, no replica stops, and all that get the same end alike."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.client.work.member import WorkMember
from ordercast.client.work.words import (
    GroupProgress,
    Orders,
    Report,
    WorkOrder,
    encode,
    orders_in,
    progress_in,
    report_in,
)
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.services.partitioned_kv import KeyValueReplica, Partitioning
from ordercast.services.replica import Replica
from ordercast.services.snapshot_exchange import (
    Chunk,
    Offer,
    Pick,
    SnapshotExchange,
    SnapshotRequest,
    control_topic,
    data_topic,
)
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.wire import Call, Elsewhere, Unit, encode_body
from tests.fuzz.engine import Target
from tests.support.bank_lab import BANK, bank_dispatcher, published, unit

_TOKEN = b"0123456789abcdef"
_EVE = Origin("eve~1")
_KEYS = ("a", "b")


def _operations() -> list[bytes]:
    calls = [published("deposit", "a", 5), unit([("deposit", ("b", 3)), ("withdraw", ("a", 1))])]
    odd = [Unit(b"t", (Call("BankService", "transfer", ("a", "b", 1)),)), Elsewhere(b"\x01" * 32, 9), Unit(b"", ())]
    return [one.payload for one in calls] + [encode_body(one) for one in odd]


def _apply(data: bytes) -> None:
    """Two replicas, one of which restarts in between, have the same state and go on."""
    states = []
    for restarts in (False, True):
        store = MemoryStore()
        replica = Replica(store, bank_dispatcher())
        replica.apply([published("deposit", "a", 5)])
        hostile = Publication(_EVE, 1, BANK, data, Guarantee.TOTAL, _KEYS)
        (applied,) = replica.apply([hostile])
        msgspec.msgpack.encode(applied.outcome)
        if restarts:
            replica = Replica(store, bank_dispatcher())
        (after,) = replica.apply([published("deposit", "c", 1, number=2)])
        assert after.outcome.values == (1,)
        states.append((replica.digest(BANK), replica.snapshot(BANK)))
    assert states[0] == states[1]


def _words() -> list[bytes]:
    state = Replica(MemoryStore(), bank_dispatcher())
    state.apply([published("deposit", "a", 5)])
    whole = msgspec.msgpack.encode(state.snapshot(BANK))
    words = [
        SnapshotRequest(_TOKEN, {_EVE: 0}), Offer(_TOKEN), Pick(_TOKEN, Origin("me")), Chunk(_TOKEN, 0, 1, whole),
        Chunk(_TOKEN, 0, 2, whole[:20]), Chunk(_TOKEN, 0, 1, b""),
    ]  # fmt: skip
    return [msgspec.msgpack.encode(word) for word in words]


def _hear(data: bytes) -> None:
    """One that has asked for a state and been offered one by eve, and one that has a state, hear the same word."""
    for asks in (False, True):
        replica = Replica(MemoryStore(), bank_dispatcher())
        said: list[tuple[Topic, bytes]] = []
        exchange = SnapshotExchange(
            Origin("me"), replica, lambda topic, body, said=said: said.append((topic, body)), lambda: _TOKEN
        )
        if asks:
            exchange.ask(BANK, {})
            offer = msgspec.msgpack.encode(Offer(_TOKEN))
            exchange.hear(Publication(_EVE, 1, control_topic(BANK), offer, Guarantee.FIFO))
        snapshot = exchange.hear(Publication(_EVE, 2, control_topic(BANK), data, Guarantee.FIFO))
        if snapshot is not None:
            replica.restore(snapshot)
            replica.apply([published("deposit", "c", 1, number=9)])
        assert all(data_topic(topic) == BANK for topic, _ in said)


def _store_words() -> list[bytes]:
    replica = KeyValueReplica("n0", Partitioning([["n0"], ["n1"]]))
    postings = [replica.begin(["k", "l"], {"m": b"1"}), replica.begin([], {"k": None})]
    answers = [KeyValueReplica("n1", replica.partitioning).deliver(posting.payload)[0] for _, posting in postings]
    return [posting.payload for _, posting in postings] + [answer.payload for answer in answers if answer is not None]


def _deliver(data: bytes) -> None:
    partitioning = Partitioning([["n0"], ["n1"]])
    for node in ("n0", "n1", "client"):
        replica = KeyValueReplica(node, partitioning)
        if node != "client":
            replica.begin(["k", "l"], {"m": b"1"})
        answer, _ = replica.deliver(data)
        assert answer is None or answer.payload
        replica.save()


def _work_words() -> list[bytes]:
    done, held = {_EVE: (1, 3)}, ((_EVE, 2, 1),)
    entry = Publication(_EVE, 1, BANK, b"x", Guarantee.CAUSAL, _KEYS)
    return [
        encode(Report("eve~1/1", 1, 1, done, held, held, fresh=True)), encode(Report("eve", 0, 1, fresh=True)),
        encode(Orders(1, "bob~1/1", (WorkOrder(entry, 1),), 1, 1)), encode(Orders(2, "bob~1/1", expelled=True)),
        encode(GroupProgress(1, {_EVE: (1, (3,))}, ("eve~1/1",), held)),
    ]  # fmt: skip


def _work_together(data: bytes) -> None:
    """Whatever a stranger says on the topics of a group, leader and members go on."""
    leader = WorkLeader(1, progress_in(data), WorkSettings(), 0)
    member = WorkMember("bob~1", WorkSettings(), 0)
    report, orders = report_in(data), orders_in(data)
    if report is not None:
        leader.report(report)
    if orders is not None:
        member.orders(orders, 1)
    leader.tick(10**11)
    assert member.report(10**10) is not None
    assert encode(leader.progress())
    assert leader.orders() is not None


def payload_targets() -> Iterator[Target]:
    yield Target("work-words", _work_words, _work_together, cases=2000)
    yield Target("operations", _operations, _apply, cases=400)
    yield Target("snapshot-words", _words, _hear, UsageError, cases=800)
    yield Target("store-words", _store_words, _deliver, cases=2000)

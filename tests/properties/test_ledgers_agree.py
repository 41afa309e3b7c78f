"""A ledger is a ledger: in memory, in a log and in SQLite, the next life begins with the same.

Calls of all kinds in any order, with turns that end, processes that die between turns and in the middle of one. The
simulator's brokers and clients run on the ledgers in memory, so what a simulated restart finds is what a real one does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.api.ledger import SqliteLedger
from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.client.ports import MissedFilters
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.net.brokers import ledger as broker_ledger
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.seals import SEAL_BYTES
from ordercast.pubsub.tree_packets import Change, KnownDirectory

TOPICS = st.sampled_from([Topic("t"), Topic("u")])
ORIGINS = st.sampled_from([Origin("ann~7"), Origin("ann~6"), Origin("bob"), Origin("cho~0.1.0.b1")])
CLOSED = st.sampled_from([{"0.b1": (1, 2)}, {"0.b1": (2, 4)}, {"9.b2": (1, 2, 3, 4)}, {}])
NUMBERS = st.integers(1, 6)
VECTORS = st.dictionaries(ORIGINS, st.integers(0, 6), max_size=3)
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Name, positional and named arguments; the names `flush`, `restart` and `crash` are not the ledger's."""


def _call(name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(name), st.tuples(*arguments), st.fixed_dictionaries(named))


def _publication(topic: Topic, origin: Origin, number: int) -> Publication:
    return Publication(origin, number, topic, b"%d" % number, Guarantee(number % 4), ("k",), number)


def _entries(origins: st.SearchStrategy[Origin]) -> st.SearchStrategy[tuple[tuple[Origin, int], ...]]:
    return st.lists(st.tuples(origins, NUMBERS), max_size=4, unique=True).map(tuple)


LIFE = st.one_of(_call("flush"), _call("restart"), _call("crash"))
BROKERS = st.sampled_from([NodeId("b1"), NodeId("b2")])
STAMPS = st.tuples(st.integers(0, 3), st.integers(0, 9))
CHANGES = st.builds(Change, BROKERS, st.sampled_from(["", "127.0.0.1:7000"]), STAMPS)
DIRECTORIES = st.dictionaries(BROKERS, st.just("127.0.0.1:7000"))
BROKER_CALLS = st.one_of(
    _call("entries", TOPICS, _entries(ORIGINS)),
    _call("entries", TOPICS, _entries(ORIGINS), prepared=st.just(True)),
    _call("base", TOPICS, VECTORS),
    _call("forget", TOPICS),
    _call("roster", st.dictionaries(TOPICS, st.lists(ORIGINS).map(tuple)), VECTORS, st.lists(ORIGINS).map(tuple)),
    _call("closed", CLOSED),
    _call("term", st.integers(0, 9)),
    _call("directory", st.builds(KnownDirectory, st.lists(CHANGES).map(tuple), STAMPS, DIRECTORIES)),
    LIFE,
)
ME = Origin("ann~7")
CLIENT_CALLS = st.one_of(
    _call("attach", st.integers(0, 9)),
    _call("ticket", st.sampled_from(["", "1.0.b1", "2.0.b1"]), st.sampled_from([b"", b"seal"])),
    _call("closed", CLOSED),
    _call("member", TOPICS, st.sampled_from([None, True, False]), granted=st.booleans()),
    _call("watched", st.lists(st.sampled_from(["t.*", ">"]), unique=True).map(tuple)),
    _call("followed", st.lists(st.sampled_from(["t.*", ">"]), unique=True).map(tuple)),
    _call("granted"),
    _call("gap", TOPICS, told=st.booleans()),
    _call("missed", st.builds(MissedFilters, st.sampled_from([(), ("t.*",)]), st.integers(0, 9), st.booleans())),
    _call("safe", TOPICS, NUMBERS, st.lists(NUMBERS, max_size=2).map(tuple)),
    _call("published", TOPICS, _entries(st.just(ME)).map(lambda entries: tuple(sorted(entries)))),
    _call("refused", TOPICS, NUMBERS),
    _call("delivered", TOPICS, _entries(ORIGINS)),
    _call("delivered", TOPICS, _entries(ORIGINS), sealed=st.just(True)),
    _call("consumed", TOPICS, st.integers(0, 3)),
    _call("base", TOPICS, VECTORS),
    _call("base", TOPICS, VECTORS, seals=st.dictionaries(ORIGINS, st.binary(min_size=1, max_size=2))),
    LIFE,
)


def _agree(calls: list[Call], open_one: Callable[[Path], Any], model: Any, fresh_model: Callable[[], Any]) -> None:
    """Do the same to both; a crash takes back what was not flushed, so the model repeats what was."""
    with tempfile.TemporaryDirectory() as directory:
        real = open_one(Path(directory))
        kept: list[Call] = []
        turn: list[Call] = []
        for name, arguments, named in calls:
            if name == "flush":
                real.flush()
            elif name == "restart":
                real.close()
            elif name == "crash":
                real.abandon()
            else:
                positional = _built(name, arguments)
                if named.pop("sealed", False):
                    named = {"seals": b"".join(entry.id.encode().ljust(SEAL_BYTES) for entry in positional[1])}
                turn.append((name, positional, named))
                for ledger in (real, model):
                    getattr(ledger, name)(*positional, **named)
                continue
            kept += turn if name != "crash" else []
            turn = []
            if name != "flush":
                real = open_one(Path(directory))
            if name == "crash":
                model = fresh_model()
                for again, positional, by_name in kept:
                    getattr(model, again)(*positional, **by_name)
            _compare(real, model)
        real.close()
        real = open_one(Path(directory))
        _compare(real, model)
        real.close()


def _built(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if name in ("entries", "published", "delivered"):
        topic, pairs = arguments
        return topic, tuple(_publication(topic, origin, number) for origin, number in pairs)
    return arguments


def _compare(real: Any, model: Any) -> None:
    one, other = msgspec.to_builtins(real.saved()), msgspec.to_builtins(model.saved())
    assert one == other
    for part in ("entries", "topics"):
        assert list(one.get(part, ())) == list(other.get(part, ())), "in the same order: a new life goes through them"


@settings(deadline=None)
@given(st.lists(BROKER_CALLS, max_size=40))
def test_a_brokers_log_means_what_its_ledger_in_memory_means(calls: list[Call]) -> None:
    _agree(calls, DiskBrokerLedger, MemoryBrokerLedger(), MemoryBrokerLedger)


@settings(deadline=None, max_examples=30)
@given(st.lists(BROKER_CALLS, max_size=40))
def test_it_does_so_when_it_begins_anew_all_the_time(calls: list[Call]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_ledger, "_LEAST_BYTES", 1)
        _agree(calls, DiskBrokerLedger, MemoryBrokerLedger(), MemoryBrokerLedger)


def _open_client(directory: Path) -> SqliteLedger:
    ledger = SqliteLedger(directory)
    if ledger.fact("client") is None:
        ledger.begin_session("ann", 7)
    return ledger


@settings(deadline=None)
@given(st.lists(CLIENT_CALLS, max_size=40))
def test_a_clients_database_means_what_its_ledger_in_memory_means(calls: list[Call]) -> None:
    _agree(calls, _open_client, MemoryClientLedger(ME), lambda: MemoryClientLedger(ME))


def test_what_a_broker_called_stable_or_promised_does_not_come_back() -> None:
    """Its log and its memory are one implementation, so this is said of it outright."""
    ledger, topic, bob = MemoryBrokerLedger(), Topic("t"), Origin("bob")
    ledger.entries(topic, tuple(_publication(topic, bob, number) for number in (1, 2, 3)))
    ledger.base(topic, {bob: 2})
    ledger.base(topic, {bob: 1, ME: 4})
    ledger.entries(topic, (_publication(topic, bob, 2),))
    ledger.term(5)
    ledger.term(4)
    saved = ledger.saved()
    assert saved.base == {topic: {bob: 2, ME: 4}}
    assert [entry.number for entry in saved.entries[topic]] == [3]
    assert saved.term_number == 5

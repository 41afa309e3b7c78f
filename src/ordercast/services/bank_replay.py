"""Any delivered publications read as bank operations: what replicas would have made of a run that was no bank.

A simulated run has keys and guarantees and payloads that mean nothing. Read by its guarantee, every publication is an
operation: eventual and fifo look at a balance, causal deposits, total withdraws, transfers (with two keys) or adds
interest. So the checks of the bank hold every run to what replicated services need of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.services.bank import BankService, bank_on
from ordercast.services.bank_checks import ReplicaHistory, balances_of, steps_of
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.replica import Replica
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.wire import Call, Unit, encode_body

_LARGEST = 1000


def as_bank_call(publication: Publication) -> Call:
    """The operation that a publication stands for; the same wherever it is delivered."""
    chance = zlib.crc32(publication.id.encode())
    amount, keys = 1 + chance % _LARGEST, publication.keys
    name: str
    arguments: tuple[Any, ...]
    if publication.guarantee < Guarantee.CAUSAL:
        name, arguments = "get_balance", (keys[0],)
    elif publication.guarantee == Guarantee.CAUSAL:
        name, arguments = "deposit", (keys[0], amount)
    elif len(keys) > 1:
        name, arguments = "transfer", (keys[0], keys[1], amount)
    elif chance & 1:
        name, arguments = "withdraw", (keys[0], amount)
    else:
        name, arguments = "apply_interest", (keys[0],)
    return Call(BankService.__name__, name, arguments)


def bank_histories(deliveries: Mapping[str, Sequence[Publication]]) -> list[ReplicaHistory]:
    """Histories of bank replicas that apply these deliveries of one topic; for `bank_violations`."""
    return [replay(name, publications) for name, publications in sorted(deliveries.items())]


def replay(name: str, publications: Sequence[Publication]) -> ReplicaHistory:
    if not publications:
        return ReplicaHistory(name, [], {})
    topic = publications[0].topic
    dispatcher = Dispatcher()
    dispatcher.register(bank_on(topic)())
    replica = Replica(MemoryStore(), dispatcher)
    operations = [msgspec.structs.replace(p, payload=encode_body(Unit(b"", (as_bank_call(p),)))) for p in publications]
    steps = [step for applied in replica.apply(operations) for step in steps_of(applied)]
    return ReplicaHistory(name, steps, balances_of(replica, topic))

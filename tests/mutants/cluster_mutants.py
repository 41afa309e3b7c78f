"""Causal clusters with one thing broken at a time: each is a patch of one method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from operator import gt
from typing import Any
from unittest import mock

from ordercast.core.process import Peer
from ordercast.protocols.cluster.delivery import Delivery
from ordercast.protocols.cluster.events import Event
from ordercast.protocols.cluster.ordering import UpdateOrdering
from ordercast.protocols.cluster.packets import Claim, Denied, Granted
from ordercast.protocols.cluster.recovery import RecoveryBuffer
from ordercast.protocols.cluster.tickets.lease import Lease
from ordercast.protocols.cluster.tickets.manager import EntryTicket, Manager
from ordercast.protocols.gossip.delivered import Delivered

Mutant = Callable[[], AbstractContextManager[Any]]


def _patch(kind: type, name: str, body: Callable[..., Any]) -> Mutant:
    return lambda: mock.patch.object(kind, name, body)


def _waits_for_nobody(self: UpdateOrdering, event: Event) -> bool:
    return sum(map(gt, event.vector, self.clock)) >= 1


def _delivers_alone(self: UpdateOrdering, event: Event) -> list[Event]:
    return [self._deliver(event), *self.flush()]


def _gives_up_at_once(self: Delivery, kind: str, key: int) -> None:
    if key in self.ordering.waiting and kind != "again":
        self.force(key)


def _grants_while_a_lease_runs(self: Manager, peer: Peer, packet: Claim, ticket: EntryTicket, now_ns: int) -> Any:
    if ticket.promised >= packet.epoch:
        return Denied(packet.cluster, packet.entry, packet.epoch)
    self.tickets[packet.cluster, packet.entry] = EntryTicket(
        packet.epoch, (peer.name, peer.life), now_ns + self.lease_ns, ticket.base
    )
    return Granted(packet.cluster, packet.entry, packet.epoch, ticket.base)


def _never_busy(self: Lease, manager: str, packet: Any, now_ns: int, cast: Any) -> None:
    _ASKED(self, manager, type(packet)(*[*_fields(packet)[:4], False, packet.base]), now_ns, cast)


def _fields(packet: Any) -> list[Any]:
    return [getattr(packet, name) for name in packet.__struct_fields__]


_ASKED = Lease._asked


def _forgets_its_lives(self: Lease, entry: int, life: int) -> Any:
    return _FOR_EVER(self, entry, 0)


_FOR_EVER = Lease.own_for_ever


def _forgets_what_it_delivered(self: Delivered, stream: Any, number: int) -> bool:
    return True


def _moves_to_the_end(self: RecoveryBuffer, event: Event, born: int = 0) -> None:
    self.events.pop(event.key, None)
    self.events[event.key] = event
    if len(self.events) > self.slots:
        del self.events[next(iter(self.events))]


def _begins_as_if_it_had_delivered_nothing(self: Delivery) -> None:
    self.keeps_order, self.knows_start = True, False


WAITS_FOR_NOBODY = _patch(UpdateOrdering, "is_ready", _waits_for_nobody)
DELIVERS_ALONE = _patch(UpdateOrdering, "force", _delivers_alone)
BEFORE_THE_TIMEOUT = _patch(Delivery, "on_timer", _gives_up_at_once)
FORGETS_ITS_LIVES = _patch(Lease, "own_for_ever", _forgets_its_lives)
FORGETS_DELIVERIES = _patch(Delivered, "add", _forgets_what_it_delivered)
REFRESHES = _patch(RecoveryBuffer, "store", _moves_to_the_end)
FORGETS_AT_THE_SWITCH = _patch(Delivery, "begin_order", _begins_as_if_it_had_delivered_nothing)


def too_early() -> AbstractContextManager[Any]:
    """An entry is given away while its owner's lease runs: managers and claimants no longer look at it."""
    stack = mock.patch.multiple(Manager, _claimed=_grants_while_a_lease_runs)
    return _Both(stack, mock.patch.object(Lease, "_asked", _never_busy))


class _Both:
    def __init__(self, *patches: Any) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.__enter__()

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.__exit__(*error)

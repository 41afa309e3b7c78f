"""Which work may be handed to whom: for each key in order, and to one member at a time.

A unit is a message of the topic. It may be sent to a member once everything before it that shares a key with it is done
or was sent to the same member, which takes them in this order. Units without a key are free of each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ordercast.core.state import State
from ordercast.pubsub.publications import Publication, PublicationId


def keys_of(entry: Publication) -> tuple[str, ...]:
    """The keys whose order counts; that there is none is no key here."""
    return entry.keys if "" not in entry.keys else tuple(key for key in entry.keys if key)


class WorkUnit(msgspec.Struct, gc=False, eq=False):
    """A piece of work that is not done. One of many thousands: a struct that the garbage collector need not look at."""

    entry: Publication
    id: PublicationId
    keys: tuple[str, ...]
    attempts: int
    """How often it was begun and not done."""
    holder: str = ""
    """The member that it was sent to."""


def unit_of(entry: Publication, attempts: int) -> WorkUnit:
    return WorkUnit(entry, (entry.origin, entry.number), keys_of(entry), attempts)


class KeyLane(State):
    """The work of one key: so many units sent to one member, and the others behind them."""

    def __init__(self) -> None:
        self.holder = ""
        self.sent = 0
        self.unsent: deque[WorkUnit] = deque()


class Desk(State):
    """The work that one member has been sent and has not done, in the order of sending."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.held: dict[PublicationId, WorkUnit] = {}
        self.waiting: deque[WorkUnit] = deque()
        """Units that can go nowhere else, and had no room."""

    @property
    def full(self) -> bool:
        return len(self.held) >= self.window


class WorkLanes(State):
    """All work that has arrived and is not done."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._lanes: dict[str, KeyLane] = {}
        self._desks: dict[str, Desk] = {}
        self._turn: deque[str] = deque()
        """The members that have room, whoever is next first."""
        self._free: deque[WorkUnit] = deque()
        """Units that anybody may have."""
        self._back: list[WorkUnit] = []
        """What members have given back, or died with."""
        self.sent: list[tuple[str, WorkUnit]] = []
        """What was sent since the last look, to whom."""
        self.count = 0
        """Units that are not done."""

    def members(self) -> list[str]:
        return list(self._desks)

    def desk(self, member: str) -> Desk | None:
        return self._desks.get(member)

    def outgoing(self) -> list[tuple[str, WorkUnit]]:
        sent, self.sent = self.sent, []
        return sent

    # Members

    def open(self, member: str, holding: Iterable[WorkUnit] = (), room: int = 0) -> None:
        """A member takes work from now on; it may hold some already, which is the first of its keys."""
        desk = self._desks[member] = Desk(self._limit(room))
        for unit in holding:
            self.count += 1
            self._place(desk, member, unit)
        if not desk.full:
            self._turn.append(member)
        self._serve(desk)

    def _limit(self, room: int) -> int:
        return min(room, self._window) if room > 0 else self._window

    def resize(self, member: str, room: int) -> None:
        """SHW-9: the member takes more ahead from now on, or less."""
        desk = self._desks.get(member)
        if desk is None or desk.window == self._limit(room):
            return
        full = desk.full
        desk.window = self._limit(room)
        if desk.full and not full:
            self._turn.remove(member)
        elif full and not desk.full:
            self._turn.append(member)
            self._serve(desk)

    def _place(self, desk: Desk, member: str, unit: WorkUnit) -> None:
        unit.holder = member
        desk.held[unit.id] = unit
        for key in unit.keys:
            lane = self._lanes.setdefault(key, KeyLane())
            lane.holder = member
            lane.sent += 1

    def close(self, member: str) -> list[WorkUnit]:
        """The member takes none any more: what it had goes back to the front of its lanes. Gives what may be begun.

        Nothing of it is sent to others before `resume`.
        """
        desk = self._desks.pop(member)
        if not desk.full:
            self._turn.remove(member)
        begun = list(_first_of_each_key(desk.held.values()))
        back = list(desk.held.values())
        for unit in reversed(back):
            unit.holder = ""
            for key in unit.keys:
                lane = self._lanes[key]
                lane.sent -= 1
                lane.unsent.appendleft(unit)
        self._back += [*back, *desk.waiting]
        return begun

    def resume(self) -> None:
        """Offer to others what came back from members."""
        back, self._back = self._back, []
        for unit in back:
            if not unit.holder:
                self._try(unit)
        for desk in self._desks.values():
            self._serve(desk)

    # Work

    def add(self, units: Iterable[WorkUnit]) -> None:
        """New work, in its order."""
        lanes = self._lanes
        for unit in units:
            self.count += 1
            first = True
            for key in unit.keys:
                lane = lanes.get(key)
                if lane is None:
                    lane = lanes[key] = KeyLane()
                elif lane.unsent:
                    first = False
                lane.unsent.append(unit)
            if first:  # Otherwise what is before it is waited for already.
                self._try(unit)

    def done(self, member: str, pairs: Iterable[PublicationId]) -> list[PublicationId]:
        """Those of the units that the member held; what waited behind them moves on."""
        desk = self._desks.get(member)
        if desk is None:
            return []
        held, lanes, full = desk.held, self._lanes, desk.full
        units = [unit for pair in pairs if (unit := held.pop(pair, None)) is not None]
        self.count -= len(units)
        if full and not desk.full:
            self._turn.append(member)
        for unit in units:
            for key in unit.keys:
                lane = lanes[key]
                lane.sent -= 1
                if not lane.sent:
                    if lane.unsent:
                        self._try(lane.unsent[0])
                    else:
                        del lanes[key]
        self._serve(desk)
        return [unit.id for unit in units]

    def drop(self, unit: WorkUnit) -> None:
        """Nobody is to do it: it has been given up. It is at nobody's desk."""
        self.count -= 1
        unit.holder = "-"
        for key in unit.keys:
            lane = self._lanes[key]
            lane.unsent.remove(unit)
            if not lane.unsent and not lane.sent:
                del self._lanes[key]
            elif lane.unsent:
                self._try(lane.unsent[0])

    def _serve(self, desk: Desk) -> None:
        """Fill a member's desk with what waits for it, then with what anybody may have."""
        for queue in (desk.waiting, self._free):
            tries = len(queue)
            while tries and queue and len(desk.held) < desk.window:
                tries -= 1
                unit = queue.popleft()
                if not unit.holder:
                    self._try(unit)

    def _try(self, unit: WorkUnit) -> None:
        """Send the unit if it is its turn and there is room, and then what that makes possible."""
        keys = unit.keys
        if len(keys) == 1:
            lane = self._lanes[keys[0]]
            if lane.unsent and lane.unsent[0] is unit:
                self._run(lane)
        elif self._send(unit, [self._lanes[key] for key in keys]):
            for key in keys:
                lane = self._lanes[key]
                if lane.unsent:
                    self._try(lane.unsent[0])

    def _run(self, lane: KeyLane) -> None:
        """Send units of one key, one after the other, as long as there is room."""
        unsent = lane.unsent
        member = lane.holder if lane.sent else self._next_with_room()
        desk = self._desks.get(member)
        while unsent:
            unit = unsent[0]
            if len(unit.keys) > 1:
                self._try(unit)
                return
            if desk is None or len(desk.held) >= desk.window:
                (desk.waiting if desk is not None else self._free).append(unit)
                return
            unsent.popleft()
            lane.holder = unit.holder = member
            lane.sent += 1
            desk.held[unit.id] = unit
            self.sent.append((member, unit))
            if len(desk.held) == desk.window:
                self._turn.remove(member)

    def _send(self, unit: WorkUnit, lanes: Sequence[KeyLane]) -> bool:
        """Whether it was its turn, and there was room. If not, it is tried again when what it waits for has come."""
        member = ""
        for lane in lanes:
            if lane.unsent[0] is not unit:
                return False
            if lane.sent:
                if member and member != lane.holder:
                    return False
                member = lane.holder
        member = member or self._next_with_room()
        desk = self._desks.get(member)
        if desk is None or len(desk.held) >= desk.window:
            (desk.waiting if desk is not None else self._free).append(unit)
            return False
        for lane in lanes:
            lane.unsent.popleft()
            lane.holder = member
            lane.sent += 1
        unit.holder = member
        desk.held[unit.id] = unit
        self.sent.append((member, unit))
        if desk.full:
            self._turn.remove(member)
        return True

    def _next_with_room(self) -> str:
        """The next member in turn that has room; nobody's name if none has."""
        if not self._turn:
            return ""
        self._turn.rotate(-1)
        return self._turn[-1]


def _first_of_each_key(units: Iterable[WorkUnit]) -> Iterator[WorkUnit]:
    """Those that a member may have begun: nothing with a key of theirs is before them."""
    taken: set[str] = set()
    for unit in units:
        if taken.isdisjoint(unit.keys):
            yield unit
        taken.update(unit.keys)

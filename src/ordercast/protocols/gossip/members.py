"""A bounded view of the group, kept fresh by what others say. docs/protocols/gossip.md, GSP-4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

import msgspec

from ordercast.core.chance import mix
from ordercast.core.errors import PeerError
from ordercast.core.state import State

Heard = tuple[str, int, int]
"""A member as packets tell it: address, incarnation, and how many rounds ago it was known to be there."""
Gone = tuple[str, int]
"""A member that has left: address, and the incarnation that left."""

ADDRESS_CHARS = 255
_TRIES = 4
_NOWHERE = 1 << 62
"""No place on any ring."""


class ViewLimits(msgspec.Struct, frozen=True):
    """Limits of a view: how many members are known and told of, and how long a silent one is believed in."""

    view: int
    per_packet: int
    forget: int
    gone: int = 64


class GossipView(State):
    """The view. Never contains its own process; those that nobody speaks of are forgotten when they are next drawn."""

    constant: ClassVar[tuple[str, ...]] = ("me", "limits", "salt", "contacts", "homes", "own_home")
    ordered: ClassVar[tuple[str, ...]] = ("gone",)

    def __init__(self, me: str, incarnation: int, contacts: tuple[str, ...], limits: ViewLimits, salt: int) -> None:
        self.me = me
        self.limits = limits
        self.salt = salt
        self.contacts = contacts
        """Those that it was told of at first; it may be one of them itself."""
        self.homes = homes_of(contacts)
        self.own_home = self.homes.get(me, len(contacts))
        self.incarnation = incarnation
        self.round = 0
        self.draws = 0
        self.listened = -1
        """The last round in which it listened to words about others."""
        self.places: dict[str, int] = {}
        """By address: its place on the ring, unless it is where it stands among the contacts."""
        self.incarnations: dict[str, int] = {}
        """Of those that are not in their first one."""
        self.ring: list[str] = []
        """The view in the order in which it is drawn from."""
        self.heard: list[int] = []
        """In the same order: the last round in which each was known to be there. Neighbours are read together."""
        self.gone: dict[str, int] = {}
        self.return_to_contacts()

    def return_to_contacts(self) -> None:
        """Fall back on the first contacts if nobody else is known."""
        for address in self.other_contacts()[: self.limits.view]:
            self._enter(address, 0, self.round)

    def other_contacts(self) -> list[str]:
        """Those that it was told of at first, without itself."""
        return [address for address in self.contacts if address != self.me]

    def next_round(self) -> None:
        self.round += 1
        if not self.ring:
            self.return_to_contacts()

    def told(self) -> tuple[Heard, ...]:
        """GSP-4.1: this process itself and some of its view, others in every round: a stretch of the ring."""
        now, incarnations = self.round, self.incarnations
        oldest = now - self.limits.forget
        stretch = zip(*self._stretch(self.limits.per_packet - 1), strict=True)
        if incarnations:
            known = [(one, incarnations.get(one, 0), now - heard) for one, heard in stretch if heard >= oldest]
        else:
            known = [(one, 0, now - heard) for one, heard in stretch if heard >= oldest]
        return ((self.me, self.incarnation, 0), *known)

    def _stretch(self, count: int) -> tuple[list[str], list[int]]:
        """So many neighbours on the ring, from a place drawn by chance on: cheaper than to draw each."""
        ring, heard = self.ring, self.heard
        if len(ring) <= count:
            return ring, heard
        start = self._chance() % len(ring)
        end, over = start + count, max(0, start + count - len(ring))
        return ring[start:end] + ring[:over], heard[start:end] + heard[:over]

    def told_gone(self) -> tuple[Gone, ...]:
        """GSP-4.3: those that left last; at most as many as members are told."""
        return tuple(self.gone.items())[-self.limits.per_packet :] if self.gone else ()

    def hear(self, members: Sequence[Heard], sender: str) -> None:
        """GSP-4.2: who is fresher by this word than by all before becomes as fresh; who is new enters the view.

        Views change slowly: of all packets of a round but the first only the sender's word about itself counts.
        """
        if len(members) > self.limits.per_packet:
            raise PeerError(sender, f"tells of {len(members)} members; {self.limits.per_packet} are allowed")
        now = self.round
        if self.listened == now:
            members = members[:1]
        self.listened = now
        homes, own_home, places, heard = self.homes, self.own_home, self.places, self.heard
        for address, incarnation, age in members:
            place = homes.get(address, _NOWHERE)
            if place > own_home:
                place -= 1
            elif place == own_home:
                place = _NOWHERE  # This process itself.
            if incarnation or places or place >= len(heard):
                self._hear_one(address, incarnation, age, sender)
            elif (last := now - age) > heard[place]:  # Everybody stands where the contacts say: no need to look.
                heard[place] = last if age > 0 else now

    def _hear_one(self, address: str, incarnation: int, age: int, sender: str) -> None:
        place, now, heard = self._place_of(address), self.round, self.heard
        if place is None or (incarnation and incarnation > self.incarnations.get(address, 0)):
            self._hear_new(address, incarnation, age, sender)
        elif now - age > heard[place]:
            heard[place] = min(now, now - age)

    def _place_of(self, address: str) -> int | None:
        """Its place on the ring: mostly the one that it has among the contacts, with this process left out."""
        home, ring = self.homes.get(address, _NOWHERE), self.ring
        if home > self.own_home:
            home -= 1
        return home if home < len(ring) and ring[home] == address else self.places.get(address)

    def _settle(self, address: str, place: int) -> None:
        """It stands at this place from now on."""
        self.places.pop(address, None)
        if self._place_of(address) != place:
            self.places[address] = place

    def _hear_new(self, address: str, incarnation: int, age: int, sender: str) -> None:
        if not 0 < len(address) <= ADDRESS_CHARS or incarnation < 0 or age < 0:
            raise PeerError(sender, f"tells of a member that cannot exist: {address[:40]!r}, {incarnation}, {age}")
        left = self.gone.get(address, -1)
        if address != self.me and age <= self.limits.forget and (incarnation > left or left < 0):
            self._enter(address, incarnation, self.round - age)

    def hear_gone(self, gone: Sequence[Gone], sender: str) -> None:
        """GSP-4.3: who has left is forgotten, and words of others that it is there count no more."""
        if len(gone) > self.limits.per_packet:
            raise PeerError(sender, f"tells of {len(gone)} that left; {self.limits.per_packet} are allowed")
        for address, incarnation in gone:
            if not 0 < len(address) <= ADDRESS_CHARS or incarnation < 0:
                raise PeerError(sender, f"tells that nobody left: {address[:40]!r}, {incarnation}")
            if address != self.me and incarnation > self.gone.get(address, -1):
                self._leave(address, incarnation)

    def _leave(self, address: str, incarnation: int) -> None:
        self.gone.pop(address, None)
        self.gone[address] = incarnation
        if len(self.gone) > self.limits.gone:
            del self.gone[next(iter(self.gone))]
        if self.incarnations.get(address, 0) <= incarnation:
            self.forget(address)

    def _enter(self, address: str, incarnation: int, heard: int) -> None:
        place = self._place_of(address)
        if place is None:
            if len(self.ring) >= self.limits.view:
                self.forget(self.ring[self._chance() % len(self.ring)])
            self.ring.append(address)
            self.heard.append(heard)
            self._settle(address, len(self.ring) - 1)
        else:
            self.heard[place] = heard
        if incarnation:
            self.incarnations[address] = incarnation

    def forget(self, address: str) -> None:
        """Draw it no more, until somebody says that it is there."""
        place = self._place_of(address)
        if place is None:
            return
        self.places.pop(address, None)
        self.incarnations.pop(address, None)
        last, heard = self.ring.pop(), self.heard.pop()
        if last != address:
            self.ring[place], self.heard[place] = last, heard
            self._settle(last, place)

    def draw(self, count: int) -> list[str]:
        """So many different members by chance, or all if there are fewer. Those silent for too long are forgotten."""
        ring, heard = self.ring, self.heard
        oldest = self.round - self.limits.forget
        if len(ring) <= count:
            for address in [address for address, last in zip(ring, heard, strict=True) if last < oldest]:
                self.forget(address)
            return list(ring)
        drawn: list[str] = []
        for _ in range(count * _TRIES):
            if len(drawn) == count or not ring:
                break
            self.draws += 1
            place = mix(self.salt, self.draws) % len(ring)
            if heard[place] < oldest:
                self.forget(ring[place])
            elif ring[place] not in drawn:
                drawn.append(ring[place])
        return drawn

    def _chance(self) -> int:
        self.draws += 1
        return mix(self.salt, self.draws)

    def __len__(self) -> int:
        return len(self.ring)


@lru_cache(maxsize=8)
def homes_of(contacts: tuple[str, ...]) -> Mapping[str, int]:
    """By address: where it stands among the contacts. Members of a large group that are told the same ones share it."""
    return {address: place for place, address in enumerate(contacts)}

"""The state of all objects of a cluster. It grows with the objects, not with all who ever wrote them.

Every update says something absolute, not what changed, so that a skipped one is repaired by a later one. Of a register
only the newest value is kept. A counter has one total for each entry of the cluster: whoever owns the entry goes on
from the total of the owner before, so that there never are more of them than entries. A set is one set. Of an object
that is merged by a function every process has the last word that it said, and those that spoke last count. States of
two replicas can be merged in any order and any number of times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ordercast.core.errors import PeerError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.protocols.cluster.events import Value

Stamp = tuple[int, int]
"""Sorts updates: what happened before comes first, and what did not is sorted the same way everywhere."""
Spoken = tuple[int, Stamp]
"""Sorts what one process said: by its life, and in that by stamp."""
Element = str | int | bytes

LONGEST_NAME = 256
MOST_SPEAKERS = 1_000
"""Of an object that is merged by a function the last words of so many processes count."""
_REPEATED, _REPEATED_BYTES = 32, 2_000
"""An update of a set repeats its newest elements, at most so many."""


class Put(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A register has this value."""

    name: str
    value: Any


class Total(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """So much was added to a counter under the entry of this update, by all its owners."""

    name: str
    total: int


class Elements(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """These are in a set; more may be."""

    name: str
    elements: tuple[Any, ...]


class Word(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A maker's contribution, in one update, to an object that a function merges."""

    name: str
    value: Any


Contribution = Put | Total | Elements | Word


class Maker(msgspec.Struct, frozen=True):
    """The maker of an update, and its time."""

    process: str
    life: int
    entry: int
    value: Value
    """Of the entry: later owners make higher ones."""
    stamp: Stamp


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """A state as another replica tells it."""

    registers: dict[str, tuple[Stamp, Any]]
    totals: dict[str, dict[int, tuple[Value, int]]]
    sets: dict[str, list[Any]]
    words: dict[str, dict[str, tuple[Spoken, Any]]]


_encode = msgspec.msgpack.Encoder().encode
_state_decoder: msgspec.msgpack.Decoder[_Told] = msgspec.msgpack.Decoder(_Told)
_update_decoder: msgspec.msgpack.Decoder[Contribution] = msgspec.msgpack.Decoder(Contribution)


def encode_update(contribution: Contribution) -> bytes:
    """The payload of an update. A TypeError or the like if it is not made of plain values."""
    return _encode(contribution)


def decode_update(payload: bytes, maker: str) -> Contribution:
    """A PeerError if it is none."""
    try:
        found = _update_decoder.decode(payload)
    except NOT_DECODABLE as error:
        raise PeerError(maker, f"makes an update that is none of an object: {error}") from None
    if not 0 < len(found.name) <= LONGEST_NAME:
        raise PeerError(maker, f"names an object with {len(found.name)} letters")
    if isinstance(found, Elements):
        _check_elements(found.elements, maker)
    return found


def _check_elements(elements: Iterable[Any], maker: str) -> None:
    for element in elements:
        if type(element) not in (str, int, bytes):
            raise PeerError(maker, f"puts a {type(element).__name__} into a set")


class Contributions:
    """One replica's state. `take` what is delivered; `install` what another replica has."""

    def __init__(self) -> None:
        self._registers: dict[str, tuple[Stamp, Any]] = {}
        self._totals: dict[str, dict[int, tuple[Value, int]]] = {}
        self._sets: dict[str, dict[Element, None]] = {}
        self._words: dict[str, dict[str, tuple[Spoken, Any]]] = {}

    # What objects have

    def register(self, name: str) -> Any:
        """None if it was never set."""
        return self._registers.get(name, (None, None))[1]

    def count(self, name: str) -> int:
        return sum(total for _, total in self._totals.get(name, {}).values())

    def total(self, name: str, entry: int) -> int:
        """The sum of what all owners of the entry added under it."""
        return self._totals.get(name, {}).get(entry, (0, 0))[1]

    def elements(self, name: str) -> frozenset[Element]:
        return frozenset(self._sets.get(name, ()))

    def has(self, name: str, element: Element) -> bool:
        return element in self._sets.get(name, ())

    def words(self, name: str) -> list[Any]:
        """Each process's last contribution, the latest one at the end."""
        said = self._words.get(name, {}).values()
        return [value for _, value in sorted(said, key=_when)]

    def word(self, name: str, process: str) -> Any:
        """None if it said nothing."""
        return self._words.get(name, {}).get(process, (None, None))[1]

    def names(self) -> list[str]:
        return sorted({*self._registers, *self._totals, *self._sets, *self._words})

    # What to say about a set

    def repeated(self, name: str) -> list[Element]:
        """Its newest elements, for an update: who has missed some of the last ones gets them with the next."""
        found: list[Element] = []
        size = 0
        for element in reversed(self._sets.get(name, {})):
            size += len(element) if isinstance(element, str | bytes) else 8
            if len(found) == _REPEATED or size > _REPEATED_BYTES:
                break
            found.append(element)
        return found[::-1]

    # What comes

    def take(self, contribution: Contribution, maker: Maker) -> None:
        """A delivered update. Older ones than what is known change nothing."""
        name = contribution.name
        match contribution:
            case Put(_, value):
                self._put(name, maker.stamp, value)
            case Total(_, total):
                self._add_up(name, maker.entry, maker.value, total)
            case Elements(_, elements):
                self._sets.setdefault(name, {}).update(dict.fromkeys(elements))
            case Word(_, value):
                self._say(name, maker.process, (maker.life, maker.stamp), value)

    def _put(self, name: str, stamp: Stamp, value: Any) -> None:
        known = self._registers.get(name)
        if known is None or known[0] < stamp:
            self._registers[name] = stamp, value

    def _add_up(self, name: str, entry: int, value: Value, total: int) -> None:
        totals = self._totals.setdefault(name, {})
        if totals.get(entry, (0, 0))[0] < value:
            totals[entry] = value, total

    def _say(self, name: str, process: str, when: Spoken, value: Any) -> None:
        words = self._words.setdefault(name, {})
        known = words.get(process)
        if known is None or known[0] < when:
            words[process] = when, value
        if len(words) > MOST_SPEAKERS:
            del words[min(words, key=lambda process: (words[process][0][1], process))]

    # Whole states

    def snapshot(self) -> bytes:
        sets = {name: list(elements) for name, elements in self._sets.items()}
        return _encode(_Told(self._registers, self._totals, sets, self._words))

    def install(self, state: bytes, sender: str) -> None:
        """Take over what another replica knows, as far as it is news. A PeerError if that is no state."""
        if not state:
            return
        try:
            told = _state_decoder.decode(state)
        except NOT_DECODABLE as error:
            raise PeerError(sender, f"sends a state that cannot be read: {error}") from None
        for elements in told.sets.values():
            _check_elements(elements, sender)
        self._merge(told)

    def _merge(self, told: _Told) -> None:
        for name, (stamp, value) in told.registers.items():
            self._put(name, stamp, value)
        for name, totals in told.totals.items():
            for entry, (reached, total) in totals.items():
                self._add_up(name, entry, reached, total)
        for name, elements in told.sets.items():
            self._sets.setdefault(name, {}).update(dict.fromkeys(elements))
        for name, words in told.words.items():
            for process, (when, value) in words.items():
                self._say(name, process, when, value)


def _when(said: tuple[Spoken, Any]) -> Stamp:
    """Among processes their lives say nothing."""
    return said[0][1]

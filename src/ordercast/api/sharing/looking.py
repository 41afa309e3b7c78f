"""The kept topics of filters, now and later, as parts of the client library are told of them (ARC-K1)."""

from __future__ import annotations

from typing import Protocol

from ordercast.api.lifetime import Lifetime
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import Topic
from ordercast.net.host import ProcessHost


class Looker(Protocol):
    """Port to somebody who wants to know the kept topics of a filter. Both calls note things and return."""

    def found(self, topics: tuple[Topic, ...], why_not: str) -> None:
        """Kept topics of the filter, some of them known already; or why there never will be any."""

    def lost(self, error: Exception) -> None:
        """Nothing more will be told, because the client has ended."""


class KeptLooks:
    """The filters that a client looks for, each once, whoever of the client wants to know."""

    def __init__(self, host: ProcessHost, machine: ClientMachine, life: Lifetime) -> None:
        self._host = host
        self._machine = machine
        self._life = life
        self._lookers: dict[str, list[Looker]] = {}
        self._topics: dict[str, dict[Topic, None]] = {}
        """What was found; a filter that has not been answered is not in it."""

    def begin(self, pattern: str, looker: Looker) -> None:
        self._lookers.setdefault(pattern, []).append(looker)
        if pattern in self._topics:
            looker.found(tuple(self._topics[pattern]), "")
        else:
            self._host.turn(self._machine.look, pattern)

    def end(self, pattern: str, looker: Looker) -> None:
        lookers = self._lookers.get(pattern, [])
        if looker in lookers:
            lookers.remove(looker)
        if not lookers and self._lookers.pop(pattern, None) is not None:
            self._topics.pop(pattern, None)
            if self._life.works:
                self._host.turn(self._machine.unlook, pattern)

    def told(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None:
        if not why_not:
            self._topics.setdefault(pattern, {}).update(dict.fromkeys(topics))
        for looker in tuple(self._lookers.get(pattern, ())):
            looker.found(topics, why_not)

    def fail(self, error: Exception) -> None:
        for lookers in self._lookers.values():
            for looker in tuple(lookers):
                looker.lost(error)

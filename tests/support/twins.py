"""Machines with a copy at their side: whatever happens to one happens to the other, and must have the same effects.

The copy lives in surroundings that take nothing but what the original has just done, and answer what it was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ordercast.broker.node import Broker
from ordercast.client.machine import ClientMachine

ANEW = 7
"""After so many events the copy is made anew, and the one before must not have changed since its last event."""


class Witnessed:
    """Surroundings whose calls are written down, with their answers."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.calls: deque[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = deque()

    def __getattr__(self, name: str) -> Any:
        there = getattr(self.real, name)
        if not callable(there):
            return there

        def call(*arguments: Any, **named: Any) -> Any:
            answer = there(*arguments, **named)
            self.calls.append((name, arguments, named, answer))
            return answer

        return call


class Expecting:
    """Surroundings that expect exactly what the witnessed ones have seen."""

    def __init__(self, witnessed: Witnessed) -> None:
        self.witnessed = witnessed

    def __getattr__(self, name: str) -> Any:
        there = getattr(self.witnessed.real, name)
        if not callable(there):
            return there

        def call(*arguments: Any, **named: Any) -> Any:
            assert self.witnessed.calls, f"the copy alone does {name}{arguments}"
            expected, its_arguments, its_names, answer = self.witnessed.calls.popleft()
            assert (expected, its_arguments, its_names) == (name, arguments, named)
            return answer

        return call


_EVENTS = ("on_start", "on_opened", "on_packets", "on_closed", "on_timer", "on_turn_end")
_ASKED = ("publish", "subscribe", "unsubscribe", "watch", "unwatch", "consumed", "leave", "stop")


class Twins:
    """Builds machines with a twin; counts the events that the pairs have gone through together."""

    def __init__(self) -> None:
        self.events = 0

    def broker(self) -> Callable[..., Broker]:
        return self._accompanied(Broker, {"wires": 2, "ledger": 3}, _EVENTS)

    def client(self) -> Callable[..., ClientMachine]:
        return self._accompanied(ClientMachine, {"wires": 3, "app": 4, "ledger": 7}, (*_EVENTS, *_ASKED))

    def _accompanied(self, machine: Any, surroundings: dict[str, int], handlers: tuple[str, ...]) -> Callable[..., Any]:
        """`surroundings`: which arguments of the machine's construction they are."""
        shared = {name: _both(name, getattr(machine, name)) for name in handlers}
        kind: Any = type("Accompanied", (machine,), {"constant": (*machine.constant, "pair"), "pair": None, **shared})

        def build(*arguments: Any, **named: Any) -> Any:
            given = list(arguments)
            seen = {}
            for name, position in surroundings.items():
                if position < len(given) and given[position] is not None:
                    given[position] = seen[name] = Witnessed(given[position])
            original = kind(*given, **named)
            original.pair = Pair(self, original, seen)
            return original

        return build


def _both(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    def handle(machine: Any, *arguments: Any, **named: Any) -> Any:
        if machine.pair is None or machine.pair.inside:
            return handler(machine, *arguments, **named)
        return machine.pair.handle(name, handler, arguments, named)

    return handle


class Pair:
    """An original and its latest copy."""

    def __init__(self, twins: Twins, original: Any, seen: dict[str, Witnessed]) -> None:
        self.twins = twins
        self.original = original
        self.seen = seen
        self.inside = False
        self.events = 0
        self.twin: Any = None

    def handle(self, name: str, handler: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.events % ANEW == 0:
            self.twin = self.original.copy(**{name: Expecting(witnessed) for name, witnessed in self.seen.items()})
        self.events += 1
        self.twins.events += 1
        before = self.twin.frozen()
        self.inside = True
        try:
            answer = handler(self.original, *arguments, **named)
        finally:
            self.inside = False
        assert self.twin.frozen() == before, "an event of the original shows in the copy"
        assert handler(self.twin, *arguments, **named) == answer
        assert not any(witnessed.calls for witnessed in self.seen.values()), "the original alone does something"
        assert self.twin == self.original
        return answer

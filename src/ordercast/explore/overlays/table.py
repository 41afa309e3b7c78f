"""Memoised overlay machines: each state handles each input once, and the result is reused."""

from __future__ import annotations

from typing import Any

from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.messages import Message
from ordercast.core.process import OverlayPlace, Peer, ProcessMachine
from ordercast.explore.brokers.processes import (
    ProcessReaction,
    ProcessStart,
    ProcessTable,
    Publishes,
    Surroundings,
    Timers,
)
from ordercast.explore.overlays.scope import OverlayScope, Post, node_name

JOINED = 1 << 19
"""In a history: the process is a part of the network from here on, and has inherited something unknown."""


class OverlaySurroundings(Surroundings):
    """Wires and application of one overlay machine for the time of one input."""

    joined = False

    def deliver(self, entries: Any) -> None:
        self.delivered.append(entries)

    def note(self, kind: str, info: Any) -> None:  # noqa: ARG002
        if kind == "join":
            self.joined = True

    def send_all(self, connections: Any, packet: Any, but: int = 0) -> None:
        for connection in connections:
            if connection != but:
                self.send(connection, packet)

    def snapshot(self) -> bytes:
        return b""

    def depart(self) -> None:
        """Nobody leaves here."""

    def begin_anew(self, reason: str, through: str) -> None:
        self.complaint = f"{reason} ({through})"


class OverlayTable(ProcessTable):
    """All processes met so far."""

    def __init__(self, scope: OverlayScope, posts: tuple[Post, ...]) -> None:
        super().__init__(scope, (), None)  # type: ignore[arg-type]
        self.talks = posts  # type: ignore[assignment]
        self.names = [node_name(i) for i in range(scope.nodes)]
        self.addresses = {name: i for i, name in enumerate(self.names)}
        self.codec = scope.info.codec()
        self.posts: dict[tuple[str, int], int] = {}
        self._published_by: dict[int, int] = {}
        for i, post in enumerate(posts):
            number = 1 + sum(earlier.client == post.client for earlier in posts[:i])
            self.posts[node_name(post.client), number] = i
            self._published_by[i] = number

    def start(self, owner: int, life: int, now: int) -> ProcessReaction:
        """A process begins: with the network, or later."""
        scope: Any = self.scope
        wires = self.surroundings(now, 0, frozenset())
        peer = Peer("node", self.names[owner], life, self.names[owner])
        place = OverlayPlace(peer, self._first_known(owner), owner not in scope.joins)
        machine = scope.info.build_overlay(wires, place, scope.options)
        return self._run(owner, machine, wires, (), peer, ProcessStart(life))

    def _first_known(self, owner: int) -> tuple[str, ...]:
        """Those who are there from the beginning know each other; a joiner knows its neighbours."""
        scope: Any = self.scope
        absent = {node_name(joiner) for joiner in scope.joins} if owner not in scope.joins else set()
        return tuple(address for address in scope.neighbours(owner) if address not in absent)

    def surroundings(self, now: int, connections: int, timers: Timers) -> Surroundings:
        return OverlaySurroundings(now, connections, timers, self.codec)

    def copied(self, machine: ProcessMachine, wires: Surroundings) -> ProcessMachine:
        return machine.copy(wires=wires)  # type: ignore[call-arg]

    def message_of(self, entry: Any) -> int | None:
        return self.posts.get((entry.origin, entry.number))

    def tells(self, wires: Surroundings) -> list[int]:
        return [JOINED] if isinstance(wires, OverlaySurroundings) and wires.joined else []

    def publish(self, machine: Any, event: Publishes) -> None:
        post = self.talks[event.message]
        origin = origin_of(NodeId(self.names[post.client]), 0)
        guarantee = self.scope.info.guarantee  # type: ignore[attr-defined]
        machine.on_publish(Message(origin, self._published_by[event.message], Topic("t0"), b"", guarantee))

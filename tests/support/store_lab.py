"""The key-value store under virtual time: nodes with the machine of a protocol, links with latencies, and clients.

Every draw belongs to what it is for, so the same lab has the same history every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ordercast.core.chance import mix, salt, unit
from ordercast.core.effects import Deliver, EffectLog, Send
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.protocols import lookup
from ordercast.services.partitioned_kv import KeyValueReplica, Partitioning, Posting, Value
from tests.support.serializability import Event

Step = tuple[Sequence[str], Mapping[str, Value]]
"""Keys to read and what to write."""


class StoreLab:
    """`size` nodes in partitions of `replicas`; latencies are uniform up to 10 ms unless a link has its own."""

    def __init__(
        self,
        protocol: str,
        size: int,
        *,
        seed: int = 0,
        replicas: int = 1,
        slow: Mapping[tuple[str, str], float] | None = None,
        **options: Any,
    ) -> None:
        info = lookup(protocol)
        names = tuple(NodeId(f"n{i}") for i in range(size))
        self.partitioning = Partitioning([names[i : i + replicas] for i in range(0, size, replicas)])
        chosen = info.parse_options({"check_invariants": True, **options})
        self.machines: dict[str, Machine] = {
            node: info.build(Place(node, tuple(n for n in names if n != node), names), chosen) for node in names
        }
        self.replicas = {node: KeyValueReplica(node, self.partitioning) for node in names}
        self.history: list[Event] = []
        self.unfinished = 0
        self.packets = 0
        self.now = 0.0
        self._slow = dict(slow or {})
        self._salt = salt(seed, "store-lab")
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._last: dict[tuple[str, str], float] = {}
        self._published = dict.fromkeys(names, 0)
        self._done: dict[tuple[str, int], Callable[[dict[str, Value]], None]] = {}
        self._crashed: set[str] = set()

    def key_at(self, partition: int, name: str = "k") -> str:
        """A key that this partition holds."""
        return next(key for i in range(1000) if self.partitioning.partition_of(key := f"{name}{i}") == partition)

    def client(self, node: str, steps: Sequence[Step], *, at: float = 0.0) -> None:
        """A client at the node that does one step after the other."""
        if steps:
            self.unfinished += 1
            self._at(at, lambda: self._ask(node, list(steps)))

    def crash(self, node: str, *, at: float, noticed_after: float) -> None:
        self._at(at, lambda: self._crashed.add(node))
        for other in self.machines:
            if other != node:
                self._at(at + noticed_after, lambda other=other: self._do(other, "on_suspect", NodeId(node)))

    def run(self) -> list[Event]:
        while self._calendar:
            self.now, _, action = heapq.heappop(self._calendar)
            action()
        return self.history

    def _at(self, time: float, action: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._calendar, (time, self._planned, action))

    def _ask(self, node: str, steps: list[Step]) -> None:
        (reads, writes), rest = steps[0], steps[1:]
        invoked = self.now

        def done(values: dict[str, Value]) -> None:
            self.history.append(Event(invoked, self.now, values, dict(writes)))
            self.unfinished -= 1
            # Later than its answer, however little: the checker goes by the clock.
            self.client(node, rest, at=self.now + 0.001)

        number, posting = self.replicas[NodeId(node)].begin(reads, writes)
        self._done[node, number] = done
        self._post(node, posting)

    def _post(self, node: str, posting: Posting) -> None:
        who = NodeId(node)
        self._published[who] += 1
        message = Message(
            Origin(who), self._published[who], Topic("kv"), posting.payload, Guarantee.ATOMIC, (), posting.to
        )
        self._do(node, "on_publish", message)

    def _do(self, node: str, event: str, *args: object) -> None:
        if node in self._crashed:
            return
        log = EffectLog()
        getattr(self.machines[node], event)(*args, log)
        for effect in log.effects:
            if isinstance(effect, Send):
                self._send(node, effect.peer, effect.packet)
            elif isinstance(effect, Deliver):
                self._deliver(node, effect.message.payload)

    def _send(self, node: str, peer: str, packet: Packet) -> None:
        self.packets += 1
        drawn = 10 * unit(mix(self._salt, self.packets))
        arrival = max(self.now + self._slow.get((node, peer), drawn), self._last.get((node, peer), 0.0))
        self._last[node, peer] = arrival
        self._at(arrival, lambda: self._do(peer, "on_receive", NodeId(node), packet))

    def _deliver(self, node: str, payload: bytes) -> None:
        posting, result = self.replicas[NodeId(node)].deliver(payload)
        if posting is not None:
            self._at(self.now, lambda: self._post(node, posting))
        if result is not None:
            self._done.pop((node, result.number))(result.values)

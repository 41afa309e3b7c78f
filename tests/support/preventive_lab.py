"""Looks into all machines of a run of the preventive broadcast after every event: invariants I1 to I7 of its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ordercast.core.ids import Origin
from ordercast.core.messages import Packet
from ordercast.protocols.preventive.lines import OutLink, Way
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import (
    Ack,
    Begin,
    Data,
    FloodedLock,
    Lock,
    Probe,
    SafeMark,
    Snapshot,
)
from ordercast.sim.connections import Life, Processes

Counts = dict[Origin, int]


class Invariants:
    """Watches the machines of a world; a broken invariant is an AssertionError that says which."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.begun: dict[tuple[Origin, int], Counts] = {}
        """What a process had delivered when it began an attempt."""
        self.last_attempt: dict[Origin, int] = {}
        self._seen: dict[int, tuple[object, ...]] = {}
        self.looked: Counter[str] = Counter()
        processes.after_event = self.check

    def check(self, life: Life) -> None:
        """After an event of one process: its own links, and those that lead to it."""
        machine = life.machine
        if not isinstance(machine, Preventive) or not life.alive:
            return
        self._check_log(machine)
        self._remember_attempts(machine)
        for end in life.ends.values():
            self._check_way(machine, end.number, end)
            if end.other is not None and end.other.life.alive:
                other = end.other.life.machine
                if isinstance(other, Preventive):
                    self._check_way(other, end.other.number, end.other)

    # Of one process

    def _check_log(self, machine: Preventive) -> None:
        """I5: what is kept of an origin goes on from the floor without a gap, up to what was received."""
        log = machine.broadcast.log
        seen = machine.me.pid, machine.boots, log.end, len(log.kept), len(log.received)
        if self._seen.get(id(machine)) == seen:
            return  # Nothing was delivered, inherited or dropped since the last look.
        self._seen[id(machine)] = seen
        have = dict(log.floor)
        for message in log.kept:
            assert have.get(message.origin, 0) + 1 == message.number, f"I5: {machine.me.pid} skips to {message.id}"
            have[message.origin] = message.number
        assert all(log.received.get(origin, 0) == number for origin, number in have.items()), "I5: the vector differs"

    def _remember_attempts(self, machine: Preventive) -> None:
        """I6: no attempt has the number of an earlier one. P5: no buffer is too long. I7: one link for each peer."""
        links, log = machine.links, machine.broadcast.log
        fresh = self.last_attempt.get(machine.me.pid, 0)
        for pid, link in links.out.items():
            assert links.at[pid] == link.connection, f"I7: the link to {pid} is on another connection"
            assert links.lines[link.connection].pid == pid, "I7: the link is on another peer's connection"
            if link.safe or not link.attempt:
                continue
            key = machine.me.pid, link.attempt
            if key not in self.begun:
                assert link.attempt > self.last_attempt.get(machine.me.pid, 0), f"I6: attempt {key} again"
                self.begun[key] = _before(machine, link)
                fresh = max(fresh, link.attempt)
            if link.way is Way.LOCK:
                assert log.end - link.start <= machine.options.max_buffer, f"P5: the buffer to {pid} is too long"
                assert link.start >= log.first, f"I2: a part of the buffer to {pid} is gone"
        self.last_attempt[machine.me.pid] = fresh
        safe = sorted(link.connection for link in links.out.values() if link.safe)
        assert sorted(machine.broadcast.safe) == safe, "the list of safe links is not up to date"

    # Of one direction of a connection

    def _check_way(self, sender: Preventive, connection: int, end: Any) -> None:
        line = sender.links.lines.get(connection)
        if line is None or end.other is None or not end.other.life.alive:
            return
        receiver = end.other.life.machine
        if not isinstance(receiver, Preventive) or end.closed or end.other.closed or end.broken:
            return  # The session is over, though a sender that stands still may not have heard of it yet.
        queue = list(_queue(end))
        if queue:
            self._check_acks(sender, queue, line.pid)
            self._check_locks(sender, receiver, queue)
        link = sender.links.out.get(line.pid)
        if link is None or link.connection != connection:
            return
        if link.safe:
            self._check_safe(sender, receiver, queue)
        else:
            items = [packet for packet in queue if isinstance(packet, Data | SafeMark | Begin | Lock | Probe)]
            assert not items, f"I2: {sender.me.pid} uses its link to {line.pid}, which is not safe: {items}"

    def _check_safe(self, sender: Preventive, receiver: Preventive, queue: list[Packet]) -> None:
        """I1: all that the sender has is at the receiver, or on its way to it in the sender's order."""
        if not receiver.links.open and not any(isinstance(packet, Snapshot) for packet in queue):
            return  # It has not joined, or leaves.
        self.looked["I1"] += 1
        if receiver.links.open and receiver.broadcast.log.received == sender.broadcast.log.received and not queue:
            return
        have = dict(receiver.broadcast.log.received) if receiver.links.open else {}
        for packet in queue:
            if isinstance(packet, Snapshot):
                have.update(packet.received)
            elif isinstance(packet, Data):
                message = packet.message
                assert message.number <= have.get(message.origin, 0) + 1, f"I1: {message.id} is out of order"
                have[message.origin] = max(have.get(message.origin, 0), message.number)
        lacks = _lacks(have, sender.broadcast.log.received)
        assert not lacks, f"I1: {sender.me.pid} -> {receiver.me.pid} is safe without {lacks}"

    def _check_locks(self, sender: Preventive, receiver: Preventive, queue: list[Packet]) -> None:
        """I3: before a lock comes all that its process had delivered."""
        if not any(_is_lock(packet) for packet in queue):
            return
        have = dict(receiver.broadcast.log.received)
        for packet in queue:
            if isinstance(packet, Data):
                have[packet.message.origin] = max(have.get(packet.message.origin, 0), packet.message.number)
            elif isinstance(packet, Snapshot):
                have.update(packet.received)
            elif _is_lock(packet):
                origin = packet.origin if isinstance(packet, FloodedLock) else packet.route[0]  # type: ignore[attr-defined]
                lacks = _lacks(have, self.begun.get((origin, packet.attempt), {}))  # type: ignore[attr-defined]
                self.looked["I3"] += 1
                assert not lacks, f"I3: {sender.me.pid} sends a lock of {origin} ahead of {lacks}"

    def _check_acks(self, sender: Preventive, queue: list[Packet], to: Origin) -> None:
        """I4: who acknowledges a lock has all that its process had delivered."""
        for packet in queue:
            if isinstance(packet, Ack) and (to, packet.attempt) in self.begun:
                lacks = _lacks(sender.broadcast.log.received, self.begun[to, packet.attempt])
                self.looked["I4"] += 1
                assert not lacks, f"I4: {sender.me.pid} acknowledges {to} without {lacks}"


def _is_lock(packet: Packet) -> bool:
    return isinstance(packet, Lock | FloodedLock) or (isinstance(packet, Probe) and packet.stage == 0)


def _before(machine: Preventive, link: OutLink) -> Counts:
    """What the machine had when the attempt began; its buffer is what it has delivered since."""
    counts = dict(machine.broadcast.log.received)
    if link.way is Way.LOCK:
        for message in reversed(list(machine.broadcast.log.since(link.start))):
            counts[message.origin] = message.number - 1
    return counts


def _lacks(have: Counts, needed: Counts) -> Counts:
    return {origin: number for origin, number in needed.items() if have.get(origin, 0) < number}


def _queue(end: Any) -> Iterator[Packet]:
    """What is under way on one direction of a connection, oldest first."""
    if end.other is not None:  # It has not joined, or stands still, and hears it when it has or goes on.
        yield from end.other.life.machine.joining.parked.get(end.other.number, ())
        for _, arguments in end.other.life._backlog:
            if arguments and arguments[0] is end.other and isinstance(arguments[1], list | tuple):
                yield from arguments[1]
    for batch in end.flying:
        yield from batch
    yield from (packet for packet in end._held if isinstance(packet, Packet))

"""Measures a run while it goes on: a warm-up, then a window in which deliveries and bytes are counted.

Everything is counted in memory and compared between the ends of the window, so that no trace of packets is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ordercast.experiments.kit.study import Row

if TYPE_CHECKING:
    from ordercast.core.messages import Message
    from ordercast.sim.links.host import Host
    from ordercast.sim.links.world import World

_STEP_NS = 500_000
_PATIENCE_NS = 3_600_000_000_000
"""A run that does not get so far in an hour of its time is measured as it is, and said not to be full."""
_NS_PER_S = 1e9


class MeasureSnapshot(msgspec.Struct, frozen=True):
    """Counts since the beginning of the run, by node where there are several."""

    time_ns: int
    published: int
    copies: int
    header_bytes: int
    control: int
    control_bytes: int
    delivered: tuple[int, ...]
    sent_bytes: tuple[int, ...]
    """In copies of messages, their payloads included."""
    taken_bytes: tuple[int, ...]
    """By the server of the node: what it sent and, if it pays for that too, what it received."""


class Meter:
    """Drives a world through warm-up, window and, if it is to drain, until everything has arrived."""

    def __init__(
        self,
        publishers: Sequence[str],
        *,
        warm: int,
        before: int,
        messages: int,
        degree: int,
        mbps: float,
        drains: bool,
    ) -> None:
        self._warm = warm
        self._before = before
        self._messages = messages
        self._branching = degree - 1
        self._mbps = mbps
        self._alone = publishers if len(publishers) == 1 else []
        self._arrivals: list[int] = []
        """Of a single publisher: when the last node of the deepest level delivered, within the window."""
        self._drains = drains
        self._ends: list[MeasureSnapshot] = []
        self._full = False
        """Whether the run was warm, and its window filled, before patience ended."""

    def drive(self, world: World) -> tuple[int, bool]:
        """Let the world live."""
        from ordercast.sim.run import rare_collections
        from ordercast.sim.workload import start_workload

        end_load = start_workload(world)
        hosts = list(world.hosts.values())
        with rare_collections():
            for host in hosts:
                host.start()
            # A single publisher has nothing to wait for: it gets nothing from others.
            others = [host for host in hosts if host.node not in self._alone]

            def is_warm() -> bool:
                if world.published < self._before:
                    return False
                return all(host.delivered - host.published >= self._warm for host in others)

            events, warm = _run_until(world, is_warm)
            self._ends.append(_snapshot(world))
            if self._alone:
                world.delivery_watchers.append(self._watch(hosts[-1]))
            wanted = sum(host.delivered for host in hosts) + self._messages * len(hosts)
            more, filled = _run_until(world, lambda: sum(host.delivered for host in hosts) >= wanted)
            events += more
            self._full = warm and filled
            self._ends.append(_snapshot(world))
            end_load()
            if self._drains:
                events += world.clock.run_to_rest(world.clock.now + 10 * _PATIENCE_NS)
        return events, world.clock.at_rest

    def _watch(self, last: Host) -> Callable[[Host, Message], None]:
        clock, arrivals = last.world.clock, self._arrivals

        def delivered(host: Host, _message: Message) -> None:
            if host is last and len(self._ends) == 1:
                arrivals.append(clock.now)

        return delivered

    def results(self) -> Row:
        """The measurements, as columns of a results table."""
        start, end = self._ends
        seconds = (end.time_ns - start.time_ns) / _NS_PER_S
        delivered = sum(end.delivered) - sum(start.delivered)
        copies = end.copies - start.copies
        return {
            "full": self._full,
            "warm_ms": start.time_ns / 1e6,
            "window_ms": seconds * 1e3,
            "deliveries": delivered,
            "published_per_s": (end.published - start.published) / seconds,
            "aggregated_per_s": delivered / seconds,
            "individual_per_s": self._individual_per_s(),
            "copies": copies,
            "metadata_bytes": (end.header_bytes - start.header_bytes) / copies if copies else None,
            "control_bytes_per_copy": (end.control_bytes - start.control_bytes) / copies if copies else None,
            "control_per_copy": (end.control - start.control) / copies if copies else None,
            **self._loads(seconds),
        }

    def _individual_per_s(self) -> float | None:
        """Between the first and the last arrival, so that no part of a message is counted."""
        times = self._arrivals
        return (len(times) - 1) / (times[-1] - times[0]) * _NS_PER_S if len(times) > 1 else None

    def _loads(self, seconds: float) -> Row:
        """Which nodes have most to do; more than 100 % piles up."""
        start, end = self._ends
        sent = [after - before for before, after in zip(start.sent_bytes, end.sent_bytes, strict=True)]
        got = [after - before for before, after in zip(start.delivered, end.delivered, strict=True)]
        per_message = [byte / count for byte, count in zip(sent, got, strict=True) if count]
        found: Row = {"busiest_sent_bytes_per_message": max(per_message, default=None)}
        if not self._mbps:
            return found
        taken = [after - before for before, after in zip(start.taken_bytes, end.taken_bytes, strict=True)]
        through = [byte / count for byte, count in zip(taken, got, strict=True) if count]
        shares = [byte * 8 / (self._mbps * 1e6 * seconds) for byte in taken]
        busiest = max(range(len(shares)), key=shares.__getitem__)
        return {
            **found,
            "busiest_bytes_per_message": max(through, default=None),
            "busiest_share": shares[busiest],
            "busiest_depth": depth_of(busiest, self._branching),
            "root_share": shares[0],
            "child_share": shares[1],
            "last_share": shares[-1],
        }


def depth_of(node: int, branching: int) -> int:
    """How far a node is from the root, in a tree that is filled level by level."""
    depth = 0
    while node:
        node, depth = (node - 1) // branching, depth + 1
    return depth


def _run_until(world: World, done: Callable[[], bool]) -> tuple[int, bool]:
    """Let time pass, step by step, until it is done or patience ends; how many events that took, and which of both."""
    clock, events = world.clock, 0
    limit = clock.now + _PATIENCE_NS
    while not (reached := done()) and clock.now < limit:
        events += clock.run_until(clock.now + _STEP_NS)
    return events, reached


def _snapshot(world: World) -> MeasureSnapshot:
    hosts = list(world.hosts.values())
    traffic = [host.traffic for host in hosts]
    return MeasureSnapshot(
        time_ns=world.clock.now,
        published=world.published,
        copies=sum(one.copies for one in traffic),
        header_bytes=sum(one.header_bytes for one in traffic),
        control=sum(one.control for one in traffic),
        control_bytes=sum(one.control_bytes for one in traffic),
        delivered=tuple(host.delivered for host in hosts),
        sent_bytes=tuple(one.header_bytes + one.payload_bytes for one in traffic),
        taken_bytes=tuple(host.egress.taken_bytes if host.egress is not None else 0 for host in hosts),
    )

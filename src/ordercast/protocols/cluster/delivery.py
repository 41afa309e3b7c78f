"""From an update that has come to its delivery: hold it back, ask for what is missing, give up. CLU-3, CLU-4."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import compress
from operator import gt
from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.state import State
from ordercast.core.vectors import ahead
from ordercast.protocols.cluster.directory import Directory
from ordercast.protocols.cluster.events import ENTRY_MASK, Event, Range, Value, epoch_of, missing, seq_of
from ordercast.protocols.cluster.ordering import UpdateOrdering
from ordercast.protocols.cluster.packets import Recover, Recovered
from ordercast.protocols.cluster.ports import Ports
from ordercast.protocols.cluster.recovery import AGE, Asked, RecoveryBuffer, trimmed
from ordercast.protocols.cluster.total import TOTAL, Stamp, TotalQueue
from ordercast.protocols.gossip.delivered import Delivered
from ordercast.protocols.gossip.members import GossipView

TERMINATE, RECOVER, AGAIN = "terminate", "recover", "again"

_EVENT_BYTES, _ENTRY_BYTES = 200, 9
"""More than an update takes in a packet, but for its payload; and for each entry of its vector."""


class Delivery(State):
    """The updates of one process: what it keeps for others, what waits, and what its application has got."""

    constant: ClassVar[tuple[str, ...]] = ("ports", "wires", "options", "app", "members", "directory")
    durable: ClassVar[tuple[str, ...]] = ("ordering", "total", "floor", "covered", "taken", "keeps_order")

    def __init__(self, ports: Ports, members: GossipView, directory: Directory) -> None:
        options = ports.options
        self.ports = ports
        self.wires = ports.wires
        self.options = ports.options
        self.app = ports.app
        self.members = members
        self.directory = directory
        self.ordering = UpdateOrdering(options.entries)
        self.total = TotalQueue()
        self.buffer = RecoveryBuffer(options.recovery_buffer, options.replacement)
        self.asked = Asked()
        self.armed: dict[int, str] = {}
        """By key of a waiting update: which of its two patiences runs."""
        self.due: dict[str, dict[int, int]] = {TERMINATE: {}, RECOVER: {}}
        """By patience and key: when it is over; the first one first. Each patience has one timer for all of them."""
        self.keeps_order = True
        self.knows_start = True
        """Whether it knows where the cluster stood when it came: before that, updates wait in `early`."""
        self.early: list[Event] = []
        self.floor: list[Value] = [0] * options.entries
        """Without order: everything up to this was delivered or skipped while the order was kept."""
        self.covered: list[Value] = [0] * options.entries
        """Without order: what has been delivered, and everything before it."""
        self.taken = Delivered(options.entries * 4)
        self.noticed: list[Value] = [0] * options.entries
        """Of every entry: the highest value that a check is planned for, or one that the clock covers."""
        self.checks: list[tuple[int, tuple[tuple[int, Value], ...]]] = []
        """CLU-4.5: when to look whether what a digest told has come."""
        self.asked_at: dict[int, Value] = {}
        """By entry that a digest was ahead of at the last look: how far this process was."""
        self.requests = 0
        self.again: dict[int, tuple[Range, ...]] = {}

    # Updates come

    def receive(self, events: Sequence[Event], births: Mapping[Hashable, int]) -> None:
        """CLU-3.1: from gossip, for the first time as far as that knows."""
        ordering, noticed, by_age = self.ordering, self.noticed, self.options.replacement == AGE
        store, update, deliver = self.buffer.store, self.app.update, self.wires.deliver
        in_order, totally = self.keeps_order and self.knows_start, self.options.total_rounds
        for event in events:
            store(event, births.get(event.key, 0) if by_age else 0)
            if not in_order or not (value := ordering.advance(event)):
                self._sort_in(event, recovered=False)
                continue
            entry = event.key & ENTRY_MASK
            if value > noticed[entry]:
                noticed[entry] = value  # Digests that tell of it are no news any more: nearly all of them.
            if totally or ordering.skipped:
                self.hand_over((event,))
            else:  # This is what nearly always happens.
                update(event)
                deliver(event.message)

    def recovered(self, event: Event, born: int) -> None:
        """CLU-3.4: somebody was asked for it, or for one like it."""
        self.buffer.store(event, born)
        self._sort_in(event, recovered=True)

    def _sort_in(self, event: Event, *, recovered: bool) -> None:
        if not self.keeps_order:
            self._deliver_unordered(event)
            return
        if not self.knows_start:
            self._keep_early(event)
            return
        ordering = self.ordering
        if ordering.is_obsolete(event):
            self.wires.count("updates_obsolete")
        elif event.key not in ordering.waiting:
            if ordering.is_ready(event):
                self.hand_over(ordering.take(event))
            else:
                self._hold(event, recovered=recovered)

    def own(self, event: Event) -> None:
        """CLU-2.1: delivered at once, whatever else waits."""
        self.buffer.store(event)
        self.hand_over(self.ordering.take(event))

    def _keep_early(self, event: Event) -> None:
        if len(self.early) < self.options.held:
            self.early.append(event)
        else:
            self.wires.count("updates_too_early")

    def _deliver_unordered(self, event: Event) -> None:
        """CLU-5.4: once, as it comes. What may have been delivered before is not delivered again."""
        value = event.value
        if value > self.floor[event.entry] and self.taken.add((event.entry, epoch_of(value)), seq_of(value)):
            self.covered = list(map(max, self.covered, event.vector))
            self.app.update(event)
            self.wires.deliver(event.message)

    # Updates wait

    def _hold(self, event: Event, *, recovered: bool) -> None:
        """CLU-3.3: until what it waits for comes, or time runs out."""
        ordering, options = self.ordering, self.options
        ordering.hold(event)
        if recovered:
            self._arm(event.key, RECOVER, options.recover_ns)
            self.request(missing(event, ordering.clock))
        else:
            self._arm(event.key, TERMINATE, options.terminate_ns)
        if len(ordering.waiting) > options.held:
            self.force(next(iter(ordering.waiting)))

    def _arm(self, key: int, kind: str, delay_ns: int) -> None:
        due = self.due[kind]
        if not due:
            self.ports.set_timer(kind, 0, delay_ns)
        due[key] = self.wires.now_ns + delay_ns
        self.armed[key] = kind

    def _disarm(self, key: int) -> None:
        kind = self.armed.pop(key)
        due = self.due[kind]
        due.pop(key, None)
        if not due:
            self.ports.cancel_timer(kind, 0)

    def on_timer(self, kind: str, number: int) -> None:
        if kind == AGAIN:
            self._ask_again(number)
            return
        now, due = self.wires.now_ns, self.due[kind]
        while due:
            key = next(iter(due))
            if due[key] > now:
                self.ports.set_timer(kind, 0, due[key] - now)
                return
            del due[key]
            self._time_out(kind, key)

    def _time_out(self, kind: str, key: int) -> None:
        if kind == TERMINATE and self.options.recovery != "none":
            self._arm(key, RECOVER, self.options.recover_ns)
            self.request(missing(self.ordering.waiting[key], self.ordering.clock))
        else:
            self.force(key)

    def force(self, key: int) -> None:
        """CLU-3.5: it has waited for long enough."""
        self.hand_over(self.ordering.force(self.ordering.waiting[key]))

    def hand_over(self, delivered: Iterable[Event]) -> None:
        """To the application, or to where the total order is made; what no longer waits needs no timer."""
        armed, totally = self.armed, self.options.total_rounds
        update, deliver = self.app.update, self.wires.deliver
        for event in delivered:
            if armed and event.key in armed:
                self._disarm(event.key)
            if totally:
                self._hold_for_total(event)
            else:
                update(event)
                deliver(event.message)
        if len(armed) != len(self.ordering.waiting):
            for key in [key for key in armed if key not in self.ordering.waiting]:
                self._disarm(key)
        if self.ordering.skipped:
            self._report()

    # The total order

    def _hold_for_total(self, event: Event) -> None:
        """CLU-9.1: hold it for those with lower stamps; what comes too late is told as skipped."""
        now, hold_ns = self.wires.now_ns, self.options.total_ns
        if not self.total.add(event, now + hold_ns):
            self.wires.count("updates_overtaken")
            self.ordering.skipped.append((event.entry, event.value - 1, event.value))
        elif self.total.next_ns == now + hold_ns:
            self.ports.set_timer(TOTAL, 0, hold_ns)
        if len(self.total.held) > self.options.held:
            self._deliver_all(self.total.release_lowest())

    def release_total(self) -> None:
        """CLU-9.2: what has been held for long enough."""
        now = self.wires.now_ns
        self._deliver_all(self.total.release(now))
        if self.total.next_ns is not None:
            self.ports.set_timer(TOTAL, 0, max(0, self.total.next_ns - now))

    def _deliver_all(self, released: list[Event]) -> None:
        for event in released:
            self.app.update(event)
            self.wires.deliver(event.message)

    def inherit_total(self, last: Stamp, held: Iterable[Event]) -> None:
        """CLU-9.3: from whom the state of the objects came; what that one holds is held here too."""
        if self.options.total_rounds:
            known = {event.key for event in self.total.events}
            self.total.inherit(last)
            self.hand_over([event for event in held if event.key not in known and not self.ordering.is_obsolete(event)])

    def _report(self) -> None:
        skipped = self.ordering.take_skipped()
        self.wires.count("ranges_skipped", len(skipped))
        self.app.lost(self.ports.cluster, skipped)

    # Updates are missing

    def request(self, ranges: Iterable[Range]) -> None:
        """CLU-4.3: ask those who may have it, unless that was done just now."""
        ports, options = self.ports, self.options
        if options.recovery == "none":
            return
        new = self.asked.new_of(ranges, self.ordering.waiting, ports.wires.now_ns, options.recover_ns)
        if not new:
            return
        ports.wires.count("ranges_asked", len(new))
        self._ask(new)
        if options.recovery == "source":
            self.requests += 1
            self.again[self.requests] = tuple(new)
            ports.set_timer(AGAIN, self.requests, options.recover_ns // 2)

    def _ask_again(self, number: int) -> None:
        """CLU-4.3: the source is one process only: a lost question is asked once more before time runs out."""
        clock, waiting = self.ordering.clock, self.ordering.waiting
        left: list[Range] = []
        for entry, low, high in self.again.pop(number, ()):
            rest = trimmed(entry, max(low, clock[entry]), high, waiting)
            if rest[0] < rest[1]:
                left.append((entry, *rest))
        self._ask(left)

    def _ask(self, ranges: Iterable[Range]) -> None:
        ports = self.ports
        questions: dict[str, list[Range]] = {}
        others = self._arbitrary()
        for asked in ranges:
            for address in self._targets(asked, others):
                questions.setdefault(address, []).append(asked)
        for address, wanted in questions.items():
            ports.cast(address, Recover(ports.cluster, tuple(wanted)))

    def _arbitrary(self) -> list[str]:
        options = self.options
        return self.members.draw(options.ask) if options.recovery != "source" else []

    def _targets(self, asked: Range, others: list[str]) -> list[str]:
        """CLU-4.2: the owners of the epochs that the range touches, `ask` members by chance, or both."""
        options = self.options
        if options.recovery == "k":
            return others
        sources = [one for one in self.directory.between(*asked) if one != self.ports.address]
        if options.recovery == "source":
            return sources or self.members.draw(1)
        return [*sources, *(one for one in others if one not in sources)][: options.ask]

    def answer(self, address: str, ranges: tuple[Range, ...], sender: str) -> None:
        """CLU-4.4: what is here of it, in packets of bounded size."""
        if len(ranges) > self.options.entries:
            raise PeerError(sender, f"asks for {len(ranges)} ranges")
        part: list[Event] = []
        size = 0
        for event in self.buffer.inside(ranges):
            size += self.bytes_of(event)
            if part and size > self.options.packet_bytes:
                self.ports.cast(address, Recovered(self.ports.cluster, tuple(part)))
                part, size = [], self.bytes_of(event)
            part.append(event)
        if part:
            self.ports.cast(address, Recovered(self.ports.cluster, tuple(part)))

    def bytes_of(self, event: Event) -> int:
        return _EVENT_BYTES + len(event.message.payload) + _ENTRY_BYTES * len(event.vector)

    # Digests

    def hear_digest(self, digest: tuple[Value, ...], sender: str) -> None:
        """CLU-4.5: another process has more. If that has not come when its gossip is over, it is asked for."""
        noticed = self.noticed
        if len(digest) != len(noticed):
            raise PeerError(sender, f"sends a digest of {len(digest)} entries")
        if ahead(digest, noticed) and self.keeps_order and self.knows_start:
            clock, new = self.ordering.clock, []
            for i in compress(range(len(digest)), map(gt, digest, noticed)):
                value = digest[i]
                noticed[i] = max(value, clock[i])
                if value > clock[i]:
                    new.append((i, value))
            if new:
                self.checks.append((self.wires.now_ns + self.options.terminate_ns, tuple(new)))

    def look_at_digests(self) -> None:
        """CLU-4.5: at every round, at what is due."""
        now, clock = self.wires.now_ns, self.ordering.clock
        while self.checks and self.checks[0][0] <= now:
            _, told = self.checks.pop(0)
            for i, value in told:
                if self.noticed[i] == value:
                    self.noticed[i] = clock[i]  # If it does not come, the next digest has it looked for again.
            self._ask_for_told([(i, clock[i], value) for i, value in told if clock[i] < value])

    def _ask_for_told(self, late: list[Range]) -> None:
        """CLU-4.6: what was asked for and has not come, nobody may have any more: the application hears of it."""
        if not late:
            return
        behind = [(i, known, value) for i, known, value in late if self.asked_at.get(i) == known]
        self.asked_at.update({i: known for i, known, _ in late})
        self.request(late)
        if behind:
            self.wires.count("ranges_behind", len(behind))
            self.app.behind(self.ports.cluster, behind)

    # How it delivers

    def forget_start(self) -> None:
        """CLU-5.1: it does not know where the cluster stands: what comes waits until it does."""
        self.knows_start = False

    def begin_at(self, vector: Sequence[Value]) -> None:
        """CLU-5.1: where the cluster stands; what came meanwhile is looked at now."""
        self.knows_start = True
        if vector:
            self.hand_over(self.ordering.cover(vector))
        early, self.early = self.early, []
        for event in early:
            self._sort_in(event, recovered=False)

    def catch_up_to(self, vector: Sequence[Value]) -> None:
        """CLU-5.6: the application has got the state of somebody who is there; what comes before is not lost."""
        if not self.keeps_order:
            self.covered = list(map(max, self.covered, vector))
        elif self.knows_start:
            self.hand_over(self.ordering.cover(vector))

    def begin_order(self) -> None:
        """CLU-5.2: from now on the order is kept, after all that was delivered without it; where it stands is asked."""
        self.keeps_order, self.knows_start = True, False
        self.ordering.cover(map(max, self.floor, self.covered))

    def end_order(self) -> None:
        """CLU-5.3: what waits is delivered, in causal order, and then everything as it comes."""
        self.hand_over(self.ordering.give_up_waiting())
        self._deliver_all(self.total.release_all())
        self.ports.cancel_timer(TOTAL, 0)
        early, self.early = self.early, []
        self.floor = list(self.ordering.clock)
        self.covered = list(self.floor)
        self.checks.clear()
        self.again.clear()
        self.keeps_order = False
        for event in early:
            self._deliver_unordered(event)

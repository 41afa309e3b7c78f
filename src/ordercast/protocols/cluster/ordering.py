"""Optimistic causal order: what waits, what is delivered, what comes too late. docs/protocols/cluster.md, CLU-3.

No timers and no packets here: `Delivery` says when something waited for long enough. Whatever is called in whatever
order, nothing is handed out after something that it happened before.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import gt
from typing import ClassVar

from ordercast.core.state import State
from ordercast.core.vectors import ahead
from ordercast.protocols.cluster.events import (
    ABSENT,
    ENTRY_BITS,
    ENTRY_MASK,
    SEQ_BITS,
    Event,
    Range,
    Value,
    causal_order,
    missing,
)  # fmt: skip


class UpdateOrdering(State):
    """The clock of a process (delivered or skipped, per entry), and updates that wait for others before them."""

    ordered: ClassVar[tuple[str, ...]] = ("waiting",)
    derived: ClassVar[tuple[str, ...]] = ("blocked",)
    durable: ClassVar[tuple[str, ...]] = ("clock",)

    def __init__(self, entries: int) -> None:
        self.clock: list[Value] = [0] * entries
        self.waiting: dict[int, Event] = {}
        """By key. Received and recovered updates wait in one queue: for the order they are the same."""
        self.blocked: dict[int, dict[int, None]] = {}
        """By entry: keys that wait for it to move on, among other things; some may have been delivered since."""
        self.skipped: list[Range] = []
        """What was passed over for ever, until somebody takes note of it."""

    def is_obsolete(self, event: Event) -> bool:
        """CLU-1.2: it, or something that it happened before, was delivered: it never will be."""
        return event.value <= self.clock[event.entry]

    def is_ready(self, event: Event) -> bool:
        """CLU-1.3: it is next on its entry, and everything else that it knew is covered."""
        clock = self.clock
        key = event.key
        value, known = key >> ENTRY_BITS, clock[key & ENTRY_MASK]
        if value != known + 1:
            prev = event.prev
            if prev == ABSENT or value >> SEQ_BITS <= known >> SEQ_BITS or known < prev:
                return False
        # Its own entry is one that is ahead; another one is another update that is missing.
        return ahead(event.vector, clock) == 1

    def advance(self, event: Event) -> Value:
        """CLU-3.2, as it nearly always is: take an update that is ready, begins no epoch, and that nothing waits for.

        Its value; or 0: nothing has changed, and the update is to be looked at more closely.
        """
        clock, vector = self.clock, event.vector
        entry = event.key & ENTRY_MASK
        value = vector[entry]
        if value != clock[entry] + 1 or event.prev != ABSENT or entry in self.blocked:
            return 0
        if ahead(vector, clock) != 1:
            return 0
        # The vector's own number, not an equal one: simulated members then share what they compare all the time.
        clock[entry] = value
        return value

    def hold(self, event: Event) -> None:
        """CLU-3.3: it waits. Of all that it waits for one entry is watched, until that moves on."""
        self.waiting[event.key] = event
        self._block(event)

    def _block(self, event: Event) -> None:
        entry = event.key & ENTRY_MASK
        later = list(map(gt, event.vector, self.clock))
        later[entry] = False
        if True in later:
            entry = later.index(True)
        blocked = self.blocked.get(entry)
        if blocked is None:
            self.blocked[entry] = {event.key: None}
        else:
            blocked[event.key] = None

    def take(self, event: Event) -> list[Event]:
        """CLU-3.2: deliver a ready update and all that waited for it alone; in order."""
        if self.waiting and event.prev != ABSENT:
            return self._release(event) + self.flush()
        entry = event.key & ENTRY_MASK
        self.clock[entry] = event.vector[entry]
        return [event, *self._wake(entry)] if entry in self.blocked else [event]

    def _wake(self, moved: int) -> list[Event]:
        """CLU-3.6, where entries move on by one update: only what watches one of them can have become ready.

        Sorted, so that the order is one of what waited, and not of what each happened to watch.
        """
        waiting, clock, delivered = self.waiting, self.clock, list[Event]()
        entries, begins = [moved], False
        while entries:
            for key in self.blocked.pop(entries.pop(), ()):
                event = waiting.get(key)
                if event is None or not self.is_ready(event):
                    if event is not None:
                        self._block(event)
                elif event.prev != ABSENT:
                    begins = True
                else:
                    entry = key & ENTRY_MASK
                    del waiting[key]
                    clock[entry] = event.vector[entry]
                    entries.append(entry)
                    delivered.append(event)
        delivered.sort(key=causal_order)
        return delivered + self.flush() if begins else delivered

    def flush(self) -> list[Event]:
        """CLU-3.6: drop what is obsolete and deliver what is ready, until nothing changes."""
        delivered: list[Event] = []
        changed = True
        while changed and self.waiting:
            changed = False
            for key, event in list(self.waiting.items()):
                if self.is_obsolete(event):
                    self.waiting.pop(key, None)
                elif self.is_ready(event):
                    delivered += self._release(event)
                    changed = True
        self.blocked = {}
        for event in self.waiting.values():
            self._block(event)
        return delivered

    def _release(self, event: Event) -> list[Event]:
        """CLU-3.2: with the first update of an epoch those before are over: what waits of them is delivered first."""
        return [self._deliver(event)] if event.prev == ABSENT else self._deliver_with_past(event)

    def force(self, event: Event) -> list[Event]:
        """CLU-3.5: it waited for long enough. What waits and comes before it is delivered first; the rest is lost."""
        return self._deliver_with_past(event) + self.flush()

    def _deliver_with_past(self, event: Event) -> list[Event]:
        """CLU-3.5: what waits and would be obsolete after it comes first, and before that what would be after that.

        An update of an epoch that was cut short is not before the next owner's, but obsolete after it; so its past is
        not in the past of that one, and has to be looked for.
        """
        self.waiting.pop(event.key, None)
        vector = event.vector
        delivered: list[Event] = []
        pool = [one for one in self.waiting.values() if one.value <= vector[one.entry]]
        for one in sorted(pool, key=causal_order):
            if one.key in self.waiting:
                delivered += self._deliver_with_past(one)
        return [*delivered, self._deliver(event)]

    def _deliver(self, event: Event) -> Event:
        self.waiting.pop(event.key, None)
        self.skipped += missing(event, self.clock)
        self.clock = list(map(max, self.clock, event.vector))
        return event

    def take_skipped(self) -> list[Range]:
        """Ranges that were passed over since the last look."""
        skipped, self.skipped = self.skipped, []
        return skipped

    def give_up_waiting(self) -> list[Event]:
        """CLU-5.3: everything that waits, in causal order, because the process will keep no order from now on."""
        delivered = sorted(self.waiting.values(), key=causal_order)
        self.blocked = {}
        return [self._deliver(event) for event in delivered]

    def cover(self, vector: Iterable[Value]) -> list[Event]:
        """CLU-5.1, CLU-5.6: everything up to the vector counts as delivered elsewhere.

        What waits and would be obsolete by that is delivered first; what waited for it may be ready now.
        """
        reached = tuple(vector)
        before = self.take_skipped()
        delivered: list[Event] = []
        for one in sorted(self.waiting.values(), key=causal_order):
            if one.key in self.waiting and one.value <= reached[one.entry]:
                delivered += self._deliver_with_past(one)
        beyond = [(i, max(low, reached[i]), high) for i, low, high in self.take_skipped() if high > reached[i]]
        self.skipped = before + beyond
        self.clock = list(map(max, self.clock, reached))
        return delivered + self.flush()

"""A member of a group: takes work from the leader and hands it to its application, key by key in order."""

from __future__ import annotations

from collections import deque

import msgspec

from ordercast.client.work.lanes import keys_of
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.words import Orders, Report, WorkOrder, by_publisher
from ordercast.core.chance import salt, unit
from ordercast.core.state import State
from ordercast.pubsub.publications import Publication, PublicationId

_MOST_DOUBLINGS = 5


class WorkInHand(msgspec.Struct, gc=False, eq=False):
    """A unit that this member has. The garbage collector need not look at it: it leads back to nobody."""

    entry: Publication
    attempt: int
    id: PublicationId
    keys: tuple[str, ...]
    given: bool = False
    """The application has it, or had it and is to have it again."""
    over: bool = False
    """Done, or not this member's any more."""


class WorkMember(State):
    """One member, in all its lives: whoever was given up begins a new one, with nothing in hand."""

    def __init__(self, client: str, settings: WorkSettings, now_ns: int) -> None:
        self.client = client
        self.settings = settings
        self.life = 1
        self.epoch = 0
        self.rank = 0
        self.heard_ns = now_ns
        """When a leader was last heard of."""
        self.tries = 0
        """How often it has tried to lead since then."""
        self.joined = False
        self.leaving = False
        self.held: dict[PublicationId, WorkInHand] = {}
        self.lanes: dict[str, deque[WorkInHand]] = {}
        self.ready: list[WorkInHand] = []
        """What the application may be handed."""
        self.lost: list[WorkInHand] = []
        """What was taken away from this member."""
        self.number = 0
        self.confirmed = 0
        """What reports up to this one, and above `void`, said to be done is written down."""
        self.void = 0
        """What reports up to this one said, and was not confirmed when this member was given up, never will be."""
        self._done: list[PublicationId] = []
        self._tried: dict[PublicationId, int] = {}
        self._unconfirmed: deque[tuple[int, list[PublicationId]]] = deque()
        self._said_ns = -(1 << 62)
        self._said: deque[tuple[int, int, int]] = deque()
        """Reports that no leader has said to have: number, when they were made, and the room that they gave."""
        self.room = 0
        """SHW-9: units that the leader may send ahead; 0: the whole window."""
        self._room_said = self._room_heard = 0
        self.safe_until_ns = -(1 << 62)
        """SHW-8: before that nobody gives this member up."""
        self._asked = False
        """A leader that has just begun wants to know what is in hand here."""

    @property
    def member(self) -> str:
        return f"{self.client}/{self.life}"

    # From the leader

    def orders(self, orders: Orders, now_ns: int) -> None:
        """SHW-3 to SHW-6: work, a confirmation, a new leader, or that this member was given up."""
        if orders.member != self.member or orders.epoch < self.epoch:
            return
        self.heard_ns = now_ns
        self.tries = 0
        if orders.noted:
            return
        if orders.epoch > self.epoch:
            self._new_leader(orders.epoch)
        if orders.expelled:
            self._expelled()
            return
        self.joined = True
        self.rank = orders.rank
        self._confirm(orders.confirmed)
        self._extend(orders.heard)
        for assignment in orders.assigned:
            self._take(assignment)

    def _new_leader(self, epoch: int) -> None:
        """SHW-6: what the application does not have goes back; the rest is told."""
        self.epoch = epoch
        self._asked = True
        self._give_back()

    def _give_back(self, *, everything: bool = False) -> None:
        """Hold no longer what the application has not been handed; or nothing at all."""
        for held in self.ready:
            held.given = False
        for held in [held for held in self.held.values() if everything or not held.given]:
            self._remove(held)
        self.ready = []

    def _expelled(self) -> None:
        self.lost += [held for held in self.held.values() if held.given]
        for held in self.held.values():
            held.over = True
        self.held, self.lanes, self.ready = {}, {}, []
        self._done, self._tried = [], {}
        self._unconfirmed.clear()
        self._said.clear()
        self.safe_until_ns = -(1 << 62)
        self._room_heard = 0
        self.number += 1
        self.void = self.number
        self.life += 1
        self.joined = False
        self._asked = False
        self._said_ns = -(1 << 62)

    def _confirm(self, number: int) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            self._unconfirmed.popleft()
        self.confirmed = max(self.confirmed, number)

    def _extend(self, heard: int) -> None:
        """SHW-8: a leader that has a report gives its member up no sooner than `silent_ms` after it was made."""
        while self._said and self._said[0][0] <= heard:
            _, made_ns, self._room_heard = self._said.popleft()
            self.safe_until_ns = made_ns + self.settings.silent_ns - self.settings.beat_ns // 2

    def _take(self, assignment: WorkOrder) -> None:
        entry = assignment.entry
        pair = (entry.origin, entry.number)
        if self.leaving or pair in self.held:
            return
        held = self.held[pair] = WorkInHand(entry, assignment.attempt, pair, keys_of(entry))
        first = True
        for key in held.keys:
            lane = self.lanes.get(key)
            if lane is None:
                self.lanes[key] = deque((held,))
            else:
                lane.append(held)
                first = False
        if first:
            held.given = True
            self.ready.append(held)

    def _give(self, held: WorkInHand) -> None:
        """Hand it out, if nothing with a key of it is before it."""
        if held.given:
            return
        for key in held.keys:
            if self.lanes[key][0] is not held:
                return
        held.given = True
        self.ready.append(held)

    def _remove(self, held: WorkInHand) -> None:
        del self.held[held.id]
        held.over = True
        for key in held.keys:
            lane = self.lanes[key]
            if lane[0] is held:
                lane.popleft()
            else:
                lane.remove(held)
            if lane:
                self._give(lane[0])
            else:
                del self.lanes[key]

    # From the application

    def done(self, held: WorkInHand) -> int:
        """The report that will say so: once that is confirmed, nobody is handed it again. 0: it was taken away."""
        if held.over:
            return 0
        self._remove(held)
        self._done.append(held.id)
        if self._tried:
            self._tried.pop(held.id, None)
        return self.number + 1

    def tried(self, held: WorkInHand) -> None:
        """It did not work, and is to be tried again here."""
        if not held.over:
            self._tried[held.id] = held.attempt
            held.attempt += 1

    def leave(self, *, at_once: bool = False) -> None:
        """Take no more work. What the application has not been handed goes to others, the rest when it is done.

        With `at_once` that goes to others too, and is begun again by them.
        """
        self.leaving = True
        self._give_back(everything=at_once)
        self._said_ns = -(1 << 62)

    # Time, and what leaves

    @property
    def finished(self) -> bool:
        """It leaves, and has nothing in hand."""
        return self.leaving and not self.held

    @property
    def taken_up(self) -> int:
        """SHW-9: units that are here, or that a leader may still send here by some report that it may have."""
        return max(len(self.held), self.room, self._room_heard, *(room for _, _, room in self._said), 0)

    def wants_to_lead(self, now_ns: int) -> bool:
        """SHW-1: no leader has been heard of for too long; the first members look first.

        Whoever has tried in vain waits longer each time, and not as long as others: two that fence each other as long
        as taking over takes would never lead.
        """
        patience = self.settings.silent_ns if self.epoch else 2 * self.settings.beat_ns
        if self.tries:
            patience <<= min(self.tries, _MOST_DOUBLINGS)
            patience += int(patience * unit(salt(self.tries, self.client)))
        return now_ns - self.heard_ns > patience + self.rank * self.settings.beat_ns

    def tries_to_lead(self, now_ns: int) -> None:
        """It takes over now."""
        self.tries += 1
        self.heard_ns = now_ns

    def leads_no_more(self, now_ns: int) -> None:
        """Another one took its place, or the brokers are out of reach: others have their turn first."""
        self.heard_ns = now_ns

    def report(self, now_ns: int) -> Report | None:
        """The report that is due now; None: none."""
        due = now_ns - self._said_ns >= self.settings.beat_ns
        if not (due or self._done or self._tried or self._asked or self.room != self._room_said):
            return None
        self._said_ns = now_ns
        self.number += 1
        self._said.append((self.number, now_ns, self.room))
        self._room_said = self.room
        done, self._done = self._done, []
        tried, self._tried = tuple((*pair, attempt) for pair, attempt in self._tried.items()), {}
        if done:
            self._unconfirmed.append((self.number, done))
        holding = None
        if self._asked:
            self._asked = False
            holding = tuple((*held.id, held.attempt) for held in self.held.values())
            done = [pair for _, pairs in self._unconfirmed for pair in pairs]
        return Report(
            self.member, self.epoch, self.number, by_publisher(done), tried, holding,
            fresh=not self.joined, leaving=self.finished, room=self.room,
        )  # fmt: skip

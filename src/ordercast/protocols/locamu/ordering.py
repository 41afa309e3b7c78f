"""LoCaMu's handlers: a message is processed once, in causal order, and every further copy only adds names.

Spec: docs/protocols/locamu.md (M1 to M6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordercast.core.errors import InvariantError, PeerError, UsageError
from ordercast.core.ids import Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message
from ordercast.protocols.locamu.forwarding import Forwarding
from ordercast.protocols.locamu.links import Incoming
from ordercast.protocols.locamu.neighbourhood import NOBODY
from ordercast.protocols.locamu.packets import SECOND_BITS, Data, Whole
from ordercast.protocols.locamu.rules import Options
from ordercast.protocols.locamu.store import Copy, Entry, Name
from ordercast.protocols.locamu.streams import Past, Vector

News = list[tuple[int, int]]
"""Streams, by their index here, and numbers."""

HELD, KNOWN, PROCESSED = range(3)
"""What becomes of a copy (M2)."""


class Ordering(Forwarding):
    """What happens to messages and their copies."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.news = False
        """Whether the event at hand has taught this node anything."""

    # What the repairing half adds

    def _went_on(self, out: Outbox) -> None:
        """Something was processed or named: there is something to acknowledge."""

    def _held_back(self, out: Outbox) -> None:
        """A copy waits for something."""

    def _collect(self, number: int) -> None:
        """D1: drop an entry that nobody can want any more."""

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """M1: a publication is a copy without a past that is always ready."""
        if message.dst:
            raise UsageError(f"{message.id}: locamu multicasts to groups, not to destinations of a message's own")
        self._check_publishable(message.topic)
        self._process(Copy(message, NOBODY, 0, self._epoch_of(message.topic), (), (), [], NOBODY, []), None, out)
        out.complete(message.id)
        self._look_up(out)

    def _check_publishable(self, topic: Topic) -> None:
        self.routes.check_topic(topic)

    def _check_table(self, copy: Copy) -> None:
        """A message that is to be processed has a publisher and a list of members that this node knows."""
        if self._origin(copy.message) == NOBODY or not self.routes.knows(copy.message.topic):
            raise self._nonsense(copy.sender, copy.message)

    def _epoch_of(self, _topic: Topic) -> int:
        """The list of members by which this node publishes."""
        return 0

    def _look_up(self, out: Outbox) -> None:
        """At the end of an event: tell the repairing half if there was anything new."""
        if self.news:
            self.news = False
            self._went_on(out)

    def _on_data(self, peer: int, packet: Data, out: Outbox) -> None:
        if not packet.session:
            copy = self._read_whole(peer, packet)
            copy.wants = self._unsatisfied(copy.pairs())
            self._on_copy(copy, None, out)
            return
        if packet.session < 0:
            self._on_burst(peer, packet, out)
            return
        link = self._incoming(peer)
        if packet.session == link.session and packet.number == link.next and not link.held and not link.broken:
            self._go_on(peer, link, packet, out)
            return
        for readable in self._in_turn(link, packet):
            self._go_on(peer, link, readable, out)
        if link.held:
            self._held_back(out)

    def _go_on(self, peer: int, link: Incoming, packet: Data, out: Outbox) -> None:
        """H7: read a copy whose turn it is.

        After a copy that was processed only what changed since can be new, or wait for something. A copy that is not
        processed leaves news behind that later copies will not repeat: then everything has to be looked at.
        """
        copy, changed = self._read(peer, link, packet)
        news: News | None = None
        if link.stale:
            copy.wants = self._unsatisfied(copy.pairs())
        else:
            news = []
            if changed:
                past, local, keys = copy.past, link.local, link.keys
                copy.wants = self._unsatisfied([(keys[i], past[i]) for i in changed if i in link.into])
                news = [(local[i], past[i]) for i in changed if local[i] >= 0]
        # A number beyond a gap is processed, and what follows from it has to wait for the gap all the same.
        link.stale = self._on_copy(copy, news, out) != PROCESSED or self.processed.holes > 0

    def _on_burst(self, peer: int, packet: Data, out: Outbox) -> None:
        """H8: a copy that was sent again, with what differs from the one before."""
        link = self._burst_from(peer, -packet.session)
        if link is None:
            return
        for readable in self._in_turn(link, packet):
            copy, _ = self._read(peer, link, readable)
            copy.wants = self._unsatisfied(copy.pairs())
            self._on_copy(copy, None, out)
        if link.held:
            self._held_back(out)

    def _read_whole(self, peer: int, packet: Data) -> Copy:
        try:
            told = Whole.read(packet.header)
        except ValueError:
            raise self._nonsense(peer, packet.message) from None
        if not all(map(self._may_forward, (told.forwarder, *(flagged >> 1 for flagged, _, _ in told.vectors)))):
            raise self._nonsense(peer, packet.message)
        vectors = tuple([self._vector(vector) for vector in told.vectors])
        past = list(told.past)
        return Copy(
            packet.message,
            told.forwarder,
            told.depth,
            told.epoch,
            vectors,
            tuple([value for _, value in past]),
            [key for key, _ in past],
            peer,
            self._usable(vectors),
        )

    def _on_copy(self, copy: Copy, news: News | None, out: Outbox) -> int:
        """M2: sort a copy out: a duplicate, ready, or to be held back; which it was."""
        outcome = self._sort_out(copy, news, out)
        if outcome == HELD:
            key = (copy.message.id, copy.forwarder)
            fresh = key not in self.buffer
            self.buffer[key] = copy
            if fresh:  # The same once more is no reason to ask more often.
                self._held_back(out)
        elif self.buffer:
            self._unbuffer(out)
        self._look_up(out)
        return outcome

    def _sort_out(self, copy: Copy, news: News | None, out: Outbox) -> int:
        """M2."""
        known = self.processed.has_any(copy.names)
        if known and self.rules.duplicates_first:
            self._add_names(copy.names, copy.vectors, copy, out)
            return KNOWN
        if copy.wants and not self._is_ready(copy):
            return HELD
        if known:
            self._merge_duplicate(copy, out)
            return KNOWN
        self._check_table(copy)
        self._process(copy, news, out)
        return PROCESSED

    def _reached(self, forwarder: int) -> int:
        """M3: how far the stream from there to this node is processed; C7 as printed: the highest number heard of."""
        if self.rules.gapless:
            return self.processed.prefix[forwarder]
        return self.streams.value(forwarder << SECOND_BITS | self.me)

    def _unsatisfied(self, past: Iterable[tuple[int, int]]) -> list[Name]:
        """M3: what of a past is for this node and has not been processed."""
        near, mine = self.processed.gapless, self.me
        into = [(key >> SECOND_BITS, value) for key, value in past if key & ((1 << SECOND_BITS) - 1) == mine]
        return [(node, value) for node, value in into if node in near and value > self._reached(node)]

    def _is_ready(self, copy: Copy) -> bool:
        """M3: everything before the message that is for this node has been processed."""
        return all(number <= self._reached(forwarder) for forwarder, number in copy.wants)

    def _process(self, copy: Copy, news: News | None, out: Outbox) -> None:
        """M4: exactly once per message. The order of steps matters: the past must not contain the message itself.

        `news` is what may be new of its past; None: all of it.
        """
        self.news = True
        if news is None:
            self._merge_whole(copy)
        elif news:
            self._raise(news)
        before = tuple(self.streams.values)
        if self.check:
            self._check_no_self_dependency(copy, before)
        self._merge_vectors(copy.vectors)
        message = copy.message
        came, depth = NOBODY, 0
        if copy.forwarder != NOBODY:
            came = self.way[copy.forwarder]
            depth = self._depth_after(copy.forwarder, message.topic, copy.epoch, copy.depth)
        own = self._number(came, copy, depth)
        upstream = self.distance.get(self._origin(message), self.radii.window)
        entry = Entry(copy, came, depth, upstream, own, before, self.round)
        self.serial += 1
        stays = self._file(entry, copy)
        self._send_first(entry, news is None and came != NOBODY and self.rules.pushes, out)
        if not stays:
            self._collect(self.serial)
        self._hand_over(entry, out)

    def _hand_over(self, entry: Entry, out: Outbox) -> None:
        """M4: members deliver."""
        if not entry.depth and self._is_member(entry.message.topic, entry.epoch):
            out.deliver(entry.message)

    def _merge_whole(self, copy: Copy) -> None:
        """Take over what is newer, as far as it concerns nodes around this one."""
        self._raise([
            (self.streams.at(key, inside=True), value) for key, value in copy.pairs() if self._is_inside(key)
        ])  # fmt: skip

    def _raise(self, told: News) -> None:
        values = self.streams.values
        changed = []
        for stream, value in told:
            if value > values[stream]:
                values[stream] = value
                changed.append(stream)
        if changed:
            self._note_changes(changed, self.outgoing.values())

    def _merge_vectors(self, vectors: Sequence[Vector]) -> None:
        """Take over the numbers of vectors that are not late."""
        values = self.streams.values
        for shape, numbers, late in vectors:
            if not late:
                for position, stream in shape.inside:
                    if numbers[position] > values[stream]:
                        values[stream] = numbers[position]

    def _number(self, came: int, copy: Copy, depth: int) -> Vector:
        """M4: the next number for each target."""
        shape = self._shape(self.me, self._plan(came, copy.message.topic, copy.epoch, depth)[0])
        values = self.streams.values
        numbers = []
        for stream in shape.streams:
            values[stream] = number = values[stream] + 1
            numbers.append(number)
        return (shape, tuple(numbers), 0)

    def _file(self, entry: Entry, copy: Copy) -> bool:
        """S3: store a message under all its names, until everyone near has it; False: everyone has."""
        serial = self.serial
        self.store[serial] = entry
        self.processed.add(copy.names)
        for name in copy.names:
            self.names[name] = serial
        if copy.forwarder != NOBODY:
            entry.received[copy.forwarder] = copy
        return self.waiting.wait(serial, entry.vectors)

    # Further copies

    def _add_names(self, names: list[Name], vectors: Sequence[Vector], copy: Copy | None, out: Outbox) -> None:
        """M5: a duplicate adds names, even where the message itself is forgotten, and raises nothing else."""
        serial = next((self.names[name] for name in names if name in self.names), None)
        fresh = [name for name in names if not self.processed.has_any((name,))]
        if fresh:
            self.processed.add(fresh)
            self.news = True
        if serial is None:
            return
        entry = self.store[serial]
        for name in names:
            if name not in self.names:
                self.names[name] = serial
                entry.names = [*entry.names, name]
        added = self._new_vectors(entry, vectors) if self.rules.merges else []
        if copy is not None and copy.forwarder not in entry.received:
            entry.received[copy.forwarder] = copy
        if added and self.rules.pushes:
            self._push(serial, added, out)
        if added and not self.waiting.wait(serial, entry.vectors):
            self._collect(serial)

    def _new_vectors(self, entry: Entry, vectors: Sequence[Vector]) -> list[Vector]:
        """M5: vectors of nodes upstream that the entry lacks, put in their place and flagged as late."""
        there = {vector[0].forwarder for vector in entry.vectors}
        flag = int(self.rules.flags_late)
        added: list[Vector] = [
            (shape, numbers, late | flag)
            for shape, numbers, late in vectors
            if shape.watched >= 0 and shape.forwarder not in there
        ]
        if added:
            entry.vectors = tuple(sorted([*entry.vectors, *added], key=lambda vector: -vector[0].distance))
        return added

    def _push(self, serial: int, added: list[Vector], out: Outbox) -> None:
        """M5: new names go downstream, and paths that have just become safe are used."""
        entry = self.store[serial]
        nearest = min(vector[0].distance for vector in added)
        for peer, hop, _ in self._plan(entry.came, entry.message.topic, entry.epoch, entry.depth)[1]:
            if peer in self.active and nearest + hop <= self.radii.window:
                self._push_soon(serial, peer, out)

    def _merge_duplicate(self, copy: Copy, out: Outbox) -> None:
        """C6 as printed: a duplicate raises the past like a first copy."""
        self._merge_whole(copy)
        self._raise_vectors(copy.vectors)
        self._add_names(copy.names, copy.vectors, copy, out)

    def _raise_vectors(self, vectors: Sequence[Vector]) -> None:
        """Raise the past by what no copy sent on will say."""
        self._raise([
            (stream, numbers[position]) for shape, numbers, _ in vectors for position, stream in shape.inside
        ])  # fmt: skip

    def _unbuffer(self, out: Outbox) -> None:
        """M6: look at what is held back until nothing changes."""
        changed = True
        while changed and self.buffer:
            changed = False
            for key, copy in list(self.buffer.items()):
                try:
                    outcome = self._sort_out(copy, None, out)
                except PeerError:
                    del self.buffer[key]  # Once is enough to say that it makes no sense.
                    raise
                if outcome != HELD:
                    del self.buffer[key]
                    changed = True

    # Checks

    def _check_no_self_dependency(self, copy: Copy, before: Past) -> None:
        """N4: the past of a message does not contain the message."""
        for shape, numbers, late in copy.vectors:
            for position, stream in shape.inside:
                if not late and before[stream] >= numbers[position]:
                    streams = f"{self.routes.nodes[shape.forwarder]} to {self.routes.nodes[shape.nodes[position]]}"
                    raise InvariantError(f"{self._name}: {copy.message.id} depends on itself ({streams})")

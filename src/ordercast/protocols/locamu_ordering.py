"""LoCaMu's handlers: a message is processed once, in causal order, and every further copy only adds names.

Spec: docs/protocols/locamu.md (M1 to M6).
"""

from __future__ import annotations

from ordercast.core.errors import InvariantError, PeerError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.protocols.locamu_forwarding import NOBODY, Forwarding
from ordercast.protocols.locamu_packets import Data, Past, Vector, from_columns
from ordercast.protocols.locamu_store import Copy, Entry, Name


class Ordering(Forwarding):
    """What happens to messages and their copies."""

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
        self.routes.check_topic(message.topic)
        self._process(Copy(message, NOBODY, 0, (), {}, NOBODY, []), None, out)
        out.complete(message.id)
        self._look_up(out)

    def _look_up(self, out: Outbox) -> None:
        """At the end of an event: tell the repairing half if there was anything new."""
        if self.news:
            self.news = False
            self._went_on(out)

    def _on_data(self, peer: int, packet: Data, out: Outbox) -> None:
        if not all(len(column) & 1 for column in packet.past):
            raise PeerError(self.routes.nodes[peer], f"sent {packet.message.id} with a past that makes no sense")
        if packet.session:
            for readable, past in self.references.take(peer, packet):
                self._on_copy(peer, readable, past, self.references.incoming[peer].unmerged, out)
            if self.references.incoming[peer].held:
                self._held_back(out)
        else:
            self._on_copy(peer, packet, from_columns(packet.past, {}, self.size)[0], None, out)

    def _on_copy(self, peer: int, packet: Data, past: Past, unmerged: set[int] | None, out: Outbox) -> None:
        """M2: sort a copy out: a duplicate, ready, or to be held back."""
        if not self._makes_sense(packet):
            raise PeerError(self.routes.nodes[peer], f"sent {packet.message.id} with a header that makes no sense")
        depth = self._depth_after(packet.forwarder, packet.message.topic, packet.depth)
        names = self._usable(packet.vectors)
        copy = Copy(packet.message, packet.forwarder, packet.depth, packet.vectors, past, peer, names)
        if not self._sort_out(copy, depth, unmerged, out):
            self.buffer[copy.message.id, copy.forwarder] = copy
            self._held_back(out)
        elif self.buffer:
            self._unbuffer(out)
        self._look_up(out)

    def _sort_out(self, copy: Copy, depth: int, unmerged: set[int] | None, out: Outbox) -> bool:
        """Whether the copy is done with; M2."""
        known = self._is_known(copy.names)
        if known and self.rules.duplicates_first:
            self._add_names(copy.names, copy.vectors, copy, out)
        elif not self._is_ready(copy.past):
            return False
        elif known:
            self._merge_duplicate(copy, out)
        else:
            self._process(copy, unmerged, out, depth)
        return True

    def _is_known(self, names: list[Name]) -> bool:
        """M2: whether this node has processed the message under any of its names."""
        has = self.processed.has
        for forwarder, number in names:  # noqa: SIM110 -- a generator would double the price of a hop's first question.
            if has(forwarder, number):
                return True
        return False

    def _usable(self, vectors: tuple[Vector, ...]) -> list[Name]:
        """S1, S2: the numbers that tell this node something, by forwarder."""
        column = self.column
        names: list[Name] = []
        for flagged, nodes, numbers in vectors:
            forwarder = flagged >> 1
            watched = column.get(forwarder)
            if watched is not None and watched in nodes:
                names.append((forwarder, numbers[nodes.index(watched)]))
        return names

    def _is_ready(self, past: Past) -> bool:
        """M3: everything before the message that is for this node has been processed."""
        if not self.rules.gapless:
            return all(past.get(stream, 0) <= self.past.get(stream, 0) for _, stream in self.streams_in)
        prefix = self.processed.prefix
        for forwarder, stream in self.streams_in:  # noqa: SIM110 -- as above.
            if stream in past and past[stream] > prefix[forwarder]:
                return False
        return True

    def _process(self, copy: Copy, unmerged: set[int] | None, out: Outbox, depth: int = 0) -> None:
        """M4: exactly once per message. The order of steps matters: the past must not contain the message itself."""
        self.news = True
        self._merge_past(copy.past, copy.past if unmerged is None else unmerged)
        if unmerged is not None:
            unmerged.clear()
        mark = self.references.mark()
        before = self.past.copy()
        if self.check:
            self._check_no_self_dependency(copy, before)
        on_time = [vector for vector in copy.vectors if not vector[0] & 1]
        self._merge_vectors(on_time)
        message = copy.message
        came = NOBODY if copy.forwarder == NOBODY else self.way[copy.forwarder]
        own = self._number(came, message, depth)
        upstream = min(self.radii.window, self.distance.get(self._origin(message), self.radii.window))
        entry = Entry(message, came, depth, upstream, list(copy.vectors), own, before)
        self.serial += 1
        self._file(entry, copy)
        if self.routes.is_member(self.me, message.topic) and not depth:
            out.deliver(message)
        self._send_first(entry, mark, out)
        if not entry.open:
            self._collect(self.serial)

    def _merge_past(self, past: Past, streams: Past | set[int]) -> None:
        """Take over what is newer, as far as it concerns nodes around this one."""
        mine, beside, log = self.past, self.beside, self.references.log
        for stream in streams:
            value = past[stream]
            if value > mine.get(stream, 0):
                inside = beside.get(stream)
                if inside is None:
                    first, second = divmod(stream, self.size)
                    inside = beside[stream] = first in self.distance and second in self.distance
                if inside:
                    mine[stream] = value
                    log.append(stream)

    def _merge_vectors(self, vectors: list[Vector]) -> None:
        mine, distance, log = self.past, self.distance, self.references.log
        for flagged, nodes, numbers in vectors:
            forwarder = flagged >> 1
            if forwarder not in distance:
                continue
            row = forwarder * self.size
            for node, number in zip(nodes, numbers, strict=True):
                if node in distance and number > mine.get(row + node, 0):
                    mine[row + node] = number
                    log.append(row + node)

    def _number(self, came: int, message: Message, depth: int) -> Vector:
        """M4: the next number for each target."""
        mine, row = self.past, self.me * self.size
        nodes = self._plan(came, message.topic, depth)[0]
        numbers = []
        for node in nodes:
            stream = row + node
            mine[stream] = number = mine.get(stream, 0) + 1
            numbers.append(number)
        self.references.log += [row + node for node in nodes]
        return (2 * self.me, nodes, tuple(numbers))

    def _file(self, entry: Entry, copy: Copy) -> None:
        """S3: store a message under all its names, and wait for everyone near to have it."""
        number = self.serial
        self.store[number] = entry
        for name in copy.names:
            self.processed.add(*name)
            self.names[name] = number
        entry.names = copy.names.copy()
        if copy.forwarder != NOBODY:
            entry.received[copy.forwarder] = copy
        for vector in (*copy.vectors, entry.own):
            self._expect(number, entry, vector)

    def _call(self, number: int, name: Name) -> None:
        self.names[name] = number
        self.store[number].names.append(name)

    def _expect(self, number: int, entry: Entry, vector: Vector) -> None:
        """S4: linked nodes have to acknowledge what the vector says of them."""
        flagged, nodes, numbers = vector
        waiting, forwarder, item = self.waiting, flagged >> 1, (number, self.round)
        opened = waiting.open
        for i, node in enumerate(nodes):
            if node in opened and waiting.expect(node, forwarder, numbers[i], item):
                entry.open += 1

    # Further copies

    def _add_names(self, names: list[Name], vectors: tuple[Vector, ...], copy: Copy | None, out: Outbox) -> None:
        """M5: a duplicate adds names, even where the message itself is forgotten, and raises nothing else."""
        number = next((self.names[name] for name in names if name in self.names), None)
        for name in names:
            if not self.processed.has(*name):
                self.processed.add(*name)
                self.news = True
            if number is not None and name not in self.names:
                self._call(number, name)
        if number is None:
            return
        entry = self.store[number]
        added = self._new_vectors(entry, vectors) if self.rules.merges else []
        for vector in added:
            self._expect(number, entry, vector)
        if copy is not None and copy.forwarder not in entry.received:
            entry.received[copy.forwarder] = copy
        if added and self.rules.pushes:
            self._push(entry, added, out)
        if not entry.open:
            self._collect(number)

    def _new_vectors(self, entry: Entry, vectors: tuple[Vector, ...]) -> list[Vector]:
        """M5: vectors of nodes upstream that the entry lacks, put in their place and flagged as late."""
        there = {vector[0] >> 1 for vector in entry.vectors}
        upstream = {forwarder for forwarder, _ in self._usable(vectors)}
        flag = int(self.rules.flags_late)
        added: list[Vector] = [
            (flagged | flag, nodes, numbers)
            for flagged, nodes, numbers in vectors
            if flagged >> 1 in upstream and flagged >> 1 not in there
        ]
        if added:
            entry.vectors = sorted([*entry.vectors, *added], key=lambda vector: -self.distance[vector[0] >> 1])
        return added

    def _push(self, entry: Entry, added: list[Vector], out: Outbox) -> None:
        """M5: new names go downstream, and paths that have just become safe are used."""
        nearest = min(self.distance[vector[0] >> 1] for vector in added)
        for peer, hop, _ in self._plan(entry.came, entry.message.topic, entry.depth)[1]:
            if peer in self.active and nearest + hop <= self.radii.window:
                self._send_again(entry, peer, out)

    def _merge_duplicate(self, copy: Copy, out: Outbox) -> None:
        """C6 as printed: a duplicate raises the past like a first copy."""
        self._merge_past(copy.past, copy.past)
        self._merge_vectors(list(copy.vectors))
        self._add_names(copy.names, copy.vectors, copy, out)

    def _unbuffer(self, out: Outbox) -> None:
        """M6: look at what is held back until nothing changes."""
        changed = True
        while changed and self.buffer:
            changed = False
            for key, copy in list(self.buffer.items()):
                depth = self._depth_after(copy.forwarder, copy.message.topic, copy.depth)
                if self._sort_out(copy, depth, None, out):
                    del self.buffer[key]
                    changed = True

    # Checks

    def _makes_sense(self, packet: Data) -> bool:
        distance, message = self.distance, packet.message
        if packet.forwarder not in distance or packet.forwarder == self.me or not self.routes.knows(message.topic):
            return False
        if self._origin(message) == NOBODY:
            return False
        for flagged, nodes, numbers in packet.vectors:
            if len(nodes) != len(numbers) or flagged >> 1 not in distance:
                return False
        return packet.depth >= 0

    def _origin(self, message: Message) -> int:
        """The rank of the publisher."""
        rank = self.origins.get(message.origin)
        if rank is None:
            rank = self.origins[message.origin] = self.routes.rank.get(message.publisher, NOBODY)
        return rank

    def _check_no_self_dependency(self, copy: Copy, before: Past) -> None:
        """N4: the past of a message does not contain the message."""
        for flagged, nodes, numbers in copy.vectors:
            row = (flagged >> 1) * self.size
            for node, number in zip(nodes, numbers, strict=True):
                if not flagged & 1 and before.get(row + node, 0) >= number:
                    streams = f"{self.routes.nodes[flagged >> 1]} to {self.routes.nodes[node]}"
                    raise InvariantError(f"{self._name}: {copy.message.id} depends on itself ({streams})")

    @property
    def _name(self) -> NodeId:
        return self.routes.nodes[self.me]

    def _rank(self, peer: NodeId) -> int:
        rank = self.routes.rank.get(peer, NOBODY)
        if rank not in self.waiting.open:
            raise PeerError(peer, "is not linked to this node")
        return rank

"""LoCaMu's heart: a message is processed once, in causal order, and every further copy only adds names.

Spec: docs/protocols/locamu.md (LCM-M1 to LCM-M6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.protocols.locamu.forwarding import Forwarding
from ordercast.protocols.locamu.held import HeldCopies
from ordercast.protocols.locamu.links import IncomingSession, LinkEnds
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.membership.views import ViewsOfTree
from ordercast.protocols.locamu.neighbourhood import NOBODY, Neighbourhood
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Data, Plain
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.resend import Resend
from ordercast.protocols.locamu.rounds import Rounds
from ordercast.protocols.locamu.rules import Rules
from ordercast.protocols.locamu.store import Copy, Entry, MessageStore
from ordercast.protocols.locamu.streams import News, Streams
from ordercast.protocols.locamu.vectors import Name, Past, Vector, usable
from ordercast.protocols.locamu.waiting import WaitingCopies

HELD, KNOWN, PROCESSED = range(3)
"""What becomes of a copy (LCM-M2)."""


class CausalOrdering(NodePart):
    """Processes each message once and in causal order; merges the names that further copies bring."""

    constant: ClassVar[tuple[str, ...]] = ("rules", "check", "newcomer")
    here: Neighbourhood
    tables: Tables
    streams: Streams
    processed: Processed
    waiting: WaitingCopies
    store: MessageStore
    links: LinkEnds
    rounds: Rounds
    held: HeldCopies
    forwarding: Forwarding
    resend: Resend
    views: ViewsOfTree

    def __init__(self, rules: Rules, *, check: bool, newcomer: bool) -> None:
        self.rules = rules
        self.check = check
        self.newcomer = newcomer
        """Whether this node has joined later, and inherited a past."""
        self.news = False
        """Whether the event at hand has taught this node anything."""

    def note_news(self, out: Outbox) -> None:
        """The event ends: what it has taught this node is to be acknowledged."""
        self.news = False
        self.rounds.went_on(out)

    # Copies

    def publish(self, message: Message, out: Outbox) -> None:
        """LCM-M1: a publication is a copy without a past that is always ready."""
        self._process(Copy(message, NOBODY, 0, self.tables.tag(message.topic), (), (), [], NOBODY, []), None, out)

    def on_whole(self, peer: int, packet: Data, out: Outbox) -> None:
        """Take in a copy whose header stands for itself."""
        copy = self.links.read_whole(peer, packet)
        copy.wants = self._unsatisfied(copy.pairs())
        self._on_copy(copy, None, out)

    def on_next(self, peer: int, link: IncomingSession, packet: Data, out: Outbox) -> None:
        """LCM-H7: read a copy whose turn it is on its session.

        After a copy that was processed only what changed since can be new, or wait for something. A copy that is not
        processed leaves news behind that later copies will not repeat: then everything has to be looked at.
        """
        copy, changed = self.links.read(peer, link, packet)
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

    def on_next_of_burst(self, peer: int, link: IncomingSession, packet: Data, out: Outbox) -> None:
        """LCM-H8: read a copy that was sent again, with what differs from the one before."""
        copy, _ = self.links.read(peer, link, packet)
        copy.wants = self._unsatisfied(copy.pairs())
        self._on_copy(copy, None, out)

    def on_names(self, messages: list[list[Plain]], out: Outbox) -> None:
        """LCM-R5: names of messages that this node has; otherwise they say nothing."""
        while messages:
            unknown = [told for told in messages if not self._learn(told, out)]
            if len(unknown) == len(messages):
                break
            if self.held.copies:
                self._unbuffer(out)
            messages = unknown  # What was held back until now may be one of these.

    def _learn(self, told: list[Plain], out: Outbox) -> bool:
        """LCM-R5: take in names of one message; False: it is not known under any of them."""
        vectors = [self.streams.vector(vector) for vector in told if self.here.may_forward(vector[0] >> 1)]
        names = usable(vectors)
        if not self.processed.has_any(names):
            return False
        self._add_names(names, vectors, None, out)
        return True

    def _on_copy(self, copy: Copy, news: News | None, out: Outbox) -> int:
        """LCM-M2: sort a copy out: a duplicate, ready, or to be held back; which it was."""
        outcome = self._sort_out(copy, news, out)
        if outcome == HELD:
            self.held.hold(copy, out)
        elif self.held.copies:
            self._unbuffer(out)
        return outcome

    def _sort_out(self, copy: Copy, news: News | None, out: Outbox) -> int:
        gone = self.here.routes.gone
        if gone and self.here.origin(copy.message) in gone:
            return KNOWN  # LCM-V6: when a node is forgotten, everybody has all its messages under all their names.
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

    def _check_table(self, copy: Copy) -> None:
        """LCM-E3: whoever is to process a message has processed the list it goes by, and knows its publisher."""
        here, message = self.here, copy.message
        if here.origin(message) == NOBODY or copy.forwarder not in here.way:
            raise self.links.nonsense(copy.sender, message)
        way = self.tables.way(message.topic, copy.epoch)
        if way is None or here.me >= len(way[0].nodes):
            sender = here.routes.nodes[copy.sender]
            raise PeerError(sender, f"sent {message.id}, which goes by a list of members that nobody announced")

    def _unbuffer(self, out: Outbox) -> None:
        """LCM-M6: look at what is held back until nothing changes."""
        held = self.held
        changed = True
        while changed and held.copies:
            changed = False
            for key, copy in list(held.copies.items()):
                try:
                    outcome = self._sort_out(copy, None, out)
                except PeerError:
                    held.release(key)  # Once is enough to say that it makes no sense.
                    raise
                if outcome != HELD:
                    held.release(key)
                    changed = True

    # Order

    def _reached(self, forwarder: int) -> int:
        """LCM-M3: how far the stream from there to this node is processed; as printed, the highest number heard of."""
        if self.rules.gapless:
            return self.processed.prefix[forwarder]
        return self.streams.value(forwarder << SECOND_BITS | self.here.me)

    def _unsatisfied(self, past: Iterable[tuple[int, int]]) -> list[Name]:
        """LCM-M3: what of a past is for this node and has not been processed."""
        near, mine = self.processed.gapless, self.here.me
        into = [(key >> SECOND_BITS, value) for key, value in past if key & SECOND == mine]
        return [(node, value) for node, value in into if node in near and value > self._reached(node)]

    def _is_ready(self, copy: Copy) -> bool:
        """LCM-M3: everything before the message that is for this node has been processed."""
        return all(number <= self._reached(forwarder) for forwarder, number in copy.wants)

    def _process(self, copy: Copy, news: News | None, out: Outbox) -> None:
        """LCM-M4: exactly once per message. The order of steps matters: the past must not contain the message itself.

        `news` is what may be new of its past; None: all of it.
        """
        self.news = True
        here, streams, message = self.here, self.streams, copy.message
        if news is None:
            self._note(streams.raise_to_pairs(copy.pairs()))
        elif news:
            self._note(streams.raise_to(news))
        before = tuple(streams.values)
        if self.check:
            self._check_no_self_dependency(copy, before)
        streams.merge(copy.vectors)
        came, depth = NOBODY, 0
        if copy.forwarder != NOBODY:
            came = here.way[copy.forwarder]
            depth = here.depth_after(copy.forwarder, message.topic, copy.epoch, copy.depth)
        own = streams.number(here.plan(came, message.topic, copy.epoch, depth)[0])
        upstream = here.distance.get(here.origin(message), here.radii.window)
        entry = Entry(copy, came, depth, upstream, own, before, self.rounds.round)
        self.processed.add(copy.names)
        stays = self.store.file(entry, copy)
        serial = self.store.serial
        for peer in self.forwarding.send_first(entry, news is None and came != NOBODY and self.rules.pushes, out):
            self.resend.push_soon(serial, peer, out)
        if not stays:
            self.store.collect(serial)
        self._hand_over(entry, out)

    def _note(self, changed: list[int]) -> None:
        """Sessions will have to say what is newer now."""
        if changed:
            self.links.note_changes(changed, self.links.outgoing.values())

    def _hand_over(self, entry: Entry, out: Outbox) -> None:
        """LCM-M4: members deliver; what the protocol tells itself, nobody does."""
        if entry.internal:
            self.views.take_in(entry, out)
        elif not entry.depth and self.here.is_member(entry.message.topic, entry.epoch):
            out.deliver(entry.message)

    # Further copies

    def _add_names(self, names: list[Name], vectors: Sequence[Vector], copy: Copy | None, out: Outbox) -> None:
        """LCM-M5: a duplicate adds names, even where the message itself is forgotten, and raises nothing else."""
        serial = self.store.find(names)
        fresh = [name for name in names if not self.processed.has_any((name,))]
        if fresh:
            self.processed.add(fresh)
            self.news = True
        if serial is None:
            return
        entry = self.store.entries[serial]
        added = self._unknown_of(entry, vectors) if self.rules.merges else []
        self.store.rename(serial, names, added)
        if copy is not None and copy.forwarder not in entry.received:
            entry.received[copy.forwarder] = copy
        if added:
            if self.rules.pushes:
                self._push(serial, added, out)
            self.store.forget_if_complete(serial)

    def _unknown_of(self, entry: Entry, vectors: Sequence[Vector]) -> list[Vector]:
        """LCM-M5: vectors of nodes upstream that the entry lacks, flagged as late."""
        there = {vector[0].forwarder for vector in entry.vectors}
        flag = int(self.rules.flags_late)
        return [
            (shape, numbers, late | flag)
            for shape, numbers, late in vectors
            if shape.watched >= 0 and shape.forwarder not in there
        ]

    def _push(self, serial: int, added: list[Vector], out: Outbox) -> None:
        """LCM-M5: new names go downstream, and paths that have just become safe are used."""
        entry, here = self.store.entries[serial], self.here
        nearest = min(vector[0].distance for vector in added)
        for peer, hop, _ in here.plan(entry.came, entry.message.topic, entry.epoch, entry.depth)[1]:
            if peer in here.active and nearest + hop <= here.radii.window:
                self.resend.push_soon(serial, peer, out)

    def _merge_duplicate(self, copy: Copy, out: Outbox) -> None:
        """LCM-C6 as printed: a duplicate raises the past like a first copy."""
        self._note(self.streams.raise_to_pairs(copy.pairs()))
        self._note(self.streams.raise_to_vectors(copy.vectors))
        self._add_names(copy.names, copy.vectors, copy, out)

    # Checks

    def _check_no_self_dependency(self, copy: Copy, before: Past) -> None:
        """LCM-N4: the past of a message does not contain the message.

        Only a new leaf may have inherited the past of what it catches up with (LCM-V4): it passes none of that on.
        """
        here = self.here
        if self.newcomer and copy.forwarder != NOBODY and here.routes.is_leaf(here.me):
            return
        for shape, numbers, late in copy.vectors:
            for position, stream in shape.inside:
                if not late and before[stream] >= numbers[position]:
                    streams = f"{here.routes.nodes[shape.forwarder]} to {here.routes.nodes[shape.nodes[position]]}"
                    raise InvariantError(f"{here.name}: {copy.message.id} depends on itself ({streams})")

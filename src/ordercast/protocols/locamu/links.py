"""Headers of first copies: what the two ends of a link share, so that little has to be said, and what if it is lost.

Spec: docs/protocols/locamu.md (LCM-H3 to LCM-H7). Nothing here survives a restart but the number of the last session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from ordercast.core.errors import PeerError
from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Data, Whole
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.store import Copy
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.vectors import Name, Past, Shape, Vector, usable

_LONG = 1024
_MOST_HELD = 256
_MOST_SESSIONS = 4
"""So many sessions, and so many bursts, of one peer are read at a time: later ones may overtake."""
_MOST_PATIENCE = 16
"""So many looks a copy may be missing at most."""
_FEWEST_WHOLE, _MOST_WHOLE = 32, 8_192
"""So many copies travel with whole headers after a session was given up, at first and at most."""
_MOST_STREAMS = 1 << SECOND_BITS

_PLACED, _MORE, _COUNT = 1, 2, 2
"""The first number of a header: depth and epoch follow; introductions follow; from which bit on it counts vectors."""

_UNHEARD = -1


class Outgoing(State):
    """The sending end of a link."""

    def __init__(self) -> None:
        self.session = 0
        """0: none is open."""
        self.number = 0
        self.told: list[int] = []
        """Per stream the number that the other end knows."""
        self.shapes: set[int] = set()
        """Codes of the shapes it knows."""
        self.pending: list[int] = []
        """Streams whose number may have changed since."""
        self.whole = 0
        """How many copies are yet to travel with whole headers, because sessions do not last on this link."""
        self.last_whole = 0
        """How many it were to be at the last time."""


class IncomingSession(State):
    """The end of a link that receives. Streams and shapes go by the sender's indices."""

    def __init__(self) -> None:
        self.next = 0
        self.keys: list[int] = []
        self.values: list[int] = []
        self.local: list[int] = []
        """The index of each stream in the past of this node; -1: none."""
        self.into: dict[int, int] = {}
        """The forwarders of streams to this node."""
        self.shapes: dict[int, tuple[Shape, tuple[int, ...]]] = {}
        self.stale = False
        """There was news in copies that changed nothing here."""
        self.held: dict[int, Data] = {}
        """Copies ahead of their turn."""
        self.looks = 0
        """How many looks have found them there, for want of the same copy."""
        self.ahead = False
        """Whether one has come since that copy was asked for."""
        self.given_up = False
        """Whether the peer was asked for what comes next."""


class LinkEnds(NodePart):
    """The links of a node: on each, both ends remember what was said."""

    constant: ClassVar[tuple[str, ...]] = ("delta",)
    durable: ClassVar[tuple[str, ...]] = ("sessions",)
    here: Neighbourhood
    streams: Streams
    processed: Processed

    def __init__(self, *, delta: bool) -> None:
        self.delta = delta
        """Whether there are any sessions."""
        self.sessions = 0
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, dict[int, IncomingSession]] = {}
        """By peer and session."""
        self.patience: dict[int, int] = {}
        """By peer: how many looks its copies may be missing; more, if some came after they were asked for."""
        self.bursts: dict[int, dict[int, IncomingSession]] = {}
        """The same of copies that are sent again (LCM-H8)."""

    def see_anew(self) -> None:
        """The tree has changed: begin new sessions, and read the old ones with what streams and shapes mean now."""
        for peer in self.outgoing:
            self.close(peer)
        for _, link in self._sessions():
            link.local, link.into = [_UNHEARD] * len(link.keys), {}
            for i, key in enumerate(link.keys):
                self._place_stream(link, i, key)
            link.shapes = {
                code: (self.streams.shape(shape.forwarder, shape.nodes), indices)
                for code, (shape, indices) in link.shapes.items()
            }

    def _sessions(self) -> Iterator[tuple[int, IncomingSession]]:
        for sessions in (self.incoming, self.bursts):
            for peer, links in sessions.items():
                for link in links.values():
                    yield peer, link

    def forget(self, peer: int) -> None:
        """LCM-V6: there is no link to who has left."""
        self.outgoing.pop(peer, None)
        self.incoming.pop(peer, None)
        self.bursts.pop(peer, None)
        self.patience.pop(peer, None)

    # Sending

    def close(self, peer: int) -> None:
        """LCM-H5: the next copy to the peer begins a session."""
        link = self.outgoing.get(peer)
        if link is not None:
            link.session = 0
            link.pending.clear()

    def give_up(self, peer: int) -> None:
        """LCM-H5: the peer has waited in vain for a copy of a session, or of a burst.

        What follows has whole headers for a while: four times as long as the last time, unless the session has carried
        more than that.
        """
        link = self._link_to(peer)
        if not link.whole:
            lasted = link.session and link.number > 4 * link.last_whole
            more = min(4 * link.last_whole, _MOST_WHOLE)
            link.last_whole = link.whole = _FEWEST_WHOLE if lasted else max(more, _FEWEST_WHOLE)
        self.close(peer)

    def _link_to(self, peer: int) -> Outgoing:
        return self.outgoing.setdefault(peer, Outgoing())

    def compresses(self, peer: int) -> bool:
        """Whether copies to the peer are sent in sessions now."""
        link = self.outgoing.get(peer)
        return self.delta and (link is None or not link.whole)

    def note_changes(self, streams: Sequence[int], links: Iterable[Outgoing]) -> None:
        """These have a higher number now: open sessions will have to say so."""
        for link in links:
            if link.session:
                link.pending += streams
                if len(link.pending) > _LONG:
                    link.pending = list(dict.fromkeys(link.pending))

    def encode(self, link: Outgoing, past: Past, vectors: Sequence[Vector], depth: int, epoch: int) -> tuple[int, ...]:
        """LCM-H3, LCM-H6, LCM-H7: the header of the next copy of a session."""
        fresh: list[int] = []
        changes = self._changes(link, past, fresh) if link.pending else []
        told, shapes = link.told, link.shapes
        header = [len(vectors) << _COUNT]
        if depth or epoch:
            header = [header[0] | _PLACED, depth, epoch]
        odd: list[int] = []
        late: list[int] = []
        new: list[Shape] = []
        spot = 0
        for shape, numbers, is_late in vectors:
            header.append(2 * shape.code + is_late)
            if shape.code not in shapes:
                new.append(shape)
                fresh += self._unheard(link, shape.streams)
            if is_late:
                late += numbers
                continue
            for number, stream in zip(numbers, shape.streams, strict=True):
                told[stream] = following = told[stream] + 1
                if following != number:
                    odd += (spot, number - following)
                    if number < following:
                        link.pending.append(stream)  # Only printed rules come to this: the past is ahead of it.
                    told[stream] = number
                spot += 1
        if new or fresh or odd or late:
            header[0] |= _MORE
            header += self._introductions(link, fresh, new)
            header += (len(odd) // 2, *odd, *late)
        if changes:
            header += changes
        return tuple(header)

    def _changes(self, link: Outgoing, past: Past, fresh: list[int]) -> list[int]:
        """LCM-H3: streams whose number the other end does not know, each with the difference."""
        told = link.told
        changes: list[int] = []
        for stream in dict.fromkeys(link.pending):
            value, before = past[stream], told[stream]
            if value != before:
                if before == _UNHEARD:
                    if not value:
                        continue
                    fresh.append(stream)
                    before = 0
                changes += (stream, value - before)
                told[stream] = value
        link.pending = []
        return changes

    def _unheard(self, link: Outgoing, streams: tuple[int, ...]) -> list[int]:
        """Those that the other end has not heard of; it will now."""
        told = link.told
        fresh = [stream for stream in streams if told[stream] == _UNHEARD]
        for stream in fresh:
            told[stream] = 0
        return fresh

    def outgoing_to(self, peer: int, past: Past) -> Outgoing | None:
        """The link to the peer, its session counted on or opened; None: the copy is to have a whole header."""
        if not self.delta:
            return None
        link = self.outgoing.get(peer) or self._link_to(peer)
        if link.whole:
            link.whole -= 1
            return None
        keys = self.streams.keys
        if link.session:
            link.number += 1
        else:
            self.sessions += 1
            link.session, link.number = self.sessions, 0
            link.told, link.shapes = [], set()
            link.pending = [stream for stream, value in enumerate(past) if value and keys[stream] >= 0]
        if len(link.told) < len(keys):
            link.told += [_UNHEARD] * (len(keys) - len(link.told))
        return link

    def burst(self, peer: int, copies: int) -> Outgoing | None:
        """LCM-H8: a session for copies that are sent again together; it ends with them. None: whole headers do."""
        if copies == 1 or not self.compresses(peer):
            link = self.outgoing.get(peer)
            if link is not None:
                link.whole -= min(copies, link.whole)
            return None
        self.sessions += 1
        link = Outgoing()
        link.session, link.number = self.sessions, -1
        link.told = [_UNHEARD] * len(self.streams.keys)
        return link

    def encode_again(
        self, burst: Outgoing, past: Past, vectors: Sequence[Vector], depth: int, epoch: int
    ) -> tuple[int, ...]:
        """LCM-H8: the header of the next copy of a burst; nobody has noted what changed since the one before."""
        keys, told = self.streams.keys, burst.told
        past += (0,) * (len(keys) - len(past))
        burst.number += 1
        burst.pending = [i for i, value in enumerate(past) if value != told[i] and keys[i] >= 0]
        return self.encode(burst, past, vectors, depth, epoch)

    def _introductions(self, link: Outgoing, fresh: list[int], new: list[Shape]) -> list[int]:
        """LCM-H6: streams and shapes that the other end has not heard of."""
        said = [len(fresh)]
        for stream in fresh:
            key = self.streams.keys[stream]
            inside = key >= 0
            key = key if inside else ~key
            said += (stream, 2 * (key >> SECOND_BITS) + inside, key & SECOND)
        said.append(len(new))
        for shape in new:
            link.shapes.add(shape.code)
            said += (shape.code, shape.forwarder, len(shape.streams), *shape.streams)
        return said

    # Receiving

    def incoming_from(self, peer: int, session: int) -> IncomingSession | None:
        """LCM-H4: where the copies of a session are read, whatever other sessions there are; None: it is too old."""
        links = (self.incoming if session > 0 else self.bursts).get(peer)
        if links is None:
            links = (self.incoming if session > 0 else self.bursts)[peer] = {}
        session = abs(session)
        link = links.get(session)
        if link is None:
            if len(links) == _MOST_SESSIONS:
                oldest = min(links)
                if session < oldest:
                    return None
                del links[oldest]
            link = links[session] = IncomingSession()
        return link

    def in_turn(self, peer: int, link: IncomingSession, packet: Data) -> Iterator[Data]:
        """LCM-H4: the copies that can be read now, maybe this one among them; each before the next is asked for."""
        number = packet.number
        if number < link.next or number in link.held:
            return
        if len(link.held) < _MOST_HELD or number == link.next:
            link.held[number] = packet
        else:
            return
        if number == link.next:
            link.looks = 0
            if link.given_up:  # It was not lost.
                link.given_up = False
                self.patience[peer] = min(2 * self.patience.get(peer, 1), _MOST_PATIENCE)
        while link.next in link.held:
            yield link.held.pop(link.next)
        link.ahead = bool(link.held)

    def read(self, peer: int, link: IncomingSession, packet: Data) -> tuple[Copy, list[int]]:
        """A copy whose turn it is, and the streams whose number differs from the copy before."""
        link.next += 1
        try:
            return self._decode(peer, link, packet)
        except (IndexError, KeyError, ValueError):
            raise self.nonsense(peer, packet.message) from None

    def read_whole(self, peer: int, packet: Data) -> Copy:
        """A copy whose header stands for itself."""
        try:
            told = Whole.read(packet.header)
        except ValueError:
            raise self.nonsense(peer, packet.message) from None
        if not all(map(self.here.may_forward, (told.forwarder, *(flagged >> 1 for flagged, _, _ in told.vectors)))):
            raise self.nonsense(peer, packet.message)
        vectors = tuple([self.streams.vector(vector) for vector in told.vectors])
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
            usable(vectors),
        )

    def nonsense(self, peer: int, message: Message) -> PeerError:
        return PeerError(self.here.routes.nodes[peer], f"sent {message.id} with a header that makes no sense")

    def _decode(self, peer: int, link: IncomingSession, packet: Data) -> tuple[Copy, list[int]]:
        """The value that `encode` was given."""
        header, values, shapes = packet.header, link.values, link.shapes
        head, at, depth, epoch = header[0], 1, 0, 0
        if head & _PLACED:
            depth, epoch, at = header[1], header[2], 3
        codes = header[at : at + (head >> _COUNT)]
        if min(head, depth, epoch) < 0 or len(codes) != head >> _COUNT:
            raise ValueError(head)
        at += head >> _COUNT
        odd: dict[int, int] = {}
        late: list[tuple[int, ...]] = []
        if head & _MORE:
            at = self._meet(link, header, at)
            end = at + 1 + 2 * header[at]
            odd = dict(zip(header[at + 1 : end : 2], header[at + 2 : end : 2], strict=True))
            late, at = _late_numbers(header, end, [len(shapes[code >> 1][1]) for code in codes if code & 1])
        changed = list(header[at::2])
        for i in range(at, len(header), 2):
            values[header[i]] += header[i + 1]
        past = tuple(values)
        vectors: list[Vector] = []
        names: list[Name] = []
        spot = 0
        for code in codes:
            shape, indices = shapes[code >> 1]
            if code & 1:
                numbers = late.pop(0)
            else:
                if odd:
                    for i in indices:
                        values[i] += odd.get(spot, 0)
                        spot += 1
                for i in indices:
                    values[i] += 1
                numbers = tuple([values[i] for i in indices])
            vectors.append((shape, numbers, code & 1))
            if shape.watched >= 0:
                names.append((shape.forwarder, numbers[shape.watched]))
        return Copy(packet.message, peer, depth, epoch, tuple(vectors), past, link.keys, peer, names), changed

    def _meet(self, link: IncomingSession, header: tuple[int, ...], at: int) -> int:
        """LCM-H6: hear of streams and shapes."""
        streams = header[at]
        if streams < 0:
            raise ValueError(streams)
        at += 1
        for i in range(at, at + 3 * streams, 3):
            index, first, second = header[i : i + 3]
            if not 0 <= index < _MOST_STREAMS:
                raise ValueError(index)
            stream = (first >> 1) << SECOND_BITS | second
            self._hear(link, index, stream if first & 1 else ~stream)
        at += 3 * streams
        shapes = header[at]
        at += 1
        for _ in range(shapes):
            code, forwarder, end = header[at], header[at + 1], at + 3 + header[at + 2]
            indices = header[at + 3 : end]
            if not at + 3 <= end <= len(header) or not self.here.may_forward(forwarder):
                raise ValueError(forwarder)
            keys = [key if key >= 0 else ~key for key in (link.keys[index] for index in indices)]
            link.shapes[code] = (self.streams.shape(forwarder, tuple([key & SECOND for key in keys])), indices)
            at = end
        return at

    def _hear(self, link: IncomingSession, index: int, key: int) -> None:
        missing = index + 1 - len(link.keys)
        if missing > 0:
            link.keys += [_UNHEARD] * missing
            link.values += [0] * missing
            link.local += [_UNHEARD] * missing
        link.keys[index] = key
        link.values[index] = 0
        self._place_stream(link, index, key)

    def _place_stream(self, link: IncomingSession, index: int, key: int) -> None:
        if key >= 0 and self.here.is_inside(key):
            link.local[index] = self.streams.at(key, inside=True)
        if key >= 0 and key & SECOND == self.here.me and key >> SECOND_BITS in self.processed.gapless:
            link.into[index] = key >> SECOND_BITS

    def gaps(self) -> set[int]:
        """LCM-H5: peers whose copies cannot be read, as one before them is missing, since this was asked last."""
        found: set[int] = set()
        for peer, link in self._sessions():
            if link.ahead:
                link.looks += 1
                if link.looks >= self.patience.get(peer, 1):
                    link.ahead, link.given_up = False, True
                    found.add(peer)
        return found

    def has_gaps(self) -> bool:
        """Whether copies wait that may still be overtaken by nothing but time."""
        return any(link.ahead for _, link in self._sessions())


def _late_numbers(header: tuple[int, ...], at: int, sizes: list[int]) -> tuple[list[tuple[int, ...]], int]:
    """The numbers of late vectors with so many each, and where they end."""
    found = []
    for size in sizes:
        found.append(header[at : at + size])
        at += size
    if at > len(header):
        raise ValueError("late vectors that are cut off")
    return found, at

"""Packets between a client and its edge broker. `Entries` travels between brokers too, byte for byte the same.

client                                    edge broker
│ ── Attach ────────────────────────────▶ │    once per connection, first
│ ◀──────────────────────────── View ──── │    and again whenever the tree around the edge changes
│ ── Subscribe(topic) ──────────────────▶ │    per topic, also to publish only
│ ◀────────────────────── TopicState ──── │    what the edge has
│ ── Sealed · Resume (what I have, my   ▶ │    the edge then asks the root to confirm the member
│    history) ──────────────────────────▶ │
│ ◀── Granted · Entries… · Live ───────── │    or Denied: the session is over
│ ── Entries (publications) ────────────▶ │
│ ◀── Entries · Acks · StableUpdate · Flow · Refused
│ ── StableReport ──────────────────────▶ │

reader                                    broker that keeps the topic (the edge is asked who: AskCopies)
│ ── OpenHistory ───────────────────────▶ │    on a connection of its own
│ ◀──────────────────── HistoryOpened ─── │    or NoHistory
│ ── ReadHistory ─▶ … ◀── History ─────── │    one piece at a time
"""

from __future__ import annotations

import msgspec

from ordercast.core.ids import Topic
from ordercast.core.messages import Packet
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Summary, Vector

# Tags of all packets of the broker system: 1-39 client and edge, 40-79 overlay, 80-119 topics.


class Attach(Packet, frozen=True, tag=1):
    """BRK-C5: the first packet of a client on a connection. `attach_no` grows with every attempt of the session."""

    attach_no: int
    ticket: str = ""
    """BRK-F1: the session's ticket, or WANTED; without one the session is never folded."""
    seal: bytes = b""
    """Proves that a broker has given the ticket to this session."""


WANTED = "?"
"""In the place of a ticket: the session has none yet."""


class Subscribe(Packet, frozen=True, tag=2):
    """Become a member of the topic. `receives` false: a member that only publishes; it gets no Entries, only Acks."""

    topic: Topic
    receives: bool = True


class Unsubscribe(Packet, frozen=True, tag=3):
    """BRK-M11: leave the topic. What was admitted before stays valid. Answered by `Left`."""

    topic: Topic


class Left(Packet, frozen=True, tag=4):
    topic: Topic


class Watch(Packet, frozen=True, tag=5):
    """Tell me of every topic that the filter takes in, now and later (`TopicsFound`); the client then subscribes."""

    pattern: str
    past: bool = False
    """ARC-S7: also of kept topics that nobody is a member of now."""


class Unwatch(Packet, frozen=True, tag=6):
    pattern: str


class TopicsFound(Packet, frozen=True, tag=7):
    """Topics that a watched filter takes in. Answers every Watch, if need be with none, or in several pieces."""

    pattern: str
    topics: tuple[Topic, ...]
    more: bool = False
    """Whether another piece of the same answer follows."""
    narrowed: bool = False
    """Of an answer: the client has no right to some topics of the filter, and is told of none of these."""


class TopicState(Packet, frozen=True, tag=8):
    """ParentBuffer of the source: what the edge has of the topic."""

    topic: Topic
    have: Summary
    base: Vector
    life: int = 0
    """Of the edge's log, which it may have to begin anew; 0: it has none."""


class Resume(Packet, frozen=True, tag=9):
    """LostMessageRequest of the source: what the client has, and the part of its history that the edge lacks."""

    topic: Topic
    attach_no: int
    have: Summary
    base: Vector
    entries: tuple[Publication, ...] = ()
    receives: bool = True
    life: int = 0
    """As the TopicState said that this answers: the history is complete for that life of the edge's log only."""


class Granted(Packet, frozen=True, tag=10):
    """BRK-M6: the client is a confirmed member from here on. A new member starts from `base` (StartBase)."""

    topic: Topic
    base: Vector
    new: bool
    receives: bool = True
    """As the Resume said that this answers."""
    aged: bool = False
    """ARC-13: sessions of the topic are closed; the base says nothing of them."""


class Live(Packet, frozen=True, tag=11):
    """All that the client lacked has been sent; it may publish."""

    topic: Topic


FENCED = "fenced"
REPLACED_BY_NEWER = "replaced"
SESSION_OVER = (FENCED, REPLACED_BY_NEWER)
"""Why a Denied ends the whole session: it was given up, or a newer one of its client has taken its place."""


class Denied(Packet, frozen=True, tag=12):
    """One of SESSION_OVER: the session is over (BRK-C9). Anything else: why this topic is refused to this client."""

    topic: Topic
    reason: str


class Entries(Packet, frozen=True, tag=13):
    """Publications of one topic, in order.

    From a client: to be admitted. Between brokers and to a client: entries of the sender's log, in log order; one with
    guarantee `total` is committed.
    """

    topic: Topic
    entries: tuple[Publication, ...]


class Acks(Packet, frozen=True, tag=14):
    """The progress of the client's own publications of the topic: held by the edge; held by f + 1 brokers."""

    topic: Topic
    edge: tuple[int, tuple[int, ...]]
    """All up to the first number, and the extras."""
    safe: tuple[int, tuple[int, ...]]


class Refused(Packet, frozen=True, tag=15):
    """PublishRefused: this publication will never be admitted (no right, no key, wrong number)."""

    topic: Topic
    number: int
    reason: str


class Flow(Packet, frozen=True, tag=16):
    """BRK-ST4: `open` false: keep new publications of the topic in the outbox until told otherwise."""

    topic: Topic
    open: bool


class StableReport(Packet, frozen=True, tag=17):
    """BRK-ST1, from a client: what it has handed to its application, contiguously."""

    topic: Topic
    vector: Vector


class StableUpdate(Packet, frozen=True, tag=18):
    """BRK-ST3: every member has everything up to `base`: forget it."""

    topic: Topic
    base: Vector


class Neighbour(msgspec.Struct, frozen=True, array_like=True):
    """A broker as seen from another one (BRK-O17)."""

    node: str
    address: str
    hops: int
    kind: str
    """`parent`, `ancestor`, `uncle`, `sibling` or `child`."""
    topics: tuple[Topic, ...] = ()
    residual: int = 0
    region: str = ""


class View(Packet, frozen=True, tag=19):
    """TreeViewUpdate of the source: where else to go when this broker dies. Replaces the last one."""

    neighbours: tuple[Neighbour, ...]
    directory: tuple[tuple[str, str], ...] = ()
    """All brokers and their addresses."""


class Ping(Packet, frozen=True, tag=20):
    """Answered by a Pong with the same `at`, at once: a round trip, and a sign of life."""

    at: int


class Pong(Packet, frozen=True, tag=21):
    at: int


class Sealed(Packet, frozen=True, tag=22):
    """Seals (pubsub/seals.py) of what the next packet of the topic carries, in its order: base, publications.

    From the edge: the client keeps them as long as it keeps what they prove. From a client, before a Resume: without
    them a broker that has a key believes none of it. Comes first, so that nothing is delivered without its proof.
    """

    topic: Topic
    base: bytes = b""
    entries: bytes = b""


class Ticket(Packet, frozen=True, tag=30):
    """BRK-F1, from the edge before its first TopicState: what this session is called in its origin from now on."""

    ticket: str
    seal: bytes = b""


class Goodbye(Packet, frozen=True, tag=31):
    """BRK-F2: the session never comes back; its memberships end once what it has published is admitted."""


class SessionsClosed(Packet, frozen=True, tag=32):
    """BRK-F8: sessions of which everything was delivered; nothing of them needs to be remembered one by one.

    All of them to a client that asks to receive for the first time on a connection, later what is new.
    """

    closed: Closed


class AskCopies(Packet, frozen=True, tag=23):
    """ARC-7: which brokers keep the topic?"""

    topic: Topic


class KeptAt(Packet, frozen=True, tag=24):
    """The brokers that keep the topic and their addresses, those that should have all of it first; none: not kept."""

    topic: Topic
    brokers: tuple[tuple[str, str], ...]
    copies: int = 0
    """So many of them, from the first on, should have all of it; the others may be former copies."""


class OpenHistory(Packet, frozen=True, tag=25):
    """ARC-7, to a broker that keeps the topic, also without an Attach: begin to read.

    From where, by `start`: `position`: behind the cut `since`. `earliest`. `time`: from what was kept at `amount`
    milliseconds of the epoch or later. `last`: at least the last `amount` publications. `repair`: behind `since`, up to
    an end with all sessions that are closed.
    """

    topic: Topic
    read: int
    """The reader's name for what it reads on this connection."""
    start: str
    since: Vector
    amount: int = 0
    until: Vector | None = None
    """None: all that is there now."""
    over: bool = False
    """What is gone for good is passed over, and not a reason to refuse."""


class HistoryOpened(Packet, frozen=True, tag=26):
    """The range that will be read: everything in `until` that is not in `since`."""

    topic: Topic
    read: int
    since: Vector
    until: Vector
    whole: bool
    """Nothing before `since` was ever removed or lost: it is the beginning of the topic."""
    place: tuple[int, int] | None
    """None: nothing lies between the two."""
    gaps: bool = False
    """Something that was asked for is gone for good, and is passed over."""


class ReadHistory(Packet, frozen=True, tag=27):
    """The next piece, from the place that the last one gave."""

    topic: Topic
    read: int
    place: tuple[int, int]
    over: bool = False
    """As it was opened."""


class KeptRecords(Packet, frozen=True, tag=28):
    """Records as they are kept; among them may be what the reader has already, or what lies beyond its end."""

    topic: Topic
    read: int
    records: tuple[bytes, ...]
    place: tuple[int, int] | None
    """None: that is all there is now."""


class NoHistory(Packet, frozen=True, tag=29):
    """Why it cannot be read here: `unkept`, `empty`, `denied`, `behind`, `moved`, `cleaned` or `lost`.

    `behind`: ask again, or another copy. `moved`: open it again. `cleaned`, `lost`: there is no gap from `cut` on.
    """

    topic: Topic
    read: int
    code: str
    cut: Vector
    seam: Vector = msgspec.field(default_factory=dict)
    """ARC-5: where what it has and what it lacks meet first, for a copy that lacks both."""
    early: bool = False
    """ARC-6: it has not heard of all that was asked for: once it has, some of it may be there."""


MOST_CUT = 10_000
"""Topics that one cut is of, named or taken in by filters."""
MOST_FILTERS_OF_A_CUT = 100
"""Filters that one cut is of: each of them is looked for among all topics."""


class AskCut(Packet, frozen=True, tag=36):
    """ARC-C1: how far are these topics, all at one moment?"""

    number: int
    topics: tuple[str, ...]
    """Topics, and filters: each stands for all kept topics that it takes in, those that have just begun included."""


class CutTold(Packet, frozen=True, tag=37):
    """A cut that is closed across the topics; or why there is none now."""

    number: int
    cuts: dict[Topic, Vector]
    why_not: str = ""


class LookFor(Packet, frozen=True, tag=33):
    """ARC-K1: tell me of every kept topic that the filter takes in, now and later. It makes nobody a member."""

    pattern: str


class LookNoMore(Packet, frozen=True, tag=34):
    pattern: str


class KeptFound(Packet, frozen=True, tag=35):
    """Kept topics that a filter takes in. Answers every LookFor, if need be with none, or in several pieces."""

    pattern: str
    topics: tuple[Topic, ...]
    more: bool = False
    """Whether another piece of the same answer follows."""
    why_not: str = ""
    """Why there never will be any, as the rules are now."""


READING = (OpenHistory, ReadHistory)
"""What a broker answers on any connection, attached or not."""
CLIENT_PACKETS: tuple[type[Packet], ...] = (
    Attach, Subscribe, Unsubscribe, Left, Watch, Unwatch, TopicsFound, TopicState, Resume, Granted, Live, Denied,
    Entries, Acks, Refused, Flow, StableReport, StableUpdate, View, Ping, Pong,
    Sealed, Ticket, Goodbye, SessionsClosed,
    AskCopies, KeptAt, OpenHistory, HistoryOpened, ReadHistory, KeptRecords, NoHistory, AskCut, CutTold,
    LookFor, LookNoMore, KeptFound,
)  # fmt: skip

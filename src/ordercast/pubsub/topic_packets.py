"""Packets between brokers about topics, on the links of the tree. `Entries` (client_packets) travels here too.

child                                     parent
│ ── OpenTopic (what I have) ───────────▶ │    BRK-S1: for every topic, on attach, on creation and after a reset
│ ◀── TopicBuffer · Entries… · Prepare · SyncEnd      BRK-S2: what the child lacks
│ ── Entries… · Prepare · SyncEnd ──────▶ │    BRK-S3: what the parent lacks; then live traffic both ways
│ ── TotalAck · MemberReport · StableVote ▶ │  towards the root, replacing the last ones
│ ◀── Entries (committed totals) · BaseUpdate
│ ── AttachRequest ─▶ … ◀─ AttachGranted ─ │   BRK-M3 to BRK-M6
│ ◀── RosterUpdate … RosterAck ─────────▶ │    BRK-M9: the join wave over all brokers
│ ── TopicClose ──▶ … ◀── TopicClosed ─── │    a topic that nobody below needs any more

An `epoch` is an attach number as brokers count it: it grows with every attach of a session and with every membership
that it asks for on one connection.
"""

from __future__ import annotations

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Packet
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.keeping import StampedRule
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Summary, Vector

TermOnWire = tuple[int, NodeId]
Covered = tuple[tuple[Origin, int], ...]
"""Members and the epochs they are known by here, sorted."""


class OpenTopic(Packet, frozen=True, tag=80):
    """BRK-S1: LostMessageRequest of the source. `open_id` names this life of the channel."""

    topic: Topic
    open_id: int
    grounded: bool
    have: Summary
    base: Vector


class TopicBuffer(Packet, frozen=True, tag=81):
    """BRK-S2: ParentBuffer of the source. The channel of that `open_id` is live for the child."""

    topic: Topic
    open_id: int
    have: Summary
    base: Vector


class Prepare(Packet, frozen=True, tag=82):
    """BRK-L1: totals that are not committed; every broker they reach locks their keys for its own clients."""

    topic: Topic
    entries: tuple[Publication, ...]


class SyncEnd(Packet, frozen=True, tag=83):
    """Everything that the other end lacked has been sent."""

    topic: Topic
    open_id: int


class TopicClose(Packet, frozen=True, tag=84):
    """BRK-S7: the child's part of the topic is empty. It keeps what it had until the TopicClosed with the same id."""

    topic: Topic
    close_id: int


class TopicClosed(Packet, frozen=True, tag=85):
    """Enough other brokers hold what the child had when it closed."""

    topic: Topic
    close_id: int


class Grounded(Packet, frozen=True, tag=86):
    """BRK-S7: whether a confirmed member is below the child."""

    topic: Topic
    grounded: bool


class TopicReset(Packet, frozen=True, tag=87):
    """BRK-S7: the parent has forgotten the topic and this channel: open it again or give it up."""

    topic: Topic


class TotalAck(Packet, frozen=True, tag=88):
    """BRK-L3: the child is locked for these totals and answers for these members. Replaces its last one for each id."""

    topic: Topic
    term: TermOnWire
    ids: tuple[PublicationId, ...]
    covered: Covered


class MemberReport(Packet, frozen=True, tag=89):
    """BRK-M7: the members below the child, waiting ones included, and those that are away and answered for there."""

    topic: Topic
    term: TermOnWire
    members: Covered
    away: Covered = ()


class AttachRequest(Packet, frozen=True, tag=90):
    """BRK-M3: asks the root to confirm a member. `path`: the brokers it has passed, the edge first."""

    topic: Topic
    member: Origin
    epoch: int
    path: tuple[NodeId, ...] = ()


class AttachGranted(Packet, frozen=True, tag=91):
    """BRK-M4.4, back along the path. `new`: it was not in the roster before it asked."""

    topic: Topic
    term: TermOnWire
    member: Origin
    epoch: int
    path: tuple[NodeId, ...]
    new: bool


class AttachDenied(Packet, frozen=True, tag=92):
    """BRK-M4.2: the session is fenced."""

    topic: Topic
    member: Origin
    epoch: int
    path: tuple[NodeId, ...]


class MemberGone(Packet, frozen=True, tag=93):
    """BRK-M8, BRK-M11, to the root: the member has left the topic, or, with an empty topic, its session has ended."""

    topic: Topic
    member: Origin
    epoch: int
    on_purpose: bool = False
    """The client has said so (BRK-F2); otherwise it was given up."""
    unheard: bool = False
    """It went before it heard that it is a member: that holds only if it has not been one before (BRK-M8)."""


class RosterUpdate(Packet, frozen=True, tag=94):
    """BRK-M9: one more member, down to every broker. Without a topic: a fence (BRK-M10)."""

    update_id: int
    topic: Topic
    member: Origin
    epoch: int
    followers: tuple[Origin, ...] = ()
    """Members in advance, as in a roster (BRK-W2)."""


class RosterAck(Packet, frozen=True, tag=95):
    """BRK-M9.2: these brokers have recorded the update: the sender, and all below it that are still there."""

    update_id: int
    brokers: tuple[NodeId, ...]


class RosterSync(Packet, frozen=True, tag=96):
    """BRK-M9.4: on attach everything that is known, later what is new; fences and departures too (BRK-M8)."""

    roster: dict[Topic, tuple[Origin, ...]]
    fenced: dict[Origin, int]
    closed: Closed = msgspec.field(default_factory=dict)
    """BRK-F7: sessions that are folded; of each issuer that is named, all of them."""


class StableVote(Packet, frozen=True, tag=97):
    """BRK-ST1: what all these members have. No vector: none of them receives anything."""

    topic: Topic
    term: TermOnWire
    members: Covered
    vector: Vector | None


class BaseUpdate(Packet, frozen=True, tag=98):
    """BRK-ST3: every member has everything up to here."""

    topic: Topic
    term: TermOnWire
    base: Vector


class Held(Packet, frozen=True, tag=99):
    """At least `level` brokers on the sender's side of the link, the sender among them, hold these publications."""

    topic: Topic
    level: int
    summary: Summary


class HeldAsk(Packet, frozen=True, tag=100):
    """Tell me, now and on every change, how far the publications of these origins are held on your side."""

    topic: Topic
    origins: tuple[Origin, ...]


class Reach(Packet, frozen=True, tag=101):
    """So many brokers are on the sender's side of the link, the sender among them, counted up to `safe_copies`."""

    brokers: int


class Keep(Packet, frozen=True, tag=102):
    """Take part in the topic, with so many brokers of your side, although nobody below you is a member."""

    topic: Topic
    brokers: int


class Absent(Packet, frozen=True, tag=103):
    """BRK-M10: the members that are not below the root, and for how many milliseconds."""

    members: dict[Topic, dict[Origin, int]]
    back: tuple[tuple[Topic, Origin], ...] = ()
    """Those of whom it was told before that they are absent, and who are not any more."""
    whole: bool = True
    """Whether it replaces what was told before; otherwise it adds to it."""


class FoldRound(Packet, frozen=True, tag=110):
    """BRK-F3, from the root down to every broker: what do you hold of sessions that have ended?"""

    term: TermOnWire
    number: int
    topics: tuple[Topic, ...]
    """In which those sessions took part."""
    strays: tuple[Origin, ...] = ()
    """BRK-F9: sessions that are members of nothing: which of them are connected with you?"""
    cut: tuple[str, ...] = ()
    """ARC-C2: topics and filters, of which everybody notes how far it has come."""
    ended: tuple[Origin, ...] = ()
    """BRK-F4: the sessions, where topics are kept."""
    last: dict[Topic, Vector] = msgspec.field(default_factory=dict)
    """What the root has of them in kept topics: whoever keeps those says if it has something else."""


class FoldAnswer(Packet, frozen=True, tag=111):
    """BRK-F4, to the parent: for the sender and all brokers below it."""

    term: TermOnWire
    number: int
    places: dict[NodeId, tuple[int, int]]
    """The life of each broker, and how often it has been given a place in the tree in it."""
    held: tuple[Origin, ...]
    """Ended sessions of which one of them has something that it does not know to be stable, and strays that are
    connected with one of them."""
    found: dict[Topic, Vector] = msgspec.field(default_factory=dict)
    """ARC-C2: what they had of the topics of the cut."""
    orphaned: tuple[Origin, ...] = ()
    """BRK-V2: ended sessions of which one of them keeps something apart from its logs."""


class CutRequest(Packet, frozen=True, tag=112):
    """ARC-C1, towards the root: a client wants a cut across topics. `path` as for an attach."""

    number: int
    topics: tuple[str, ...]
    path: tuple[NodeId, ...] = ()


class CutReply(Packet, frozen=True, tag=113):
    """ARC-C4, back along the path."""

    number: int
    path: tuple[NodeId, ...]
    cuts: dict[Topic, Vector]
    why_not: str = ""


class KeepNews(Packet, frozen=True, tag=104):
    """ARC-1: rules that are new to the sender, and brokers that can or cannot keep anything, by their latest life."""

    rules: tuple[StampedRule, ...]
    able: dict[NodeId, tuple[int, bool]]
    topics: tuple[Topic, ...] = ()
    """ARC-S7: of which somebody has a history."""
    aged: tuple[Topic, ...] = ()
    """ARC-13: of which sessions are folded."""


TOPIC_PACKETS: tuple[type[Packet], ...] = (
    OpenTopic, TopicBuffer, Prepare, SyncEnd, TopicClose, TopicClosed, Grounded, TopicReset, TotalAck, MemberReport,
    AttachRequest, AttachGranted, AttachDenied, MemberGone, RosterUpdate, RosterAck, RosterSync, StableVote,
    BaseUpdate, Held, HeldAsk, Reach, Keep, Absent, FoldRound, FoldAnswer, CutRequest, CutReply,
    KeepNews,
)  # fmt: skip

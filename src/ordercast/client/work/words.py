"""Words of shared work: messages between the leader of a group and its members, and the records the leader keeps.

member                                     leader (one session of the group's own client name)
│ ── Report(fresh) ──────────────────────▶ │   on the topic of reports: I am here, and hold nothing
│ ◀──────────────── Orders(noted) ──────── │   on the member's own topic: wait
│                                          │   GroupProgress with the new member, on the kept topic of the group
│ ◀──────────────── Orders(assigned) ───── │
│ ── Report(done, tried) ────────────────▶ │
│                                          │   GroupProgress with what is done
│ ◀────────────── Orders(confirmed) ────── │   never handed out again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from ordercast.core.ids import Origin, Topic
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.cuts import common
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Summary, Vector

GROUPS, WORK, DEAD = "groups", "work", "dead"
"""First parts of the topics: of what leaders write down, of what is said, and of what was given up."""
_WILD = {"*": "(any)", ">": "(rest)"}
Ids = dict[Origin, tuple[int, ...]]
"""Publications of the topic, by their publishers."""


class WorkOrder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A piece of work for a member."""

    entry: Publication
    attempt: int
    """Which, from 1."""


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """From the leader to one member."""

    epoch: int
    """Of the leader; of two, the one with the higher epoch leads."""
    member: str
    """Whom it is for: a member that was given up and has come back is another one."""
    assigned: tuple[WorkOrder, ...] = ()
    confirmed: int = 0
    """What the member's reports up to this one said to be done is written down."""
    rank: int = 0
    """The place of the member in the order in which they joined: the first ones look for a new leader first."""
    expelled: bool = False
    """The member was given up: what it holds is not its own any more."""
    noted: bool = False
    """There is a leader, which is about to write this newcomer down: it is sent nothing before."""
    heard: int = 0
    """The last report of the member that this leader has."""


class Report(msgspec.Struct, frozen=True, array_like=True):
    """From a member to whoever leads."""

    member: str
    epoch: int
    """Of the leader that the member knows; 0: none."""
    number: int
    """Of the report, from 1."""
    done: Ids = {}
    tried: tuple[tuple[Origin, int, int], ...] = ()
    """Work that was tried and is to be tried again: publisher, number, attempts so far."""
    holding: tuple[tuple[Origin, int, int], ...] | None = None
    """To a leader that has just begun: all that the application has in hand, with its attempts."""
    fresh: bool = False
    """The member has just begun, and holds nothing."""
    leaving: bool = False
    """It takes no more work, and holds nothing."""
    room: int = 0
    """SHW-9: so many units may be sent ahead to it; 0: the whole window."""


class GroupProgress(msgspec.Struct, frozen=True, array_like=True):
    """A group's progress, as its leader writes it down: what is done, and who may hold work."""

    epoch: int
    done: Summary
    members: tuple[str, ...] = ()
    """In the order in which they joined."""
    attempts: tuple[tuple[Origin, int, int], ...] = ()
    begins: bool = False
    """SHW-1: says nothing but that this leader takes over. Whoever led before stops."""


class GroupBeginning(msgspec.Struct, frozen=True):
    """SHW-10: where a group on a filter began. A topic that is not in it begins at its beginning."""

    began: dict[Topic, Vector]


def group_topic(topic: str, group: str) -> Topic:
    """The kept topic in which the leader of a group writes down what is done."""
    return Topic(f"{GROUPS}.{topic}.{group}")


def beginning_topic(pattern: str, group: str) -> Topic:
    """Where the members of a group on a filter write down where it began; to be kept."""
    named = ".".join(_WILD.get(segment, segment) for segment in pattern.split("."))
    return Topic(f"{GROUPS}.{named}.{group}")


def is_groups_own(topic: str, group: str, dead: str | None) -> bool:
    """Whether the topic is no work for the group, as groups write it, or as this one gives up work there."""
    first = topic.partition(".")[0]
    return first in (GROUPS, WORK) or topic == dead or (first == DEAD and topic.endswith(f".{group}"))


def report_topic(topic: str, group: str) -> Topic:
    return Topic(f"{WORK}.{topic}.{group}.reports")


def member_topic(topic: str, group: str, client: str) -> Topic:
    return Topic(f"{WORK}.{topic}.{group}.to.{client}")


def dead_topic(topic: str, group: str) -> Topic:
    """The topic for work that was given up, unless the group names another."""
    return Topic(f"{DEAD}.{topic}.{group}")


def by_publisher(ids: Iterable[PublicationId]) -> Ids:
    found: dict[Origin, list[int]] = {}
    for origin, number in ids:
        found.setdefault(origin, []).append(number)
    return {origin: tuple(numbers) for origin, numbers in found.items()}


encode = msgspec.msgpack.Encoder().encode
_T = TypeVar("_T")
_orders = msgspec.msgpack.Decoder(Orders).decode
_report = msgspec.msgpack.Decoder(Report).decode
_progress = msgspec.msgpack.Decoder(GroupProgress).decode
_beginning = msgspec.msgpack.Decoder(GroupBeginning).decode


def orders_in(payload: bytes) -> Orders | None:
    """None: a stranger wrote it. Whoever may publish on the topics of a group is believed otherwise."""
    return _read(payload, _orders)


def report_in(payload: bytes) -> Report | None:
    return _read(payload, _report)


def progress_in(payload: bytes) -> GroupProgress | None:
    return _read(payload, _progress)


def beginning_in(payload: bytes) -> GroupBeginning | None:
    return _read(payload, _beginning)


def earliest_of(beginnings: Iterable[GroupBeginning]) -> dict[Topic, Vector]:
    """SHW-10: members that began a group together may each have written one down: what is in all of them."""
    first, *others = beginnings
    cuts = dict(first.began)
    for other in others:
        cuts = {topic: common(cut, other.began[topic]) for topic, cut in cuts.items() if topic in other.began}
    return cuts


def _read(payload: bytes, decode: Callable[[bytes], _T]) -> _T | None:
    try:
        return decode(payload)
    except NOT_DECODABLE:
        return None

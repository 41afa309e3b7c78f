"""Stateless packet validation, run before a packet takes effect.

Brokers trust each other, so this is no defence against one that lies. It keeps a broken one from breaking others: its
connection ends with a word about why, and nothing of the packet has taken effect. What a client says is looked at too,
so that no broker is blamed for passing it on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from ordercast.broker.ports import Ages
from ordercast.broker.roster_book import REPLACED, parsed
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import Origin, Topic, valid_broker
from ordercast.core.messages import Guarantee, Packet
from ordercast.pubsub.client_packets import (
    MOST_CUT,
    WANTED,
    AskCopies,
    AskCut,
    Attach,
    Entries,
    OpenHistory,
    ReadHistory,
    Resume,
    StableReport,
)
from ordercast.pubsub.closed import is_ticket, senseless
from ordercast.pubsub.cuts import senseless_interval
from ordercast.pubsub.filters import check_filter, check_topic, followed, is_following
from ordercast.pubsub.received import Summary, Vector
from ordercast.pubsub.topic_packets import (
    Absent,
    AttachDenied,
    AttachGranted,
    AttachRequest,
    BaseUpdate,
    Covered,
    CutReply,
    CutRequest,
    FoldAnswer,
    FoldRound,
    Held,
    Keep,
    KeepNews,
    MemberGone,
    MemberReport,
    OpenTopic,
    Prepare,
    RosterSync,
    RosterUpdate,
    StableVote,
    TopicBuffer,
    TotalAck,
)
from ordercast.pubsub.tree_packets import (
    DirectoryWave,
    JoinRequest,
    LeaveRequest,
    RootElection,
    RootElectionReply,
    Welcome,
)

_MOST = 1 << 53
"""No number of a publication comes near it."""
_MOST_ATTACHES = 1 << 40
_LONGEST_NAME = 128
_LONGEST_ADDRESS = 300
_LONGEST_TICKET = _LONGEST_NAME + 40
_NOWHERE = "nowhere:0"
"""In the place of the address that a broker had that has left."""
_topic_of = attrgetter("topic")


def check(sender: str, packet: Packet) -> None:
    """Raises PeerError if the packet makes no sense, whatever the state of this broker."""
    look = _LOOKS.get(type(packet))
    if look is not None:
        objection = look(packet)
        if objection:
            raise PeerError(sender, f"sent {type(packet).__name__} with {objection}")


def _topic(topic: str) -> str:
    try:
        check_filter(followed(topic)) if is_following(topic) else check_topic(topic)
    except UsageError as error:
        return str(error)
    return ""


def _member(member: str, epoch: int) -> str:
    if not member or " " in member:
        return f"a member called {member[:40]!r}"
    return "" if 0 <= epoch <= REPLACED else f"epoch {epoch}"


def _members(covered: Covered) -> str:
    return _first(_member(member, epoch) for member, epoch in covered)


def _sessions(origins: tuple[Origin, ...]) -> str:
    return _first(_member(origin, 0) for origin in origins)


def _vector(vector: Vector) -> str:
    return _first(f"number {number} of {origin[:40]}" for origin, number in vector.items() if not 0 <= number < _MOST)


def _summary(summary: Summary) -> str:
    for origin, (low, extras) in summary.items():
        numbers = (low, *extras)
        if low < 0 or numbers[-1] >= _MOST or any(a >= b for a, b in zip(numbers, extras, strict=False)):
            return f"the received-set {str(numbers)[:60]} of {origin[:40]}"
    return ""


def _entries(packet: Entries) -> str:
    wrong = set(map(_topic_of, packet.entries)) - {packet.topic}
    return f"a publication on {min(wrong)[:40]} in it" if wrong else ""


def _history(packet: Resume) -> str:
    for entry in packet.entries:
        if not 0 < entry.number < _MOST or entry.guarantee > Guarantee.TOTAL or entry.topic != packet.topic:
            return f"{entry.id[:80]} in it"
    return _summary(packet.have) or _vector(packet.base)


def _reading(packet: OpenHistory | ReadHistory | AskCopies) -> str:
    if isinstance(packet, ReadHistory) and not all(0 <= part < _MOST for part in packet.place):
        return f"the place {packet.place}"
    return _topic(packet.topic) or (_opened(packet) if isinstance(packet, OpenHistory) else "")


def _opened(packet: OpenHistory) -> str:
    if not 0 <= packet.amount < _MOST:
        return f"the amount {packet.amount}"
    return _cut(packet.since) or _cut(packet.until or {})


def _cut_topics(topics: tuple[str, ...]) -> str:
    many = f"{len(topics)} topics, and more than {MOST_CUT} are not allowed" if len(topics) > MOST_CUT else ""
    return many or _first(map(_topic_or_filter, topics))


def _topic_or_filter(name: str) -> str:
    try:
        check_filter(name)
    except UsageError as error:
        return str(error)
    return ""


def _round(packet: FoldRound) -> str:
    topics = _first(map(_topic, packet.topics)) or _first(map(_topic_or_filter, packet.cut))
    return topics or _sessions(packet.strays) or _sessions(packet.ended) or _cuts(packet.last)


def _cut(cut: Vector) -> str:
    return _vector(cut) or senseless_interval(cut)[:40]


def _cuts(cuts: dict[Topic, Vector]) -> str:
    return _first(_topic(topic) or _cut(cut) for topic, cut in cuts.items())


def _keep_news(packet: KeepNews) -> str:
    for stamped in packet.rules:
        try:
            check_filter(stamped.rule.filter)
        except UsageError as error:
            return str(error)
    return _first(map(_topic, (*packet.topics, *packet.aged)))


def _attach(packet: Attach) -> str:
    if packet.ticket not in ("", WANTED) and (len(packet.ticket) > _LONGEST_TICKET or not is_ticket(packet.ticket)):
        return f"the ticket {packet.ticket[:40]!r}"
    return "" if 0 <= packet.attach_no < _MOST_ATTACHES else f"the number {packet.attach_no}"


def _totals(packet: Prepare) -> str:
    for entry in packet.entries:
        if entry.guarantee is not Guarantee.TOTAL or not entry.keys or not 0 < entry.number < _MOST:
            return f"{entry.id[:80]}, which is no total"
    return _entries(Entries(packet.topic, packet.entries))


def _roster(packet: RosterSync | RootElectionReply) -> str:
    for topic, entries in packet.roster.items():
        objection = _topic(topic) or _first(map(_entry, entries))
        if objection:
            return objection
    return senseless(packet.closed) or _first(
        f"the end {who[:40]!r} at {epoch}"
        for who, epoch in packet.fenced.items()
        if not who.partition(" ")[0] or not 0 <= epoch <= REPLACED
    )


def _ages(absent: Ages) -> str:
    return _first(
        _topic(topic) or (_member(member, 0) if 0 <= age_ms < _MOST else f"an absence of {age_ms} ms")
        for topic, ages in absent.items()
        for member, age_ms in ages.items()
    )


def _absent(packet: Absent) -> str:
    return _ages(packet.members) or _first(_topic(topic) or _member(member, 0) for topic, member in packet.back)


def _of_one(packet: AttachRequest | AttachGranted | AttachDenied) -> str:
    return _topic(packet.topic) or _member(packet.member, packet.epoch)


def _of_one_or_all(packet: MemberGone | RosterUpdate) -> str:
    return (packet.topic and _topic(packet.topic)) or _member(packet.member, packet.epoch)


def _update(packet: RosterUpdate) -> str:
    return _of_one_or_all(packet) or _first(map(_entry, packet.followers))


def _entry(entry: str) -> str:
    """A member as rosters name it."""
    try:
        return _member(*parsed(Origin(entry)))
    except ValueError:
        return f"a member called {entry[:40]!r}"


def _opening(packet: OpenTopic | TopicBuffer) -> str:
    return _topic(packet.topic) or _summary(packet.have) or _vector(packet.base)


def _broker(node: str, address: str) -> str:
    """A name that a broker can have, at an address that can be dialled."""
    host, _, port = address.rpartition(":")
    dialled = host and host.isprintable() and " " not in host and port.isascii() and port.isdigit() and len(port) < 6
    proper = valid_broker(node) and len(address) <= _LONGEST_ADDRESS
    return "" if proper and dialled and int(port) < 1 << 16 else f"a broker {node[:40]!r} at {address[:40]!r}"


def _newcomer(packet: JoinRequest | LeaveRequest) -> str:
    return _broker(packet.node, packet.address)


def _directory(packet: Welcome | DirectoryWave | RootElection | RootElectionReply) -> str:
    known = packet.directory
    if min(known.settled) < 0:
        return f"the stamp {known.settled}"
    return _first(_broker(*member) for member in known.members.items()) or _first(
        f"the change {change}"[:100]
        for change in known.changes
        if _broker(change.node, change.address or _NOWHERE) or min(change.stamp) < 0
    )


def _first(objections: Iterable[str]) -> str:
    return next(filter(None, objections), "")


_LOOKS: dict[type[Packet], Callable[[Any], str]] = {
    Attach: _attach,
    Resume: _history,
    AskCopies: _reading,
    OpenHistory: _reading,
    ReadHistory: _reading,
    KeepNews: _keep_news,
    StableReport: lambda packet: _vector(packet.vector),
    Entries: _entries,
    Prepare: _totals,
    OpenTopic: _opening,
    TopicBuffer: _opening,
    TotalAck: lambda packet: _members(packet.covered),
    MemberReport: lambda packet: _members(packet.members) or _members(packet.away),
    StableVote: lambda packet: _members(packet.members) or _vector(packet.vector or {}),
    BaseUpdate: lambda packet: _vector(packet.base),
    Held: lambda packet: _summary(packet.summary),
    Keep: lambda packet: _topic(packet.topic),
    AttachRequest: _of_one,
    AttachGranted: _of_one,
    AttachDenied: _of_one,
    MemberGone: _of_one_or_all,
    RosterUpdate: _update,
    RosterSync: _roster,
    FoldRound: _round,
    FoldAnswer: lambda packet: _sessions(packet.held) or _cuts(packet.found),
    AskCut: lambda packet: _cut_topics(packet.topics),
    CutRequest: lambda packet: _cut_topics(packet.topics),
    CutReply: lambda packet: _cuts(packet.cuts),
    Absent: _absent,
    RootElectionReply: lambda packet: _roster(packet) or _directory(packet) or _ages(packet.absent or {}),
    RootElection: _directory,
    DirectoryWave: _directory,
    Welcome: _directory,
    JoinRequest: _newcomer,
    LeaveRequest: _newcomer,
}

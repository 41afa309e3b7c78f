"""Stateless packet validation, run before a packet takes effect.

Brokers trust each other, so this is no defence against one that lies. It keeps a broken one from breaking others: its
connection ends with a word about why, and nothing of the packet has taken effect. What a client says is looked at too,
so that no broker is blamed for passing it on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from ordercast.broker.roster_book import FOR_EVER, parsed
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import valid_node
from ordercast.core.messages import Guarantee, Packet
from ordercast.pubsub.client_packets import Attach, Entries, Resume, StableReport
from ordercast.pubsub.filters import check_topic
from ordercast.pubsub.received import Summary, Vector
from ordercast.pubsub.topic_packets import (
    Absent,
    AttachDenied,
    AttachGranted,
    AttachRequest,
    BaseUpdate,
    Covered,
    Held,
    Keep,
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
        check_topic(topic)
    except UsageError as error:
        return str(error)
    return ""


def _member(member: str, epoch: int) -> str:
    if not member or " " in member:
        return f"a member called {member[:40]!r}"
    return "" if 0 <= epoch <= FOR_EVER else f"epoch {epoch}"


def _members(covered: Covered) -> str:
    return _first(_member(member, epoch) for member, epoch in covered)


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


def _attach(packet: Attach) -> str:
    return "" if 0 <= packet.attach_no < _MOST_ATTACHES else f"the number {packet.attach_no}"


def _totals(packet: Prepare) -> str:
    for entry in packet.entries:
        if entry.guarantee is not Guarantee.TOTAL or not entry.keys or not 0 < entry.number < _MOST:
            return f"{entry.id[:80]}, which is no total"
    return _entries(Entries(packet.topic, packet.entries))


def _roster(packet: RosterSync | RootElectionReply) -> str:
    for topic, entries in packet.roster.items():
        for entry in entries:
            try:
                objection = _member(*parsed(entry))
            except ValueError:
                objection = f"a member called {entry[:40]!r}"
            if objection or _topic(topic):
                return objection or _topic(topic)
    return _first(
        f"the end {who[:40]!r} at {epoch}"
        for who, epoch in packet.fenced.items()
        if not who.partition(" ")[0] or not 0 <= epoch <= FOR_EVER
    )


def _ages(packet: Absent) -> str:
    return _first(
        _topic(topic) or (_member(member, 0) if 0 <= age_ms < _MOST else f"an absence of {age_ms} ms")
        for topic, ages in packet.members.items()
        for member, age_ms in ages.items()
    ) or _first(_topic(topic) or _member(member, 0) for topic, member in packet.back)


def _of_one(packet: AttachRequest | AttachGranted | AttachDenied) -> str:
    return _topic(packet.topic) or _member(packet.member, packet.epoch)


def _of_one_or_all(packet: MemberGone | RosterUpdate) -> str:
    return (packet.topic and _topic(packet.topic)) or _member(packet.member, packet.epoch)


def _opening(packet: OpenTopic | TopicBuffer) -> str:
    return _topic(packet.topic) or _summary(packet.have) or _vector(packet.base)


def _broker(node: str, address: str) -> str:
    """A name that a broker can have, at an address that can be dialled."""
    host, _, port = address.rpartition(":")
    dialled = host and host.isprintable() and " " not in host and port.isascii() and port.isdigit() and len(port) < 6
    proper = valid_node(node) and len(node) <= _LONGEST_NAME and len(address) <= _LONGEST_ADDRESS
    return "" if proper and dialled and int(port) < 1 << 16 else f"a broker {node[:40]!r} at {address[:40]!r}"


def _newcomer(packet: JoinRequest | LeaveRequest) -> str:
    return _broker(packet.node, packet.address)


def _directory(packet: Welcome) -> str:
    return _first(_broker(*known) for known in packet.directory.items()) or _changes(packet)


def _changes(packet: Welcome | DirectoryWave | RootElection | RootElectionReply) -> str:
    return _first(
        f"the change {change}"[:100]
        for change in packet.changes
        if _broker(change.node, change.address or _NOWHERE) or min(change.stamp) < 0
    )


def _first(objections: Iterable[str]) -> str:
    return next(filter(None, objections), "")


_LOOKS: dict[type[Packet], Callable[[Any], str]] = {
    Attach: _attach,
    Resume: _history,
    StableReport: lambda packet: _vector(packet.vector),
    Entries: _entries,
    Prepare: _totals,
    OpenTopic: _opening,
    TopicBuffer: _opening,
    TotalAck: lambda packet: _members(packet.covered),
    MemberReport: lambda packet: _members(packet.members),
    StableVote: lambda packet: _members(packet.members) or _vector(packet.vector or {}),
    BaseUpdate: lambda packet: _vector(packet.base),
    Held: lambda packet: _summary(packet.summary),
    Keep: lambda packet: _topic(packet.topic),
    AttachRequest: _of_one,
    AttachGranted: _of_one,
    AttachDenied: _of_one,
    MemberGone: _of_one_or_all,
    RosterUpdate: _of_one_or_all,
    RosterSync: _roster,
    Absent: _ages,
    RootElectionReply: lambda packet: _roster(packet) or _changes(packet),
    RootElection: _changes,
    DirectoryWave: _changes,
    Welcome: _directory,
    JoinRequest: _newcomer,
    LeaveRequest: _newcomer,
}

"""The log of a group: what a majority has stays, whoever leads; wrong suspicions and lost packets cost time only."""

from __future__ import annotations

from collections import deque

import pytest

from ordercast.core.effects import EffectLog, Send
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.wire import Codec
from ordercast.protocols.replicated.log import LOG_PACKETS, Append, LogEntry, Prepare, Promise, ReplicaLog, Stale

A, B, C = map(NodeId, "abc")


def entry(number: int, body: bytes = b"x") -> LogEntry:
    return LogEntry(NodeId("client"), number, body)


LONG = bytes(20_000)
"""Two entries of this length are too much for one packet."""


class Group:
    """Three replicas, driven by hand."""

    def __init__(self) -> None:
        self.logs = {name: ReplicaLog(name, (A, B, C)) for name in (A, B, C)}
        self.links: dict[tuple[NodeId, NodeId], deque[Packet]] = {}
        self.applied: dict[NodeId, list[int]] = {name: [] for name in self.logs}

    def propose(self, leader: NodeId, *numbers: int, body: bytes = b"x") -> None:
        for number in numbers:
            self.logs[leader].propose(entry(number, body))
        self._after(leader, EffectLog())

    def suspect(self, by: NodeId, peer: NodeId) -> None:
        out = EffectLog()
        self.logs[by].on_suspect(peer, out)
        self._after(by, out)

    def trust(self, by: NodeId, peer: NodeId) -> None:
        out = EffectLog()
        self.logs[by].on_trust(peer, out)
        self._after(by, out)

    def retry(self, name: NodeId) -> None:
        out = EffectLog()
        self.logs[name].retry(out)
        self._after(name, out)

    def carry(self, sender: NodeId, receiver: NodeId) -> None:
        out = EffectLog()
        self.logs[receiver].on_packet(sender, self.links[sender, receiver].popleft(), out)
        self._after(receiver, out)

    def lose(self, sender: NodeId, receiver: NodeId) -> None:
        self.links.get((sender, receiver), deque()).clear()

    def crash(self, name: NodeId) -> None:
        del self.logs[name]
        for (_, receiver), link in self.links.items():
            if receiver == name:
                link.clear()

    def drain(self) -> None:
        while busy := [pair for pair, link in sorted(self.links.items()) if link]:
            if busy[0][1] in self.logs:
                self.carry(*busy[0])
            else:
                self.lose(*busy[0])

    def _after(self, name: NodeId, out: EffectLog) -> None:
        log = self.logs[name]
        self.applied[name] += [taken.number for taken in log.take_committed()]
        log.flush(out)
        for effect in out.effects:
            assert isinstance(effect, Send)
            self.links.setdefault((name, effect.peer), deque()).append(effect.packet)


def test_nothing_is_applied_before_a_majority_has_it() -> None:
    group = Group()
    group.propose(A, 1)
    assert group.applied[A] == []
    group.carry(A, B)
    group.carry(B, A)
    assert group.applied[A] == [1]
    assert group.applied[C] == []
    group.drain()
    assert group.applied == {A: [1], B: [1], C: [1]}


def test_a_new_leader_keeps_what_the_old_one_had_committed() -> None:
    group = Group()
    group.propose(A, 1)
    group.carry(A, C)
    group.carry(C, A)
    assert group.applied[A] == [1]
    group.lose(A, B)
    group.crash(A)
    group.suspect(C, A)
    group.suspect(B, A)
    group.drain()
    assert group.logs[B].leading
    assert group.applied[B] == group.applied[C] == [1]
    group.propose(B, 2)
    group.drain()
    assert group.applied[B] == group.applied[C] == [1, 2]


def test_what_only_a_deposed_leader_has_gives_way() -> None:
    group = Group()
    group.propose(A, 7)
    group.lose(A, B)
    group.lose(A, C)
    group.suspect(B, A)
    group.drain()
    assert group.logs[B].leading
    group.propose(B, 1)
    group.drain()
    assert group.applied == {A: [], B: [1], C: [1]}
    group.trust(B, A)
    group.drain()
    assert group.applied == {A: [1], B: [1], C: [1]}
    assert (group.logs[A].leader, group.logs[A].leading) == (B, False)


def test_a_leader_that_missed_its_deposition_learns_it_from_the_first_refusal() -> None:
    group = Group()
    group.suspect(B, A)
    group.drain()
    old = ReplicaLog(A, (A, B, C))
    out = EffectLog()
    old.on_packet(C, Stale(1), out)
    assert not old.leading
    with pytest.raises(InvariantError, match="does not lead"):
        old.propose(entry(1))


def test_a_replica_that_waits_behind_a_dead_leader_wakes_the_next() -> None:
    group = Group()
    group.logs[C].on_packet(B, Prepare(1, 0), EffectLog())
    group.crash(B)
    group.suspect(A, B)
    group.suspect(C, B)
    group.drain()
    assert group.logs[C].leading
    assert group.logs[A].leader == C


def test_lost_packets_are_asked_for_again() -> None:
    group = Group()
    group.propose(A, 1, 2)
    group.lose(A, B)
    group.lose(A, C)
    assert group.logs[A].is_waiting()
    while group.logs[A].is_waiting():
        group.retry(A)
        group.drain()
    assert group.applied == {A: [1, 2], B: [1, 2], C: [1, 2]}


def test_a_lost_promise_is_asked_for_again() -> None:
    group = Group()
    group.crash(A)
    group.suspect(B, A)
    group.lose(B, C)
    assert group.logs[B].is_waiting()
    group.retry(B)
    group.drain()
    assert group.logs[B].leading
    assert not group.logs[B].is_waiting()


def test_what_everybody_has_is_dropped() -> None:
    group = Group()
    for number in range(1, 20):
        group.propose(A, number)
        group.drain()
    assert all(len(log.entries) <= 2 for log in group.logs.values())
    assert all(log.length == 19 for log in group.logs.values())


def test_nothing_is_dropped_while_a_replica_lacks_it() -> None:
    group = Group()
    group.suspect(A, C)
    group.suspect(B, C)
    for number in range(1, 6):
        group.propose(A, number)
        group.drain()
    assert len(group.logs[A].entries) == 5
    group.trust(A, C)
    group.drain()
    assert group.applied[C] == [1, 2, 3, 4, 5]


def test_peers_that_have_no_say_are_refused() -> None:
    log = ReplicaLog(A, (A, B, C))
    for peer, packet, problem in [
        (NodeId("z"), Stale(3), "z: is no replica of the group of a"),
        (C, Append(1, 0, (), 0, 0), "c: leads view 1, which is not its own"),
        (B, Packet(), "b: sent a Packet, which is not part of the log"),
    ]:
        with pytest.raises(PeerError, match=problem):
            log.on_packet(peer, packet, EffectLog())


def test_a_promise_of_another_view_counts_for_nothing() -> None:
    group = Group()
    group.suspect(B, A)
    group.logs[B].on_packet(C, Promise(4, 0, 0, (), 0, 0), EffectLog())
    assert not group.logs[B].leading


def test_a_backlog_of_any_length_travels_in_packets_of_bounded_length() -> None:
    group = Group()
    encode = Codec(LOG_PACKETS).encode
    group.propose(A, *range(1, 2_001), body=bytes(100))
    appends = group.links[A, C]
    assert len(appends) > 1
    assert max(len(encode(packet)) for packet in appends) <= 1 << 15
    group.drain()
    assert group.applied == {name: list(range(1, 2_001)) for name in (A, B, C)}


def test_an_entry_longer_than_a_part_travels_alone() -> None:
    group = Group()
    group.propose(A, 1, 2, 3, body=bytes(100_000))
    assert [len(packet.entries) for packet in group.links[A, B] if isinstance(packet, Append)] == [1, 1, 1]
    group.drain()
    assert group.applied == {A: [1, 2, 3], B: [1, 2, 3], C: [1, 2, 3]}


def test_a_part_of_a_backlog_that_is_lost_is_sent_again() -> None:
    group = Group()
    group.propose(A, 1, 2, 3, body=LONG)
    del group.links[A, B][1]
    del group.links[A, C][0]
    while group.logs[A].is_waiting():
        group.drain()
        group.retry(A)
    assert group.applied == {A: [1, 2, 3], B: [1, 2, 3], C: [1, 2, 3]}


def test_one_lost_part_has_a_backlog_sent_again_once() -> None:
    group = Group()
    group.propose(A, *range(1, 11), body=LONG)
    parts = len(group.links[A, B])
    group.links[A, B].popleft()
    while group.links[A, B]:
        group.carry(A, B)
    while group.links[B, A]:
        group.carry(B, A)
    assert len(group.links[A, B]) == parts
    group.drain()
    assert group.applied[B] == list(range(1, 11))


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_a_leader_begins_only_with_all_parts_of_a_promise(lost: int | None) -> None:
    group = Group()
    group.propose(A, 1, 2, 3, body=LONG)
    for _ in range(3):
        group.carry(A, C)
        group.carry(C, A)
    assert group.applied[A] == [1, 2, 3]
    group.lose(A, B)
    group.crash(A)
    group.suspect(C, A)
    group.lose(C, B)
    group.suspect(B, A)
    group.carry(B, C)
    assert len(group.links[C, B]) == 3
    if lost is not None:
        del group.links[C, B][lost]
        group.drain()
        assert not group.logs[B].leading
        group.retry(B)
    group.drain()
    assert group.logs[B].leading
    assert group.applied[B] == group.applied[C] == [1, 2, 3]


def test_a_leader_shows_even_an_empty_log_until_every_replica_has_seen_it() -> None:
    """One short wrong suspicion and one lost Append, while there is nothing in the log."""
    group = Group()
    group.suspect(B, A)
    group.carry(B, C)
    group.carry(C, B)
    assert group.logs[B].leading
    group.lose(B, C)
    group.trust(B, A)
    group.drain()
    assert group.logs[C].leader is None
    assert group.logs[B].is_waiting()
    group.retry(B)
    group.drain()
    assert {log.leader for log in group.logs.values()} == {B}
    assert not any(log.is_waiting() for log in group.logs.values())


def test_a_replica_between_two_views_asks_the_one_who_is_to_lead() -> None:
    group = Group()
    group.suspect(B, A)
    group.carry(B, C)
    group.carry(C, B)
    group.lose(B, C)
    group.retry(C)
    group.drain()
    assert group.logs[C].leader == B


@pytest.mark.parametrize("applied", [0, 3])
def test_a_late_copy_of_a_question_is_not_held_against_the_leader(applied: int) -> None:
    """A Prepare that comes twice, or after what it led to: its sender leads, and everybody may have dropped entries."""
    group = Group()
    group.suspect(B, A)
    late = group.links[B, C][0]
    group.trust(B, A)
    group.drain()
    for number in range(1, applied + 1):
        group.propose(B, number)
        group.drain()
    out = EffectLog()
    group.logs[C].on_packet(B, late, out)
    assert not out.effects
    assert group.logs[C].leader == B


def test_a_leader_that_asks_for_what_it_said_to_have_is_refused() -> None:
    group = Group()
    for number in range(1, 4):
        group.propose(A, number)
        group.drain()
    with pytest.raises(PeerError, match="b: wants entries from 0 on, which it said to have"):
        group.logs[C].on_packet(B, Prepare(1, 0), EffectLog())

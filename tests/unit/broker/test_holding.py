"""BRK-P2 and BRK-P5 with an index: what is admitted, in which order, is what a look at everything held would admit."""

from __future__ import annotations

import random

import pytest

from ordercast.broker.topics.holding import Queues
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import Entries
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.topic_packets import Prepare, TotalAck
from tests.support.topics_tree import T, Tree


class Plain:
    """The rules taken at their word: after every change, look at everything that is held, from the start."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.held: dict[str, list[Publication]] = {}
        self.pending: list[Publication] = []
        self.admitted: list[tuple[str, int]] = []

    def publish(self, entry: Publication) -> None:
        held = self.held.setdefault(entry.origin, [])
        if self._waits(entry, held):
            held.append(entry)
        else:
            self._admit(entry)

    def commit(self, entry: Publication) -> None:
        self.pending.remove(entry)
        for origin in sorted(self.held):
            still: list[Publication] = []
            for one in self.held[origin]:
                if self._waits(one, still):
                    still.append(one)
                else:
                    self._admit(one)
            self.held[origin] = still

    def _waits(self, entry: Publication, ahead: list[Publication]) -> bool:
        if any(self.scope == "session" or set(one.keys) & set(entry.keys) for one in ahead):
            return True
        if entry.guarantee is Guarantee.TOTAL:
            return False
        return any(
            set(one.keys) & set(entry.keys) or (self.scope == "session" and one.origin == entry.origin)
            for one in self.pending
        )

    def _admit(self, entry: Publication) -> None:
        self.admitted.append((entry.origin, entry.number))
        if entry.guarantee is Guarantee.TOTAL:
            self.pending.append(entry)


@pytest.mark.parametrize("scope", ["session", "key"])
@pytest.mark.parametrize("seed", range(15))
def test_the_index_admits_what_a_look_at_everything_would(scope: str, seed: int) -> None:
    dice = random.Random(f"{scope} {seed}")
    tree = Tree({"b1": "b0"}, order_scope=scope)
    edge, origins = tree.brokers["b1"], ["x", "y", "z"]
    for origin in origins:
        tree.member(origin, "b1")
    node, plain, numbers = edge.nodes[T], Plain(scope), dict.fromkeys(origins, 0)
    tree.log.clear()
    tree.freeze("b1", "b0")
    for _ in range(120):
        if plain.pending and dice.random() < 0.4:
            committed = dice.choice(plain.pending)
            plain.commit(committed)
            node.have.add(committed.origin, committed.number)
            node.remove_pending((committed.origin, committed.number))
            node.append([committed])
            edge.ordering.release(node)
        else:
            origin = dice.choice(origins)
            numbers[origin] += 1
            keys = tuple(dice.sample("abcd", dice.choice((1, 1, 2))))
            guarantee = dice.choice((Guarantee.TOTAL, Guarantee.CAUSAL, Guarantee.EVENTUAL))
            entry = Publication(Origin(origin), numbers[origin], T, b"", guarantee, keys)
            plain.publish(entry)
            tree.clients[origin].say(Entries(T, (entry,)))
            tree.carry(origin, "b1")
        held = {(entry.origin, entry.number) for queue in plain.held.values() for entry in queue}
        assert {(origin, number) for origin, queue in node.hold.of.items() for number in queue} == held
        assert sorted(node.pending.entries) == sorted((entry.origin, entry.number) for entry in plain.pending)

    up = [packet for _, packet in tree.queues["b1", "b0"] if isinstance(packet, Entries | Prepare)]
    assert [(entry.origin, entry.number) for packet in up for entry in packet.entries] == plain.admitted


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_queues_know_the_first_whoever_leaves_out_of_turn_or_comes_back(seed: int, *, by_key: bool) -> None:
    """Against a look at all that are there."""
    dice = random.Random(f"{by_key} {seed}")
    queues, there = Queues(by_key=by_key), list[Publication]()
    everybody = [
        Publication(Origin(origin), number, T, b"", keys=tuple(dice.sample("abc", dice.choice((1, 2)))))
        for origin in "xy"
        for number in range(1, 8)
    ]

    def is_first(entry: Publication, key: str) -> bool:
        rivals = [one for one in there if one.origin == entry.origin and (not by_key or key in one.keys)]
        return min(one.number for one in rivals) == entry.number

    for _ in range(150):
        entry = dice.choice(everybody)
        if entry not in there:
            queues.add(entry)
            there.append(entry)
        else:
            was_first = [key for key in entry.keys if is_first(entry, key)]
            there.remove(entry)
            left = [one for one in there if one.origin == entry.origin]
            lines = [[one.number for one in left if not by_key or key in one.keys] for key in was_first]
            following = {(entry.origin, min(line)) for line in lines if line}
            assert set(queues.remove(entry)) == following
        same = Queues(by_key=by_key)
        for one in there:
            assert queues.first(one) == all(is_first(one, key) for key in one.keys)
            same.add(one)
        assert queues == same


def test_a_publication_that_came_another_way_sets_free_what_stood_behind_it() -> None:
    """BRK-P5: x2 shares a key with x1 and one with x3; once it is known, x3 has nobody before it."""
    tree = Tree({"b1": "b0"}, order_scope="key")
    tree.member("x", "b1")
    y = tree.member("y", "b0")
    tree.freeze("b1", "b0")
    y.publish("a", guarantee="total")
    tree.carry("y", "b0")
    tree.carry("b0", "b1")
    node = tree.brokers["b1"].nodes[T]
    assert "a" in node.pending.locks
    entries = [
        Publication(Origin("x"), i + 1, T, b"", Guarantee.CAUSAL, keys) for i, keys in enumerate(("a", "ab", "b"))
    ]
    tree.clients["x"].say(Entries(T, tuple(entries)))
    tree.carry("x", "b1")
    assert list(node.hold.of[Origin("x")]) == [1, 2, 3]
    link = tree.overlays["b1"].parent
    assert link is not None
    tree.brokers["b1"].receive(link, Entries(T, (entries[1],)))

    assert list(node.hold.of[Origin("x")]) == [1]


def test_no_number_of_pending_totals_makes_a_packet_too_large() -> None:
    tree = Tree({"b1": "b0"})
    x = tree.member("x", "b1")
    for start in range(0, 5000, 500):
        numbers = range(start + 1, start + 501)
        x.say(Entries(T, tuple(Publication(Origin("x"), n, T, b"", Guarantee.TOTAL, (f"k{n}",)) for n in numbers)))
    node = tree.brokers["b1"].nodes[T]
    node.up_live = False  # Nothing is reported before all are pending.
    tree.carry("x", "b1")
    assert len(node.pending.entries) == 5000
    node.up_live = True
    tree.brokers["b1"].touch(node)
    node.recheck_all = True
    tree.brokers["b1"].turn_end()

    acks = tree.sent(TotalAck, "b1")
    assert sum(len(packet.ids) for packet in acks) == 5000
    assert max(len(packet.ids) for packet in acks) <= 1000

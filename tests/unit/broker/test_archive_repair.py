"""Two copies that were away one after the other have what either of them has (ARC-5), and give up the rest alone."""

from __future__ import annotations

import pytest

from ordercast.broker.archive.kept import NO_TERM
from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.archive.ports import HOLE, LOST, WHOLE
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.place import BrokerPlace, NoBrokerLedger
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.core.process import Peer
from ordercast.pubsub.client_packets import OpenHistory, ReadHistory
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from tests.support.hand_wires import HandWires
from tests.support.topics_tree import HandOverlay

T = Topic("kept.t")
ANN = Origin("ann~1")
DIRECTORY = {NodeId("b0"): "h:0", NodeId("b1"): "h:1"}


class Copy:
    """One of two brokers that keep the topic."""

    def __init__(self, name: str) -> None:
        self.wires = HandWires()
        overlay = HandOverlay(NodeId(name), dict(DIRECTORY))
        overlay.is_root = True
        place = BrokerPlace(NodeId(name), DIRECTORY[NodeId(name)], overlay.directory, keep=(KeepRule("kept.>"),))
        self.topics = Topics(BrokerSettings(), self.wires, overlay, NoBrokerLedger(), None, place, MemoryFiles(int))

    @property
    def archive(self) -> TopicArchive:
        return self.topics.kept.of(T)

    def keep(self, *numbers: int) -> None:
        self.archive.append([Publication(ANN, number, T, b"x", Guarantee.CAUSAL, ("k",)) for number in numbers])

    def states(self) -> list[tuple[int, str]]:
        return [(info.covered[ANN], info.state) for info in self.archive.manifest.segments]


def mend(one: Copy, other: Copy) -> None:
    """Let the one ask the other until it has no hole any more."""
    one.topics.repair.look()
    while one.topics.repair.hole is not None:
        asked = [packet for _, packet in one.wires.sent if isinstance(packet, OpenHistory | ReadHistory)]
        one.wires.sent.clear()
        assert asked, "it waits for nothing"
        other.topics.serving.answer(1, Peer("broker", "asking"), asked[-1])
        other.topics.serving.turn_end()
        _, reply = other.wires.sent.pop()
        one.topics.repair.receive(reply)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_copy_takes_the_part_of_a_hole_that_another_one_has(given_up: bool) -> None:
    one, other = Copy("b0"), Copy("b1")
    one.keep(1, 2, 3)
    one.archive.jump({ANN: 9})
    other.keep(1, 2, 3, 4, 5, 6)
    other.archive.jump({ANN: 9})
    if given_up:
        mend(other, one)
        assert other.states() == [(6, WHOLE), (9, LOST)]

    mend(one, other)

    assert one.states() == [(3, WHOLE), (6, WHOLE), (9, LOST)]
    assert one.archive.status()["messages"] == 6


def test_a_copy_takes_the_end_of_a_hole_whose_beginning_another_one_lacks() -> None:
    one, other = Copy("b0"), Copy("b1")
    one.keep(1, 2, 3)
    one.archive.jump({ANN: 9})
    other.keep(1, 2, 3)
    other.archive.jump({ANN: 6})
    other.keep(7, 8, 9)

    mend(one, other)

    assert one.states() == [(3, WHOLE), (6, LOST), (9, WHOLE)]


def test_a_hole_is_not_given_up_while_another_copy_has_not_heard_of_it() -> None:
    """ARC-6: that copy was killed too, and has a part of it in its log."""
    one, other = Copy("b0"), Copy("b1")
    one.keep(1, 2, 3)
    one.archive.jump({ANN: 9})
    other.keep(1, 2, 3)

    mend(one, other)
    assert one.states() == [(3, WHOLE), (9, HOLE)]

    other.keep(4)
    other.archive.jump({ANN: 9})
    one.topics.repair.timer()
    mend(one, other)
    assert one.states() == [(3, WHOLE), (4, WHOLE), (9, LOST)]


def test_a_hole_of_which_another_copy_never_hears_is_given_up_in_the_end() -> None:
    """The topic has no member any more, so that copy takes no part in it: readers must not wait for ever."""
    one, other = Copy("b0"), Copy("b1")
    one.archive.jump({ANN: 9})
    one.keep(10)
    other.keep(1, 2, 3)

    tries = 0
    while one.archive.hole() is not None:
        tries += 1
        mend(one, other)
        one.topics.repair.timer()

    assert 5 < tries < 50
    assert one.states() == [(3, WHOLE), (9, LOST), (10, WHOLE)]


@pytest.mark.parametrize(("total", "first"), [(False, 5), (True, 3)])
def test_a_copy_keeps_what_its_log_had_when_it_was_killed_and_the_rest_is_a_hole(total: bool, first: int) -> None:
    """ARC-10: 4 and 5 were in its log, and became stable with 6 to 9 while it was away. Totals may have moved since."""
    copy = Copy("b0")
    copy.topics.tree.term = (7, NodeId("b0"))
    copy.keep(1, 2, 3)
    guarantee = Guarantee.TOTAL if total else Guarantee.CAUSAL
    copy.topics.kept.stash(T, [Publication(ANN, n, T, b"x", guarantee, ("k",)) for n in (4, 5)], NO_TERM)

    copy.topics.kept.release(TopicNode(T), {ANN: 9})

    assert copy.states() == [(first, WHOLE), (9, HOLE)]
    assert copy.archive.status()["messages"] == first

"""Readers at the far end of a history have what live traffic leaves them (ARC-7): one piece a turn, for all of them."""

from __future__ import annotations

from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.archive.serving import Serving
from ordercast.broker.place import BrokerPlace, NoBrokerLedger
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.client_packets import HistoryOpened, KeptRecords, OpenHistory, ReadHistory
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from tests.support.hand_wires import HandWires
from tests.support.topics_tree import HandOverlay

T = Topic("kept.t")
READERS = range(1, 21)
BIG = bytes(100_000)


class Copy:
    """A broker with a long history, and many readers that always want more."""

    def __init__(self) -> None:
        self.wires = HandWires()
        node = NodeId("b0")
        overlay = HandOverlay(node, {node: "h:0"})
        place = BrokerPlace(node, "h:0", overlay.directory, keep=(KeepRule("kept.>"),))
        files = MemoryFiles(int)
        topics = Topics(BrokerSettings(), self.wires, overlay, NoBrokerLedger(), None, place, files)
        for number in range(1, 101):
            entry = Publication(Origin("ann~1"), number, T, BIG, Guarantee.CAUSAL, ("k",))
            topics.kept.of(T).append([entry])
        self.serving: Serving = topics.serving

    def say(self, reader: Connection, packet: OpenHistory | ReadHistory) -> None:
        self.serving.answer(reader, Peer("broker", f"r{reader}"), packet)

    def turn(self) -> list[Connection]:
        """The turn ends, as after every packet of live traffic; who was sent a piece."""
        before = len(self.wires.sent)
        self.serving.turn_end()
        return [reader for reader, packet in self.wires.sent[before:] if isinstance(packet, KeptRecords)]


def test_a_turn_ends_with_one_piece_however_many_readers_want_one_and_each_has_its_turn() -> None:
    copy = Copy()
    for reader in READERS:
        copy.say(reader, OpenHistory(T, reader, "earliest", {}))
    assert copy.turn() == []
    opened = {packet.read: packet.place for _, packet in copy.wires.sent if isinstance(packet, HistoryOpened)}
    for reader in READERS:
        copy.say(reader, ReadHistory(T, reader, opened[reader]))

    served = []
    for _ in READERS:
        turn = copy.turn()
        assert len(turn) == 1
        served += turn
        copy.say(turn[0], ReadHistory(T, turn[0], opened[turn[0]]))  # It asks again at once, before the others had any.

    assert served == list(READERS)
    assert ("topics", "serve") in copy.wires.timers, "without live traffic the next turn comes by itself"


def test_a_reader_that_goes_away_is_owed_nothing() -> None:
    copy = Copy()
    copy.say(1, OpenHistory(T, 1, "earliest", {}))
    copy.turn()
    place = next(packet.place for _, packet in copy.wires.sent if isinstance(packet, HistoryOpened))
    copy.say(1, ReadHistory(T, 1, place))
    copy.serving.closed(1)

    assert copy.turn() == []


def test_whoever_asks_again_before_it_is_answered_is_answered_once() -> None:
    copy = Copy()
    for read in range(1000):
        copy.say(1, OpenHistory(T, read, "earliest", {}))
    copy.turn()
    copy.turn()

    assert [packet.read for _, packet in copy.wires.sent if isinstance(packet, HistoryOpened)] == [999]


def test_a_turn_looks_for_a_time_once_however_many_readers_name_one() -> None:
    """The segment of that time is read from its beginning."""
    copy = Copy()
    for reader in READERS:
        copy.say(reader, OpenHistory(T, reader, "time", {}, 1))
    copy.turn()

    assert [reader for reader, _ in copy.wires.sent] == [1]

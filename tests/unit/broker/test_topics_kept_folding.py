"""Sessions of a kept topic fold, once all its archives have everything of them (BRK-F4, ARC-12, ARC-13)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.broker.archive.ports import DOUBT
from ordercast.broker.archive.segment_map import Unavailable
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.sessions.folding import Folding
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import Origin
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import WANTED, Granted
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.cuts import CutSet
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import FoldRound
from tests.support.topics_tree import Somebody, T, Tree, TreeWires
from tests.unit.broker.test_topics_folding import CHAIN, FOLD_MS, closed, end, remembered, session, settle

ALL_KEEP = (KeepRule(">", copies=3),)


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to fill a hole dials in vain."""
    monkeypatch.setattr(TreeWires, "open", _dial)


def _dial(wires: TreeWires, address: str) -> Connection:
    wires.tree.connections += 1
    return wires.tree.connections


def kept_tree(kind: type[Tree] = Tree) -> Tree:
    settings: dict[str, Any] = {"fold_ms": FOLD_MS, "retry_ms": 20, "stability_ms": 10, "member_timeout_ms": 60_000}
    return kind(CHAIN, keep=ALL_KEEP, order_scope="session", **settings)


def archive_of(tree: Tree, broker: str) -> TopicArchive:
    return tree.brokers[broker].kept.of(T)


def published(tree: Tree, count: int, name: str = "s") -> Somebody:
    one = session(tree, name, "b1")
    for _ in range(count):
        one.publish()
    tree.run()
    return one


def test_sessions_of_a_kept_topic_fold_and_no_archive_counts_them() -> None:
    tree = kept_tree()
    reader = tree.member("r", "b2")
    for i in range(20):
        end(tree, published(tree, 2, f"s{i}"))
        settle(tree, reader)

    assert len(reader.delivered) == 40
    for broker in ("b0", "b1", "b2"):
        assert remembered(tree, broker) == set()
        assert closed(tree, broker) == {"0.b1": (1, 21)}
        assert archive_of(tree, broker).end == {"~1.0.b1": 20}
        assert [info.state for info in archive_of(tree, broker).manifest.segments if info.state != "whole"] == []
        assert T in tree.brokers[broker].kept.aged


def test_a_client_that_wants_to_receive_after_it_has_asked_to_publish_is_told_what_is_closed() -> None:
    """Its Subscribe said that it only publishes, its Resume that it receives."""
    tree = kept_tree()
    end(tree, published(tree, 1))
    settle(tree)
    late = tree.client("late", "b1", ticket=WANTED)
    late.subscribe(receives=False)
    late.receives = True
    tree.run()
    assert late.closed.summary() == {"0.b1": (1, 2)}
    assert late.of(Granted)[-1].aged


def behind_by_one(tree: Tree) -> Origin:
    """A session has published three times and ended; the archive of b2 has two of them, and nobody has told it so."""
    reader = tree.member("r", "b2")
    one = published(tree, 3)
    tree.run()
    reader.report()
    tree.run()
    tree.pass_time(20)
    archive_of(tree, "b2").cut[one.origin] = 2
    end(tree, one)
    settle(tree, reader)
    return one.origin


def test_a_session_is_not_closed_while_an_archive_has_less_of_it_than_the_root_knows() -> None:
    tree = kept_tree()
    origin = behind_by_one(tree)
    assert closed(tree, "b0") == {}
    archive_of(tree, "b2").cut[origin] = 3
    tree.pass_time(8 * FOLD_MS)
    assert closed(tree, "b0") == {"0.b1": (1, 2)}


class _DoesNotCompare(Folding):
    def incomplete_here(self, running: FoldRound) -> set[Origin]:
        return set()


class _Careless(Tree):
    topics_type = type("Broken", (Topics,), {"folding_type": _DoesNotCompare})


def test_without_the_comparison_it_would_claim_what_it_lacks() -> None:
    tree = kept_tree(_Careless)
    origin = behind_by_one(tree)
    assert closed(tree, "b0") == {"0.b1": (1, 2)}
    assert CutSet(archive_of(tree, "b2").end).has(origin, 3)


def test_what_was_not_asked_about_in_two_rounds_is_not_closed() -> None:
    """The first round was about other topics: archives that are new do not know whether they were asked."""
    tree = kept_tree()
    reader = tree.member("r", "b2")
    end(tree, published(tree, 1))
    tree.run()
    reader.report()
    tree.run()
    before = tree.brokers["b0"].folding.rounds
    while not closed(tree, "b0"):
        tree.pass_time(5)
    assert tree.brokers["b0"].folding.rounds - before >= 2
    assert all(archive_of(tree, broker).manifest.sure for broker in ("b0", "b1", "b2"))


def folded_without_b2(tree: Tree) -> Vector:
    """Sessions are folded; then b2 comes back with an empty disk. Gives a position of the others."""
    reader = tree.member("r", "b1")
    for i in range(3):
        end(tree, published(tree, 2, f"s{i}"))
    settle(tree, reader)
    position = archive_of(tree, "b0").end
    assert position == {"~1.0.b1": 3}
    tree.crash("b2")
    tree.disks.pop("b2")
    tree.start("b2", life=1)
    tree.attach("b2", "b1")
    tree.run()
    return position


def test_a_copy_with_an_empty_disk_does_not_take_an_empty_base_for_an_empty_history() -> None:
    tree = kept_tree()
    position = folded_without_b2(tree)
    archive = archive_of(tree, "b2")
    assert [info.state for info in archive.manifest.segments] == [DOUBT]
    with pytest.raises(Unavailable, match="behind"):
        archive.place({}, position)
    assert archive.place(position, position) is None


def test_a_copy_that_was_struck_off_doubts_what_was_folded_meanwhile() -> None:
    tree = kept_tree()
    reader = tree.member("r", "b1")
    end(tree, published(tree, 2))
    settle(tree, reader)
    archive = archive_of(tree, "b2")
    assert archive.manifest.sure
    tree.brokers["b2"].left_behind()
    assert not archive.manifest.sure
    archive.close(ClosedSessions({"0.b1": (1, 3)}))
    tree.brokers["b2"].left_behind()
    assert archive.manifest.segments[-1].state == DOUBT


def test_a_topic_that_is_kept_is_not_ended_while_a_copy_holds_it() -> None:
    """Its base is empty once all its sessions are folded: that is not nothing to know (BRK-S9)."""
    tree = kept_tree()
    end(tree, published(tree, 2))
    settle(tree)
    lives = {broker: tree.brokers[broker].nodes[T].life for broker in ("b1", "b2")}
    tree.pass_time(20 * FOLD_MS)
    assert {broker: tree.brokers[broker].nodes[T].life for broker in ("b1", "b2")} == lives

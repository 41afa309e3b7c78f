"""Ended sessions fold (BRK-F1 to BRK-F8), and whoever brings back something of them finds that it is known.

Each schedule that has broken another rule for folding is here by hand (decision 14).
"""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.broker.place import SavedBroker
from ordercast.broker.topics.sessions.folding import Folding
from ordercast.broker.topics.topics import Topics
from ordercast.core.ids import NodeId, Origin
from ordercast.pubsub.client_packets import FENCED, WANTED, Denied, Goodbye, Unsubscribe
from ordercast.pubsub.topic_packets import FoldAnswer, FoldRound
from tests.mutants.folding_mutants import NobodyIsAway, NobodyIsMissed
from tests.support.topics_tree import Somebody, T, Tree

FOLD_MS = 100.0
CHAIN = {"b1": "b0", "b2": "b1"}


def tree_of(parents: dict[str, str] | None = None, **settings: Any) -> Tree:
    more = {"fold_ms": FOLD_MS, "retry_ms": 20, "stability_ms": 10, "member_timeout_ms": 60_000, **settings}
    return Tree(CHAIN if parents is None else parents, **more)


def session(tree: Tree, name: str, at: str, *, number: int = 0) -> Somebody:
    """A short session that is a member and only publishes."""
    return tree.member(name, at, receives=False, ticket=WANTED, session=number)


def end(tree: Tree, one: Somebody) -> None:
    """In good order, as `ordercast pub` does."""
    one.say(Unsubscribe(T))
    one.say(Goodbye())
    tree.run()
    tree.hang_up(one.peer.name, gone=False)


def settle(tree: Tree, *readers: Somebody) -> None:
    """Everything becomes stable, and there is time for several rounds."""
    tree.run()
    for reader in readers:
        if reader.connection is not None:
            reader.report()
    tree.run()
    tree.pass_time(8 * FOLD_MS)


def remembered(tree: Tree, broker: str) -> set[str]:
    """The sessions with a ticket that a broker knows one by one."""
    topics = tree.brokers[broker]
    node = topics.nodes.get(T)
    known = {*topics.book.ended, *topics.settled, *topics.book.recorded_in(Origin(""))}
    known |= {*node.base, *node.have.low, *node.interest.get(1, ())} if node is not None else set()
    return {str(origin) for origin in known if "." in origin}


def closed(tree: Tree, broker: str) -> dict[str, tuple[int, ...]]:
    return tree.brokers[broker].book.closed.summary()


def cut_off(tree: Tree, broker: str, parent: str) -> None:
    """Both ends notice that the link is gone; both live on."""
    overlay = tree.overlays[broker]
    assert overlay.parent is not None
    theirs = tree.ends.pop((broker, overlay.parent))
    tree.ends.pop(theirs)
    mine = overlay.parent
    for pair in ((broker, parent), (parent, broker)):
        tree.queues.pop(pair, None)
    tree._lose(parent, theirs[1])
    tree._lose(broker, mine)


def strike_off(tree: Tree, broker: str) -> None:
    """BRK-J5: an operator says that it is dead for good."""
    del tree.directory[NodeId(broker)]


# What folding does


def test_a_hundred_sessions_that_ended_in_good_order_leave_one_interval() -> None:
    tree = tree_of()
    reader = tree.member("r", "b2")
    for i in range(100):
        one = session(tree, f"s{i}", "b1")
        one.publish()
        tree.run()
        end(tree, one)
    settle(tree, reader)

    assert len(reader.delivered) == 100
    for broker in ("b0", "b1", "b2"):
        assert remembered(tree, broker) == set()
        assert closed(tree, broker) == {"0.b1": (1, 101)}
        assert tree.brokers[broker].book.joined.get(T, {}).keys() == {"r"}
    assert reader.closed.summary() == {"0.b1": (1, 101)}


def test_a_session_that_is_still_there_stays_between_those_that_fold() -> None:
    tree = tree_of()
    reader = tree.member("r", "b2")
    sessions = [session(tree, f"s{i}", "b1") for i in range(3)]
    for one in sessions:
        one.publish()
    tree.run()
    end(tree, sessions[0])
    end(tree, sessions[2])
    settle(tree, reader)
    assert closed(tree, "b2") == {"0.b1": (1, 2, 3, 4)}

    sessions[1].publish()
    settle(tree, reader)
    assert reader.delivered[-1] == f"{sessions[1].origin}2"


def test_a_session_that_was_given_up_folds_too() -> None:
    """The fences of clients that went without a word."""
    tree = tree_of()
    reader = tree.member("r", "b2")
    one = session(tree, "s", "b1")
    one.publish()
    tree.run()
    tree.hang_up("s", gone=True)  # A broken connection means a dead process here.
    settle(tree, reader)
    assert closed(tree, "b0") == {"0.b1": (1, 2)}
    assert not tree.brokers["b0"].book.ended


def test_a_session_that_was_never_granted_anything_folds() -> None:
    tree = tree_of()
    tree.freeze("b1", "b0")
    one = tree.client("s", "b1", ticket=WANTED)
    one.subscribe()
    tree.run()
    tree.hang_up("s", gone=False)
    tree.thaw("b1", "b0")
    settle(tree)
    assert closed(tree, "b0") == {"0.b1": (1, 2)}


def test_a_closed_set_is_kept_over_a_restart() -> None:
    tree = tree_of()
    one = session(tree, "s", "b1")
    one.publish()
    end(tree, one)
    settle(tree)
    tree.crash("b2")
    tree.start("b2", life=1, saved=SavedBroker(closed={"0.b1": (1, 2)}))
    assert tree.brokers["b2"].book.fenced(one.origin)


def test_people_ask_for_a_publication_by_the_id_without_the_ticket() -> None:
    tree = tree_of()
    tree.member("r", "b2")
    one = session(tree, "s", "b1", number=7)
    publication = one.publish()
    tree.run()
    assert publication.id == "s~7/t#1"
    assert tree.brokers["b0"].explain(publication.id)["state"] == "logged"


# The seven schedules


def published_and_ended(tree: Tree, *, unheard_by: tuple[str, str] | None = None) -> tuple[Somebody, Somebody]:
    """A reader at b0 and an ended session whose one publication is stable, but not all have heard that it is."""
    reader = tree.member("r", "b0")
    tree.member("far", "b2")
    one = session(tree, "s", "b0")
    one.publish()
    tree.run()
    if unheard_by:
        tree.freeze(*unheard_by)
    end(tree, one)
    for somebody in ("r", "far"):
        tree.clients[somebody].report()
    return reader, one


def test_a_broker_that_was_cut_off_before_the_base_reached_it_brings_nothing_back() -> None:
    """First schedule: it has the entry in its log, and sends it as a difference when it is back."""
    tree = tree_of()
    reader, one = published_and_ended(tree, unheard_by=("b1", "b2"))
    tree.run()
    tree.pass_time(8 * FOLD_MS)
    assert tree.log_of("b2") == [f"{one.origin}1"]
    assert closed(tree, "b0") == {}, "b2 has not answered"

    cut_off(tree, "b2", "b1")
    tree.thaw("b1", "b2")
    tree.pass_time(8 * FOLD_MS)
    assert closed(tree, "b0") == {}, "b2 is away"

    tree.attach("b2", "b0")
    settle(tree, reader, tree.clients["far"])
    assert reader.delivered == [f"{one.origin}1"]
    assert closed(tree, "b2") == closed(tree, "b0") == {"0.b0": (1, 2)}
    assert tree.log_of("b2") == []


def test_a_broker_that_is_down_with_the_entry_on_its_disk_publishes_no_orphan() -> None:
    """Second schedule. Folding waits for it; once it is struck off, what it brings back is known all the same."""
    tree = tree_of()
    reader, one = published_and_ended(tree, unheard_by=("b1", "b2"))
    kept = tree.brokers["b2"].nodes[T].unstable()
    assert len(kept) == 1
    tree.crash("b2")
    tree.thaw("b1", "b2")
    settle(tree, reader)
    assert closed(tree, "b0") == {}

    strike_off(tree, "b2")
    tree.brokers["b0"].news.learn({}, {Origin("far"): 1 << 62})
    settle(tree, reader)
    assert closed(tree, "b0") == {"0.b0": (1, 2)}

    tree.directory[NodeId("b2")] = "b2"
    tree.start("b2", life=1, saved=SavedBroker(entries={T: kept}))
    tree.attach("b2", "b1")
    settle(tree, reader)
    assert reader.delivered == [f"{one.origin}1"]
    assert not tree.brokers["b2"].orphans.waiting
    assert tree.log_of("b0") == []


def test_a_member_that_is_away_with_it_in_its_history_resumes_and_nobody_gets_it_twice() -> None:
    """Third schedule: it *has* it, but has not heard that it is stable."""
    tree = tree_of({"b1": "b0", "b2": "b0"}, partitions="primary")
    reader, far = tree.member("r", "b0"), tree.member("far", "b2")
    one = session(tree, "s", "b0")
    one.publish()
    settle(tree, reader)
    far.report()
    tree.freeze("b2", "far")
    tree.run()
    end(tree, one)
    tree.hang_up("far", gone=True)
    tree.pass_time(8 * FOLD_MS)
    assert closed(tree, "b0") == {}, "a member is away"

    tree.thaw("b2", "far")
    tree.queues.pop(("b2", "far"), None)
    tree.move("far", "b1")
    far.subscribe()
    settle(tree, reader, far)
    assert closed(tree, "b0") == {"0.b0": (1, 2)}
    tree.hang_up("far", gone=True)
    tree.move("far", "b2")
    far.subscribe()  # With its history: this client forgets nothing of what it has delivered.
    settle(tree, reader, far)
    assert reader.delivered == far.delivered == [f"{one.origin}1"]
    assert remembered(tree, "b2") == set()


def test_a_broker_that_was_removed_alive_comes_back_with_its_log_and_clients() -> None:
    """Fourth schedule: only the set of closed sessions stands between its log and everybody."""
    tree = tree_of()
    reader, one = published_and_ended(tree, unheard_by=("b1", "b2"))
    tree.run()
    cut_off(tree, "b2", "b1")
    tree.thaw("b1", "b2")
    strike_off(tree, "b2")
    tree.brokers["b0"].news.learn({}, {Origin("far"): 1 << 62})  # Its client is given up.
    settle(tree, reader)
    assert closed(tree, "b0") == {"0.b0": (1, 2)}
    assert tree.log_of("b2") == [f"{one.origin}1"]

    tree.directory[NodeId("b2")] = "b2"
    tree.attach("b2", "b1")
    settle(tree, reader)
    assert reader.delivered == [f"{one.origin}1"]
    assert tree.log_of("b2") == tree.log_of("b0") == []


@pytest.mark.parametrize("edge", ["b0", "b2"])
def test_the_session_itself_comes_back_and_is_told_that_it_is_over(edge: str) -> None:
    """Fifth schedule: with a data directory, and an outbox whose acknowledgements it has missed."""
    tree = tree_of()
    reader, one = published_and_ended(tree)
    settle(tree, reader, tree.clients["far"])
    assert closed(tree, edge) == {"0.b0": (1, 2)}

    tree.move("s", edge)
    one.subscribe(receives=False)
    one.publish(number=1)
    settle(tree, reader)
    assert one.of(Denied) == [Denied(T, FENCED)]
    assert reader.delivered == [f"{one.origin}1"]


def test_a_newer_session_of_the_same_name_closes_none_and_what_the_older_had_arrives() -> None:
    """Sixth schedule."""
    tree = tree_of()
    reader = tree.member("r", "b0")
    older = session(tree, "s", "b1", number=1)
    tree.freeze("b1", "b0")
    older.publish()
    tree.run()
    end(tree, older)
    cut_off(tree, "b1", "b0")
    tree.thaw("b1", "b0")
    newer = session(tree, "s", "b0", number=2)
    newer.publish()
    end(tree, newer)
    settle(tree, reader)
    assert reader.delivered == [f"{newer.origin}1"]

    tree.attach("b1", "b0")
    settle(tree, reader)
    settle(tree, reader)
    assert reader.delivered == [f"{newer.origin}1", f"{older.origin}1"]
    assert closed(tree, "b0") == {"0.b0": (1, 2), "0.b1": (1, 2)}


@pytest.mark.parametrize("numbers", [(1, 10**15), (10**15, 1), (0, 0)])
def test_what_the_clock_of_a_client_says_closes_nobody(numbers: tuple[int, int]) -> None:
    """Seventh schedule: a client whose clock is a year ahead, or stands still. No clock is asked."""
    tree = tree_of()
    reader = tree.member("r", "b2")
    first = session(tree, "ann", "b1", number=numbers[0])
    first.publish()
    end(tree, first)
    settle(tree, reader)
    second = session(tree, "bob", "b1", number=numbers[1])
    second.publish()
    settle(tree, reader)
    assert [name.partition("~")[0] for name in reader.delivered] == ["ann", "bob"]
    assert closed(tree, "b1") == {"0.b1": (1, 2)}


# What the round is for


def test_what_only_a_broker_that_is_away_has_is_not_closed_away() -> None:
    """It was called safe; its session is over; the broker comes back and everybody gets it."""
    tree = tree_of()
    reader = tree.member("r", "b0")
    one = session(tree, "s", "b2")
    tree.freeze("b2", "b1")
    one.publish()
    tree.run()
    cut_off(tree, "b2", "b1")
    tree.thaw("b2", "b1")
    tree.brokers["b0"].news.learn({}, {one.origin: 1 << 62})
    settle(tree, reader)
    assert closed(tree, "b0") == {}

    tree.attach("b2", "b1")
    settle(tree, reader)
    settle(tree, reader)
    assert reader.delivered == [f"{one.origin}1"]
    assert closed(tree, "b0") == {"0.b2": (1, 2)}


def passed_on_in_the_middle_of_a_round(tree: Tree) -> tuple[Somebody, Somebody]:
    """A broker hands what it alone had to one that has answered the round, dies, and answers in a new life."""
    reader = tree.member("r", "b0")
    end(tree, session(tree, "before", "b0"))
    settle(tree, reader)
    near = tree.member("near", "b2", receives=False)
    one = session(tree, "s", "b2")
    tree.freeze("b2", "b1")
    one.publish()
    tree.run()
    cut_off(tree, "b2", "b1")
    tree.thaw("b2", "b1")
    tree.freeze("b0", "b3")
    tree.brokers["b0"].news.learn({}, {one.origin: 1 << 62})
    tree.pass_time(2 * FOLD_MS)  # The round begins: b1 answers it, b3 has not heard of it.
    tree.freeze("b1", "b0")
    tree.attach("b2", "b1")
    tree.run()
    assert tree.log_of("b1") == [f"{one.origin}1"]
    tree.crash("b2")
    tree.start("b2", life=1)
    tree.attach("b2", "b3")
    tree.move("near", "b3")
    near.subscribe(receives=False)
    tree.run()
    tree.thaw("b0", "b3")
    tree.run()
    tree.thaw("b1", "b0")
    settle(tree, reader)
    settle(tree, reader)
    return reader, one


MOVING = {"b1": "b0", "b2": "b1", "b3": "b0"}


def test_nothing_is_closed_by_a_round_in_which_a_broker_has_moved() -> None:
    """BRK-F5: what it had sent to where it was may be on its way, though it has nothing any more."""
    tree = tree_of(MOVING)
    reader, one = passed_on_in_the_middle_of_a_round(tree)
    assert reader.delivered == [f"{one.origin}1"]
    assert closed(tree, "b0") == {"0.b0": (1, 2), "0.b2": (1, 2)}


def test_a_round_that_does_not_come_back_is_asked_again() -> None:
    tree = tree_of(request_ms=100, lease_ms=100)
    one = session(tree, "s", "b1")
    end(tree, one)
    tree.freeze("b2", "b1")
    tree.pass_time(FOLD_MS * 5)
    tree.queues.pop(("b2", "b1"), None)  # Its answers are lost.
    tree.thaw("b2", "b1")
    tree.pass_time(FOLD_MS * 10)
    assert closed(tree, "b0") == {"0.b1": (1, 2)}
    assert len(tree.sent(FoldRound, "b0")) >= 3
    assert tree.sent(FoldAnswer, "b2")


# Each guard is needed


class OneRound(Folding):
    """One round in which everybody has answered is enough."""

    def stood_still(self) -> bool:
        return self.all_answered()


def tree_without(folding: type[Folding], parents: dict[str, str], **settings: Any) -> Tree:
    topics = type("Broken", (Topics,), {"folding_type": folding})
    kind: type[Tree] = type("BrokenTree", (Tree,), {"topics_type": topics})
    return kind(parents, fold_ms=FOLD_MS, retry_ms=20, stability_ms=10, member_timeout_ms=60_000, **settings)


def test_without_the_wait_for_everybody_a_safe_publication_is_lost() -> None:
    tree = tree_without(NobodyIsMissed, CHAIN)
    reader = tree.member("r", "b0")
    one = session(tree, "s", "b2")
    tree.freeze("b2", "b1")
    one.publish()
    tree.run()
    cut_off(tree, "b2", "b1")
    tree.thaw("b2", "b1")
    tree.brokers["b0"].news.learn({}, {one.origin: 1 << 62})
    settle(tree, reader)
    tree.attach("b2", "b1")
    settle(tree, reader)
    assert reader.delivered == []


def test_without_a_second_round_what_is_on_its_way_is_lost() -> None:
    reader, _ = passed_on_in_the_middle_of_a_round(tree_without(OneRound, MOVING))
    assert reader.delivered == []


def alone_with_it(tree: Tree) -> tuple[Somebody, Somebody, Somebody]:
    """A member has delivered what nobody else has: its edge died, and has come back without its memory."""
    reader, far = tree.member("r", "b0"), tree.member("far", "b2")
    one = session(tree, "s", "b2")
    tree.freeze("b2", "b0")
    one.publish()
    tree.run()
    assert far.delivered == [f"{one.origin}1"]
    tree.crash("b2")
    tree.thaw("b2", "b0")
    tree.start("b2", life=1)
    tree.attach("b2", "b0")
    tree.brokers["b0"].news.learn({}, {one.origin: 1 << 62})
    settle(tree, reader)
    tree.move("far", "b1")
    far.subscribe()
    settle(tree, reader, far)
    settle(tree, reader, far)
    return reader, far, one


FLAT = {"b1": "b0", "b2": "b0"}


def test_what_a_member_that_is_away_alone_has_delivered_is_not_closed_away() -> None:
    """BRK-F6: all brokers have answered that they hold nothing, and it is true."""
    tree = tree_of(FLAT, partitions="primary")
    reader, far, one = alone_with_it(tree)
    assert reader.delivered == far.delivered == [f"{one.origin}1"]
    assert closed(tree, "b0") == {"0.b2": (1, 2)}


def test_without_the_look_at_members_somebody_has_it_and_the_others_never_get_it() -> None:
    reader, far, _ = alone_with_it(tree_without(NobodyIsAway, FLAT, partitions="primary"))
    assert len(far.delivered) == 1
    assert reader.delivered == []

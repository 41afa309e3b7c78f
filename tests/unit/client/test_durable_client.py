"""BRK-FM6, 8.6: a client that kept its ledger goes on as the same session, with nothing lost and nothing twice."""

from __future__ import annotations

from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import (
    FENCED,
    Acks,
    Attach,
    Denied,
    Entries,
    Left,
    Refused,
    Resume,
    StableUpdate,
    Subscribe,
    Watch,
)
from tests.support.client_edge import HandEdge, publication

T = Topic("t")


def restarted(edge: HandEdge, **settings: float | bool) -> HandEdge:
    return HandEdge(saved=edge.ledger.saved(), ledger=edge.ledger, **settings)


def running(**settings: float | bool) -> HandEdge:
    edge = HandEdge(ledger=MemoryClientLedger(Origin("ann")), **settings)
    edge.accept()
    edge.act("subscribe", T)
    edge.make_live()
    return edge


def test_what_was_not_echoed_is_published_again_under_the_same_numbers() -> None:
    edge = running()
    edge.publish_many(T, [b"a", b"b", b"c"])
    edge.say(Entries(T, edge.sent(Entries)[-1].entries[:1]))
    again = restarted(edge)
    again.accept()
    again.make_live()
    assert [entry.payload for entry in again.sent(Entries)[-1].entries] == [b"b", b"c"]
    assert again.act("publish", T, b"d") == 4


def test_what_was_published_and_never_sent_is_not_lost() -> None:
    edge = HandEdge()
    edge.act("publish", T, b"a")
    again = restarted(edge)
    again.accept()
    again.make_live()
    assert [entry.payload for entry in again.sent(Entries)[-1].entries] == [b"a"]


def test_history_and_received_set_go_on() -> None:
    edge = running()
    entries = tuple(publication("bob", n) for n in (1, 2, 3))
    edge.say(Entries(T, entries), StableUpdate(T, {"bob": 1}))
    again = restarted(edge)
    again.accept()
    assert again.sent(Subscribe) == [Subscribe(T, receives=True)]
    again.make_live(entries=[*entries, publication("bob", 4)])
    assert again.sent(Resume)[0].entries == entries[1:]
    assert again.sent(Resume)[0].have == {"bob": (3, ())}
    assert [entry.number for entry in again.app.delivered] == [4]


def test_the_attach_number_goes_on() -> None:
    edge = running()
    edge.die()
    again = restarted(edge)
    again.accept()
    assert again.sent(Attach) == [Attach(3)]


def test_deliveries_that_the_application_had_not_taken_come_first() -> None:
    edge = running(consumes_at_once=False)
    entries = tuple(publication("bob", n) for n in (1, 2, 3))
    edge.say(Entries(T, entries))
    edge.act("consumed", T, 1)
    again = restarted(edge, consumes_at_once=False)
    assert again.app.delivered == list(entries[1:])
    again.accept()
    again.make_live()
    again.act("consumed", T, 2)
    last = restarted(again, consumes_at_once=False)
    assert last.app.delivered == []


def test_the_subscription_is_recorded_in_the_life_that_got_it() -> None:
    edge = running()
    again = restarted(edge)
    again.accept()
    again.make_live()
    assert again.wires.notes == []
    early = HandEdge()
    early.act("subscribe", T)
    later = restarted(early)
    later.accept()
    later.make_live()
    assert later.wires.notes == [("subscribe", {"topic": "t", "broker": "b0"})]


def test_filters_are_watched_again() -> None:
    edge = HandEdge()
    edge.act("watch", "a.>")
    again = restarted(edge)
    again.accept()
    assert again.sent(Watch) == [Watch("a.>")]


def test_refused_and_stable_publications_do_not_come_back() -> None:
    edge = HandEdge()
    edge.accept()
    edge.publish_many(T, [b"a", b"b", b"c"])
    edge.make_live()
    edge.say(StableUpdate(T, {"ann": 1}), Refused(T, 2, "no"))
    again = restarted(edge)
    again.accept()
    again.make_live()
    assert [entry.number for entry in again.sent(Entries)[-1].entries] == [3]
    assert again.act("publish", T, b"d") == 4


def test_a_topic_that_was_left_stays_left_and_keeps_its_numbers() -> None:
    edge = running()
    edge.act("publish", T, b"a")
    edge.say(edge.sent(Entries)[-1], Acks(T, (1, ()), (1, ())))
    edge.act("unsubscribe", T)
    edge.say(Left(T))
    again = restarted(edge)
    again.accept()
    assert again.sent(Subscribe) == []
    assert again.act("publish", T, b"b") == 2


def test_an_end_of_reading_that_nobody_confirmed_is_an_end_in_the_next_life_too() -> None:
    """The next life is a member that only publishes: it is owed nothing, and nobody misses it."""
    edge = running(consumes_at_once=False)
    edge.say(Entries(T, (publication("bob", 1),)))
    edge.die()
    edge.act("unsubscribe", T)
    again = restarted(edge, consumes_at_once=False)
    again.accept()
    assert again.app.delivered == []
    assert again.sent(Subscribe) == [Subscribe(T, receives=False)]
    assert not again.client.topics[T].receiving


def test_a_session_that_is_over_leaves_what_was_never_called_safe_to_the_application() -> None:
    edge = running()
    edge.publish_many(T, [b"a", b"b", b"c"])
    edge.say(Acks(T, (2, ()), (1, ())), Denied(T, FENCED))
    assert edge.app.heard[-1][2] == ["ann/t#2", "ann/t#3"]
    assert edge.ledger.saved().topics[T].outbox == []
    assert [entry.id for entry in edge.ledger.unanswered] == ["ann/t#2", "ann/t#3"]
    assert edge.wires.notes[-1] == ("leave", {"lost": "ann"})


def test_what_an_earlier_life_was_told_to_be_safe_is_not_unanswered_when_the_session_is_over() -> None:
    """Whoever published it again would publish it twice."""
    edge = running()
    edge.publish_many(T, [b"a", b"b", b"c", b"d"])
    edge.say(Acks(T, (4, ()), (1, (3,))))
    again = restarted(edge)
    again.accept()
    again.say(Denied(T, FENCED))
    assert again.app.heard[-1][2] == ["ann/t#2", "ann/t#4"]

"""The client with a hand-driven edge: rules BRK-C1 to BRK-C9."""

from __future__ import annotations

import pytest

from ordercast.client.history import EARLIEST, PastStart
from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.client_packets import (
    Acks,
    Attach,
    Denied,
    Entries,
    Flow,
    Granted,
    Left,
    Live,
    Ping,
    Pong,
    Refused,
    Resume,
    StableReport,
    StableUpdate,
    Subscribe,
    TopicsFound,
    TopicState,
    Unsubscribe,
    Unwatch,
    View,
    Watch,
)  # fmt: skip
from ordercast.pubsub.publications import Publication
from tests.support.client_edge import HandEdge, neighbour, publication

T = Topic("t")


def subscribed(**settings: float | bool) -> HandEdge:
    edge = HandEdge(**settings)
    edge.accept()
    edge.act("subscribe", T)
    edge.make_live()
    edge.new()
    return edge


def numbers(edge: HandEdge) -> list[int]:
    return [entry.number for packet in edge.new() if isinstance(packet, Entries) for entry in packet.entries]


def test_the_first_packet_on_a_connection_is_an_attach() -> None:
    edge = HandEdge()
    edge.accept()
    assert edge.new() == [Attach(1)]
    assert edge.app.heard == [("connected", "b0")]


def test_publications_of_one_turn_leave_in_one_packet_numbered_from_one() -> None:
    # BRK-C1
    edge = subscribed()
    edge.client.publish(T, b"a")
    edge.client.publish(T, b"b", ("k", "l"), Guarantee.TOTAL)
    edge.client.on_turn_end()
    (packet,) = edge.new()
    assert packet == Entries(
        T,
        (
            Publication("ann", 1, T, b"a", Guarantee.CAUSAL, ("",)),
            Publication("ann", 2, T, b"b", Guarantee.TOTAL, ("k", "l")),
        ),
    )


def test_a_large_turn_is_cut_into_packets_by_number_and_by_bytes() -> None:
    edge = subscribed(batch_entries=3, batch_bytes=1000)
    assert edge.publish_many(T, [b"x"] * 7) == [*range(1, 8)]
    assert [len(packet.entries) for packet in edge.new()] == [3, 3, 1]
    edge.publish_many(T, [b"x" * 600] * 3)
    assert [len(packet.entries) for packet in edge.new()] == [1, 1, 1]
    edge.publish_many(T, [b"x" * 5000])
    assert [len(packet.entries) for packet in edge.new()] == [1]
    edge.publish_many(T, [b"x"] * 3, ("k" * 200,))
    assert [len(packet.entries) for packet in edge.new()] == [1, 1, 1]


def test_numbers_are_counted_per_topic() -> None:
    edge = subscribed()
    assert edge.act("publish", T, b"") == 1
    assert edge.act("publish", Topic("u"), b"") == 1
    assert edge.act("publish", T, b"") == 2


def test_each_publication_is_delivered_once_and_in_order() -> None:
    # BRK-C2, BRK-C4
    edge = subscribed()
    first, second, third = (publication("bob", n) for n in (1, 2, 3))
    edge.say(Entries(T, (first, second)))
    edge.say(Entries(T, (second, third, first)))
    assert edge.app.delivered == [first, second, third]


def test_gaps_of_one_publisher_are_delivered_in_the_order_of_the_log() -> None:
    """Eventual ones may overtake; the received-set keeps the extras."""
    edge = subscribed()
    log = [publication("bob", n) for n in (2, 1, 4, 3)]
    edge.say(Entries(T, tuple(log)))
    edge.say(Entries(T, tuple(log)))
    assert edge.app.delivered == log


def test_the_echo_of_an_own_publication_empties_the_outbox_and_is_delivered() -> None:
    """BRK-C2: a client receives its own publications too."""
    edge = subscribed()
    edge.act("publish", T, b"a")
    (packet,) = edge.new()
    assert list(edge.client.topics[T].outbox) == [1]
    edge.say(packet)
    assert edge.client.topics[T].outbox == {}
    assert edge.app.delivered == list(packet.entries)


def test_nothing_is_taken_from_a_connection_that_is_not_the_edge() -> None:
    # BRK-C2
    edge = HandEdge(("h:1", "h:2"))
    edge.accept()
    edge.act("subscribe", T)
    edge.make_live()
    edge.die()
    edge.say(Entries(T, (publication("bob", 1),)), on=1)
    assert edge.app.delivered == []


def test_deliveries_count_only_from_the_grant_on() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("subscribe", T)
    edge.say(TopicState(T, {}, {}), Entries(T, (publication("bob", 1),)))
    assert edge.app.delivered == []
    edge.say(Granted(T, {}, new=True), Entries(T, (publication("bob", 1),)))
    assert len(edge.app.delivered) == 1


def test_the_grant_is_recorded_before_the_first_delivery_and_only_once() -> None:
    edge = subscribed()
    assert edge.wires.notes == [("subscribe", {"topic": "t", "broker": "b0"})]
    edge.die()
    edge.accept("b1")
    edge.make_live()
    assert [kind for kind, _ in edge.wires.notes].count("subscribe") == 1


def test_a_failover_is_recorded_from_the_loss_of_the_edge_to_the_next_one() -> None:
    edge = subscribed()
    edge.die()
    assert edge.wires.notes[1:] == [("repair_start", {"lost": "b0"})]
    edge.accept("b1")
    assert edge.wires.notes[2:] == [("repair_end", {"broker": "b1"})]
    edge.make_live()
    assert len(edge.wires.notes) == 3


def test_a_new_member_starts_from_the_stable_base() -> None:
    """BRK-C8: what is below it is gone for good and counts as received."""
    edge = HandEdge()
    edge.accept()
    edge.act("subscribe", T)
    edge.make_live(base={"bob": 2}, entries=[publication("bob", 2), publication("bob", 3)])
    assert [entry.number for entry in edge.app.delivered] == [3]


def test_the_next_edge_gets_what_the_client_has_and_its_unstable_history() -> None:
    """BRK-C5: the next edge is offered the history that the last one may have taken with it."""
    edge = subscribed()
    entries = tuple(publication("bob", n) for n in (1, 2, 3))
    edge.say(Entries(T, entries), StableUpdate(T, {"bob": 1}))
    edge.die()
    edge.accept("b1")
    assert edge.new()[-2:] == [Attach(2), Subscribe(T, receives=True)]
    edge.say(TopicState(T, {"bob": (2, ())}, {"bob": 1}))
    assert edge.new() == [Resume(T, 2, {"bob": (3, ())}, {"bob": 1}, entries[1:], receives=True)]


def test_an_edge_that_starts_over_with_a_topic_gets_everything_again() -> None:
    edge = subscribed()
    edge.say(Entries(T, (publication("bob", 1),)))
    edge.die()
    edge.accept("b1")
    edge.say(TopicState(T, {"bob": (1, ())}, {}))
    edge.new()
    edge.say(TopicState(T, {}, {}))
    (packet,) = edge.new()
    assert isinstance(packet, Resume)
    assert packet.entries == (publication("bob", 1),)


def test_a_history_beyond_a_packets_worth_comes_in_pieces() -> None:
    edge = subscribed(batch_entries=2)
    entries = tuple(publication("bob", n) for n in range(1, 6))
    edge.say(Entries(T, entries))
    edge.die()
    edge.accept("b1")
    edge.say(TopicState(T, {}, {}))
    pieces = edge.sent(Resume)[1:]
    assert [len(piece.entries) for piece in pieces] == [2, 2, 1]
    assert sum((piece.entries for piece in pieces), ()) == entries


def test_after_live_the_outbox_comes_again_in_order_then_what_is_new() -> None:
    # BRK-C6
    edge = subscribed()
    edge.publish_many(T, [b"a", b"b", b"c"])
    (packet,) = edge.new()
    edge.say(Entries(T, packet.entries[:1]))  # The echo of the first.
    edge.die()
    edge.act("publish", T, b"d")
    edge.accept("b1")
    edge.say(TopicState(T, {}, {}), Granted(T, {}, new=False))
    assert numbers(edge) == []
    edge.say(Live(T))
    assert numbers(edge) == [2, 3, 4]
    edge.act("publish", T, b"e")
    assert numbers(edge) == [5]


def test_what_is_known_to_everybody_is_forgotten() -> None:
    # BRK-C7
    edge = subscribed()
    edge.say(Entries(T, tuple(publication("bob", n) for n in (1, 2, 3))))
    edge.say(StableUpdate(T, {"bob": 2}))
    assert edge.client.topics[T].kept() == [publication("bob", 3)]


def test_what_was_taken_is_reported_once_per_period() -> None:
    # BRK-ST1
    edge = subscribed(stability_ms=100)
    edge.say(Entries(T, tuple(publication("bob", n) for n in (1, 2, 4))))
    edge.pass_time(99)
    assert edge.sent(StableReport) == []
    edge.pass_time(1)
    edge.pass_time(500)
    assert edge.sent(StableReport) == [StableReport(T, {"bob": 2})]


def test_much_is_reported_without_waiting() -> None:
    edge = subscribed(report_every=3)
    edge.say(Entries(T, tuple(publication("bob", n) for n in (1, 2, 3))))
    assert edge.new() == [StableReport(T, {"bob": 3})]


@pytest.mark.parametrize("at_once", [True, False])
def test_many_bytes_are_reported_without_waiting(at_once: bool) -> None:
    edge = subscribed(report_bytes=3000, consumes_at_once=at_once)
    for numbers in ((1, 2), (3, 4)):
        assert edge.sent(StableReport) == []
        edge.say(Entries(T, tuple(publication("bob", n, payload=bytes(1000)) for n in numbers)))
        if not at_once:
            edge.client.consumed(T, 2)
            edge.client.on_turn_end()
    assert edge.sent(StableReport) == [StableReport(T, {"bob": 4})]


def test_a_new_edge_is_told_how_far_the_client_is() -> None:
    edge = subscribed()
    edge.say(Entries(T, (publication("bob", 1),)))
    edge.pass_time(100)
    edge.die()
    edge.accept("b1")
    edge.make_live()
    edge.pass_time(100)
    assert edge.sent(StableReport) == [StableReport(T, {"bob": 1})] * 2


def test_only_what_the_application_has_taken_is_reported_as_stable() -> None:
    """An application that does not read slows publishers down instead of letting the overlay forget."""
    edge = subscribed(consumes_at_once=False)
    edge.say(Entries(T, tuple(publication("bob", n) for n in (1, 2))), Entries(T, (publication("cho", 1),)))
    edge.say(Entries(T, (publication("bob", 3),)))
    edge.pass_time(200)
    assert edge.sent(StableReport)[-1].vector == {}
    edge.act("consumed", T, 3)
    edge.pass_time(100)
    assert edge.sent(StableReport)[-1].vector == {"bob": 2, "cho": 1}
    edge.act("consumed", T, 1)
    edge.pass_time(100)
    assert edge.sent(StableReport)[-1].vector == {"bob": 3, "cho": 1}


def test_untaken_deliveries_are_part_of_the_history_for_the_next_edge() -> None:
    edge = subscribed(consumes_at_once=False)
    entries = tuple(publication("bob", n) for n in (1, 2, 3))
    edge.say(Entries(T, entries))
    edge.act("consumed", T, 2)
    edge.die()
    edge.accept("b1")
    edge.say(TopicState(T, {}, {}))
    assert edge.sent(Resume)[-1].entries == entries


def test_acknowledgements_are_passed_on_and_never_fall() -> None:
    edge = subscribed()
    edge.say(Acks(T, (5, ()), (2, (4,))))
    edge.say(Acks(T, (3, ()), (2, (4,))))
    edge.say(StableUpdate(T, {"ann": 2, "bob": 7}))
    assert edge.app.heard[-3:] == [
        ("acknowledged", "t", "edge", 5, ()),
        ("acknowledged", "t", "safe", 2, (4,)),
        ("acknowledged", "t", "stable", 2, ()),
    ]


def test_a_closed_flow_keeps_publications_in_the_outbox() -> None:
    # BRK-ST4
    edge = subscribed()
    edge.say(Flow(T, open=False))
    edge.publish_many(T, [b"a", b"b"])
    assert edge.new() == []
    edge.say(Flow(T, open=True))
    assert numbers(edge) == [1, 2]
    assert [heard[2] for heard in edge.app.heard if heard[0] == "flow"] == [False, True]


def test_a_flow_that_is_closed_right_after_live_stops_the_outbox_too() -> None:
    edge = subscribed()
    edge.act("publish", T, b"a")
    edge.die()
    edge.accept("b1")
    edge.new()
    edge.say(TopicState(T, {}, {}), Granted(T, {}, new=False), Live(T), Flow(T, open=False))
    assert numbers(edge) == []
    edge.say(Flow(T, open=True))
    assert numbers(edge) == [1]


def test_publishing_alone_makes_a_member_that_does_not_receive() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("publish", T, b"a")
    assert edge.new() == [Attach(1), Subscribe(T, receives=False)]
    edge.make_live()
    assert [type(packet) for packet in edge.new()] == [Resume, Entries]
    assert edge.wires.notes == []


def test_without_an_echo_the_outbox_is_kept_until_stable() -> None:
    edge = HandEdge()
    edge.accept()
    edge.publish_many(T, [b"a", b"b"])
    edge.make_live()
    edge.say(Acks(T, (2, ()), (2, ())))
    assert list(edge.client.topics[T].outbox) == [1, 2]
    edge.say(StableUpdate(T, {"ann": 1}))
    assert list(edge.client.topics[T].outbox) == [2]
    edge.die()
    edge.accept("b1")
    edge.make_live()
    assert [entry.number for entry in edge.sent(Entries)[-1].entries] == [2]


def test_a_publisher_that_subscribes_is_a_receiver_before_it_is_live() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("publish", T, b"a")
    edge.say(TopicState(T, {}, {}))
    edge.act("subscribe", T)
    edge.say(Granted(T, {}, new=True, receives=False), Live(T))
    assert edge.app.heard[-1] == ("connected", "b0"), "live means: receiving"
    assert edge.sent(Subscribe) == [Subscribe(T, receives=False), Subscribe(T, receives=True)]
    assert edge.sent(Entries) == []
    edge.make_live(base={"bob": 3}, entries=[publication("bob", 4)])
    assert edge.sent(Resume)[-1].receives
    assert edge.app.heard[-1] == ("live", "t")
    assert [entry.number for entry in edge.app.delivered] == [4]
    assert [entry.number for entry in edge.sent(Entries)[-1].entries] == [1]


def test_a_publisher_that_subscribes_before_the_edge_has_answered_asks_once() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("publish", T, b"a")
    edge.act("subscribe", T)
    edge.make_live()
    assert edge.sent(Subscribe) == [Subscribe(T, receives=False)]
    assert [resume.receives for resume in edge.sent(Resume)] == [True]
    assert edge.app.heard[-1] == ("live", "t")


def test_who_publishes_on_a_topic_of_its_filter_receives_it_from_the_beginning() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    edge.say(TopicsFound("a.*", ()))
    edge.act("publish", Topic("a.x"), b"")
    edge.act("publish", Topic("b.x"), b"")
    assert edge.sent(Subscribe) == [Subscribe(Topic("a.x")), Subscribe(Topic("b.x"), receives=False)]


def test_a_filter_wider_than_the_right_to_receive_refuses_no_publication() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", ">")
    edge.say(TopicsFound(">", (), narrowed=True))
    edge.act("publish", T, b"")
    edge.say(Denied(T, "no right to subscribe"))
    assert edge.sent(Subscribe) == [Subscribe(T), Subscribe(T, receives=False)]
    edge.say(TopicState(T, {}, {}), Granted(T, {}, new=True, receives=False), Live(T))
    assert [packet.entries[0].number for packet in edge.sent(Entries)] == [1]
    edge.act("publish", Topic("u"), b"")
    for _ in range(2):
        edge.say(Denied(Topic("u"), "no right"))
    assert edge.app.heard[-2:] == [("refused", "u", 1, "no right"), ("denied", "u", "no right")]


def test_a_subscription_that_was_asked_for_is_denied_though_a_filter_takes_the_topic_in() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", ">")
    edge.say(TopicsFound(">", (), narrowed=True))
    edge.act("publish", T, b"")
    edge.act("subscribe", T)
    edge.say(Denied(T, "no right"))
    assert edge.app.heard[-1] == ("denied", "t", "no right")


def subscriptions(edge: HandEdge) -> list[dict[str, str]]:
    return [info for kind, info in edge.wires.notes if kind == "subscribe"]


def test_a_topic_that_began_after_a_filter_was_confirmed_counts_from_there() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", ">")
    edge.say(TopicsFound(">", (T,)))
    edge.say(TopicsFound(">", (Topic("u"),)))
    edge.make_live("t")
    edge.make_live("u")
    later = {"from": "filter", "filter": ">"}
    assert subscriptions(edge) == [
        {"topic": ">", "filter": ">", "broker": "b0"},
        {"topic": "t", "broker": "b0"},
        {"topic": "u", "broker": "b0", **later},
    ]


def test_a_filter_that_is_wider_than_the_rights_counts_for_nothing_that_comes_to_light_later() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", ">")
    edge.say(TopicsFound(">", (), narrowed=True))
    edge.die()
    edge.accept("b1")
    edge.say(TopicsFound(">", (T,)))
    edge.make_live("t")
    assert subscriptions(edge) == [{"topic": ">", "filter": ">", "broker": "b1"}, {"topic": "t", "broker": "b1"}]
    edge.die()
    edge.accept("b0")
    edge.say(TopicsFound(">", (), narrowed=True))
    assert edge.wires.notes[-1] == ("unsubscribe", {"topic": ">"})


def test_a_filter_that_asks_for_the_past_counts_for_nothing_that_is_read_first() -> None:
    """Of a topic that was there it reads the past, or a part of it, and is no member yet."""
    edge = HandEdge()
    edge.accept()
    edge.act("watch", ">", PastStart(EARLIEST, latest_only=True))
    edge.say(TopicsFound(">", (T,)))
    edge.act("publish", T, b"")
    assert edge.client.topics[T].since == ""
    assert subscriptions(edge) == []


def test_a_live_publisher_that_subscribes_asks_at_once() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("publish", T, b"a")
    edge.make_live()
    edge.new()
    edge.act("subscribe", T)
    assert edge.new() == [Subscribe(T, receives=True)]
    edge.act("publish", T, b"b")
    assert edge.new() == [], "it is not a confirmed member meanwhile"


def test_a_refused_publication_leaves_the_outbox_and_is_told() -> None:
    edge = subscribed()
    edge.act("publish", T, b"a")
    edge.say(Refused(T, 1, "no right"))
    assert edge.client.topics[T].outbox == {}
    assert edge.app.heard[-1] == ("refused", "t", 1, "no right")


def test_a_denied_topic_is_told_and_not_asked_for_again() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("subscribe", T)
    edge.say(Denied(T, "no right to subscribe to 't'"))
    assert edge.app.heard[-1] == ("denied", "t", "no right to subscribe to 't'")
    edge.die()
    edge.accept("b1")
    assert len(edge.sent(Subscribe)) == 1


def test_what_was_published_on_a_denied_topic_is_refused_one_by_one() -> None:
    edge = HandEdge()
    edge.accept()
    edge.publish_many(T, [b"a", b"b"])
    edge.say(Denied(T, "no right"))
    assert edge.app.heard[-3:] == [
        ("refused", "t", 1, "no right"),
        ("refused", "t", 2, "no right"),
        ("denied", "t", "no right"),
    ]
    assert edge.ledger.saved().topics[T].outbox == []
    assert edge.act("publish", T, b"c") == 3


def test_a_fenced_session_is_over() -> None:
    # BRK-C9
    edge = subscribed()
    edge.die()
    edge.accept("b1")
    edge.say(Denied(T, "fenced"))
    assert edge.app.heard[-1][0] == "session_lost"
    assert edge.client.ended
    assert edge.wires.timers == {}
    assert edge.wires.closed[-1][0] == 2


def test_unsubscribing_ends_deliveries_and_then_the_membership() -> None:
    # BRK-M11
    edge = subscribed()
    edge.act("unsubscribe", T)
    assert edge.new() == [Unsubscribe(T)]
    edge.say(Entries(T, (publication("bob", 1),)))
    assert edge.app.delivered == []
    edge.say(Left(T))
    assert edge.app.heard[-1] == ("left", "t")
    assert edge.wires.notes[-1] == ("unsubscribe", {"topic": "t"})
    edge.die()
    edge.accept("b1")
    assert len(edge.sent(Subscribe)) == 1


def test_unsubscribing_waits_until_what_was_published_is_back_and_safe() -> None:
    # BRK-M11
    edge = subscribed()
    edge.act("publish", T, b"a")
    (packet,) = edge.new()
    edge.act("unsubscribe", T)
    assert edge.new() == []
    edge.say(packet, Acks(T, (1, ()), (0, ())))
    assert edge.new() == []
    edge.say(Acks(T, (1, ()), (1, ())))
    assert edge.new() == [Unsubscribe(T)]


def test_what_was_published_and_is_not_safe_comes_to_the_next_edge_though_the_topic_is_being_left() -> None:
    """Its echo came, so the outbox is empty; but nobody may have it any more than the edge that died."""
    edge = subscribed()
    edge.act("publish", T, b"a")
    (packet,) = edge.new()
    edge.act("unsubscribe", T)
    edge.say(packet, Acks(T, (1, ()), (0, ())))
    edge.die()
    edge.accept("b1")
    edge.make_live()
    assert edge.sent(Subscribe)[-1] == Subscribe(T, receives=False)
    assert [entry.id for entry in edge.sent(Resume)[-1].entries] == ["ann/t#1"]
    edge.say(StableUpdate(T, {packet.entries[0].origin: 1}))
    assert edge.sent(Unsubscribe) == [Unsubscribe(T)]


def test_a_leave_that_the_edge_did_not_live_to_pass_on_is_repeated() -> None:
    """A member that nobody struck off would be waited for, and its session fenced in the end."""
    edge = subscribed()
    edge.act("unsubscribe", T)
    edge.die()
    edge.accept("b1")
    edge.make_live()
    assert edge.sent(Unsubscribe) == [Unsubscribe(T), Unsubscribe(T)]
    edge.say(Left(T))
    assert edge.app.heard[-1] == ("left", "t")


def test_a_second_membership_goes_on_with_numbers_and_received_set() -> None:
    edge = subscribed()
    edge.act("publish", T, b"a")
    (packet,) = edge.new()
    edge.say(packet, Entries(T, (publication("bob", 1),)))
    edge.say(Acks(T, (1, ()), (1, ())))
    edge.act("unsubscribe", T)
    edge.act("subscribe", T)
    edge.say(Left(T))
    edge.make_live(entries=[publication("bob", 1), publication("bob", 2)])
    assert edge.act("publish", T, b"b") == 2
    assert [entry.id for entry in edge.app.delivered] == ["ann/t#1", "bob/t#1", "bob/t#2"]


def test_a_subscription_is_confirmed_when_it_is_and_not_because_the_client_may_publish() -> None:
    """What others publish between the two may be stable without it."""
    edge = HandEdge()
    edge.accept()
    edge.act("publish", T, b"a")
    edge.say(TopicState(T, {}, {}), Granted(T, {}, new=True, receives=False), Live(T))
    edge.act("subscribe", T)
    assert ("live", "t") not in edge.app.heard
    edge.make_live()
    assert edge.app.heard[-1] == ("live", "t")


def test_a_filter_subscribes_to_what_is_found_now_and_later() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    edge.say(TopicsFound("a.*", (Topic("a.x"),)))
    edge.say(TopicsFound("a.*", (Topic("a.y"),)))
    assert edge.sent(Subscribe) == [Subscribe(Topic("a.x")), Subscribe(Topic("a.y"))]
    edge.die()
    edge.accept("b1")
    assert edge.sent(Watch) == [Watch("a.*")] * 2
    edge.act("unwatch", "a.*")
    edge.say(TopicsFound("a.*", (Topic("a.z"),)))
    assert edge.new()[-1] == Unwatch("a.*")
    assert Topic("a.z") not in edge.client.topics


def test_an_edge_that_leaves_a_filter_unconfirmed_is_given_up() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    assert edge.client.awaits_grants()
    edge.say(TopicsFound("a.*", (), more=True))
    assert edge.client.awaits_grants()
    edge.say(TopicsFound("a.*", ()))
    assert not edge.client.awaits_grants()


def test_a_filter_that_is_denied_is_told_and_asked_for_no_more() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    edge.say(Denied(Topic("a.*"), "too many"))
    assert edge.app.heard[-1] == ("denied", "a.*", "too many")
    assert not edge.client.awaits_grants()
    edge.die()
    edge.accept("b1")
    assert edge.sent(Watch) == [Watch("a.*")]


def test_a_confirmed_filter_is_in_the_trace_until_it_is_given_up_or_a_topic_of_it_is_denied() -> None:
    """The judge owes what is published on its topics meanwhile, also on those that the client is never told of."""
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    assert edge.wires.notes == []
    edge.say(TopicsFound("a.*", ()))
    begin = ("subscribe", {"topic": "a.*", "filter": "a.*", "broker": "b0"})
    assert edge.wires.notes == [begin]
    edge.say(TopicsFound("a.*", (Topic("a.x"),)))
    edge.say(Denied(Topic("b.x"), "too many topics"))
    assert edge.wires.notes == [begin]
    edge.say(Denied(Topic("a.x"), "too many topics"))
    assert edge.wires.notes == [begin, ("unsubscribe", {"topic": "a.*"})]


def test_who_leaves_leaves_its_filters_too() -> None:
    """Otherwise topics that begin would count for it until it is given up as absent."""
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    edge.say(TopicsFound("a.*", ()))
    edge.act("leave")
    assert edge.sent(Unwatch) == [Unwatch("a.*")]


def test_a_filter_is_confirmed_when_all_pieces_of_the_answer_have_come() -> None:
    edge = HandEdge()
    edge.accept()
    edge.act("watch", "a.*")
    edge.say(TopicsFound("a.*", (Topic("a.x"),), more=True))
    assert ("watching", "a.*", ("a.x",)) not in edge.app.heard
    edge.die()
    edge.accept("b1")
    edge.say(TopicsFound("a.*", (Topic("a.x"),), more=True))
    edge.say(TopicsFound("a.*", (Topic("a.y"),)))
    assert edge.app.heard[-1] == ("watching", "a.*", ("a.x", "a.y"))


def test_a_client_that_leaves_says_so_for_every_topic() -> None:
    edge = subscribed()
    edge.act("publish", Topic("u"), b"")
    edge.make_live("u")
    edge.new()
    edge.act("leave")
    assert edge.new() == [Unsubscribe(T), Unsubscribe(Topic("u"))]
    assert edge.wires.closed == [(1, "the client leaves")]
    assert edge.wires.timers == {}


def test_a_ping_is_answered() -> None:
    edge = subscribed()
    edge.say(Ping(7))
    assert edge.new() == [Pong(7)]


def test_an_edge_that_talks_like_a_client_is_blamed() -> None:
    edge = subscribed()
    with pytest.raises(PeerError, match="b0: sent a Attach to a client"):
        edge.say(Attach(1))


def test_the_view_is_where_to_go_next_nearest_first() -> None:
    """BRK-C3, BRK-C5: view by hops then name, then the directory, then the configured addresses; the lost edge last."""
    edge = HandEdge(("at-b7", "at-b0"))
    edge.die(reason="nobody there")
    edge.accept(
        "b0", View((neighbour("b10", 2), neighbour("b2", 2), neighbour("b1", 1)), (("b3", "at-b3"), ("b0", "at-b0")))
    )
    edge.wires.dialed.clear()
    for _ in range(6):
        edge.client.on_closed(edge.client.edge.connection or 0, gone=True)
    assert edge.wires.dialed == ["at-b1", "at-b2", "at-b10", "at-b3", "at-b7", "at-b0"]


def test_what_the_edge_knows_to_be_stable_is_not_reported_again() -> None:
    """BRK-ST1: a report is as long as what is under way, however many publishers there have been."""
    edge = subscribed()
    for n in range(1, 50):
        edge.say(Entries(T, (publication(f"bob~{n}", 1),)))
        edge.pass_time(100)
        edge.say(StableUpdate(T, {f"bob~{n}": 1}))
    edge.say(Entries(T, (publication("cho", 1),)))
    edge.pass_time(100)
    assert [len(report.vector) for report in edge.sent(StableReport)] == [1] * 50


def test_an_edge_that_knows_less_to_be_stable_is_told_all_the_same() -> None:
    """It cannot be told otherwise if it does not believe the client's base."""
    edge = subscribed()
    edge.say(Entries(T, (publication("bob", 1), publication("cho", 1))))
    edge.say(StableUpdate(T, {"bob": 1, "cho": 1}))
    edge.die()
    edge.accept("b1")
    edge.say(TopicState(T, {}, {"cho": 1}), Granted(T, {"cho": 1}, new=False), Live(T))
    edge.pass_time(100)
    assert edge.sent(StableReport)[-1] == StableReport(T, {"bob": 1})


def test_thousands_of_topics_are_asked_for_in_turn_and_each_comes_to_its_turn() -> None:
    """A burst would keep brokers from telling each other that they live; whoever receives is never made to wait."""
    edge = HandEdge()
    edge.accept()
    edge.new()
    for i in range(600):
        edge.act("publish", Topic(f"t.{i}"), b"x")
    asked = [packet.topic for packet in edge.new() if isinstance(packet, Subscribe)]
    assert len(asked) == 256
    edge.act("subscribe", T)
    assert [packet for packet in edge.new() if isinstance(packet, Subscribe)] == [Subscribe(T, receives=True)]
    edge.make_live()
    edge.new()
    for topic in asked:  # It grows on the way.
        edge.make_live(topic)
        asked += [packet.topic for packet in edge.new() if isinstance(packet, Subscribe)]
    assert asked == [f"t.{i}" for i in range(600)]


def test_what_is_under_way_to_the_edge_stays_within_the_window() -> None:
    """What an edge gets although it has just said that it has enough."""
    edge = subscribed(window_bytes=2500, batch_entries=1)
    for _ in range(9):
        edge.act("publish", T, bytes(1000))
    assert numbers(edge) == [1, 2, 3]
    edge.say(Acks(T, (2, ()), (0, ())))
    assert numbers(edge) == [4, 5]
    edge.say(Flow(T, open=False), Acks(T, (5, ()), (0, ())))
    assert numbers(edge) == []
    edge.say(Flow(T, open=True))
    assert numbers(edge) == [6, 7, 8]
    edge.say(Refused(T, 6, "no"), Acks(T, (8, ()), (0, ())))
    assert numbers(edge) == [9]

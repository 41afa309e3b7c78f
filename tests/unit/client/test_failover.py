"""Finding an edge, losing it, finding the next."""

from __future__ import annotations

from ordercast.core.ids import Topic
from ordercast.core.process import Peer
from ordercast.pubsub.client_packets import FENCED, Attach, Denied, Ping, Pong, Ticket, View
from tests.support.client_edge import MS, HandEdge, neighbour

T = Topic("t")


def test_every_attempt_has_a_higher_number() -> None:
    """BRK-C5: an older attachment of the session never counts again."""
    edge = HandEdge(("h:1", "h:2"))
    edge.die()
    edge.accept("b2")
    assert edge.wires.dialed == ["h:1", "h:2"]
    assert edge.sent(Attach) == [Attach(2)]


def test_a_silent_candidate_costs_one_timer() -> None:
    edge = HandEdge(("h:1", "h:2"), request_ms=500)
    edge.pass_time(499)
    assert edge.wires.dialed == ["h:1"]
    edge.pass_time(1)
    assert edge.wires.dialed == ["h:1", "h:2"]
    assert edge.wires.closed[0][0] == 1


def test_a_broker_that_takes_the_connection_and_says_nothing_is_left() -> None:
    edge = HandEdge(("h:1", "h:2"), request_ms=500)
    edge.client.on_opened(1, Peer("broker", "b1", 0, "h:1"))
    edge.pass_time(500)
    assert edge.wires.dialed == ["h:1", "h:2"]


def test_when_nobody_is_left_the_pass_starts_over_after_a_pause() -> None:
    edge = HandEdge(("h:1", "h:2"), retry_ms=300)
    edge.die(reason="refused")
    edge.die(reason="wrong token", gone=False)
    assert edge.app.heard == [("nobody_answers", (("h:1", "refused", True), ("h:2", "wrong token", False)))]
    assert edge.wires.dialed == ["h:1", "h:2"]
    edge.pass_time(149)
    assert len(edge.wires.dialed) == 2
    edge.pass_time(301)
    assert edge.wires.dialed[2:] == ["h:1"]


def test_pauses_of_different_clients_and_attempts_differ() -> None:
    def pause(session: int, passes: int) -> int:
        edge = HandEdge(("h:1",), session=session)
        for i in range(passes):
            edge.die()
            if i < passes - 1:
                edge.pass_time(1000)
        return edge.wires.timers["retry"] - edge.wires.now_ns

    assert len({pause(0, 1), pause(1, 1), pause(0, 2)}) == 3
    assert pause(0, 1) == pause(0, 1)
    assert all(150 * MS <= pause(session, 1) < 450 * MS for session in range(20))


def test_the_timers_of_a_lost_edge_are_gone() -> None:
    edge = HandEdge(("h:1", "h:2"))
    edge.accept()
    edge.act("subscribe", T)
    edge.die()
    assert set(edge.wires.timers) == {"request"}


def test_an_idle_edge_is_asked_whether_it_lives() -> None:
    edge = HandEdge(("h:1", "h:2"), ping_ms=1000, silence_ms=4000)
    edge.accept()
    edge.pass_time(1000)
    (ping,) = edge.sent(Ping)
    edge.say(Pong(ping.at))
    edge.pass_time(3500)
    assert edge.wires.dialed == ["h:1"]
    edge.pass_time(1500)
    assert edge.wires.dialed == ["h:1", "h:2"]
    assert edge.app.heard[-1] == ("disconnected", "b0 at h:1: silent for 4000 ms")


def test_a_client_that_overslept_does_not_blame_its_edge() -> None:
    edge = HandEdge(("h:1", "h:2"), ping_ms=1000, silence_ms=4000)
    edge.accept()
    edge.wires.now_ns += 60_000 * MS
    edge.client.on_timer("beat")
    assert edge.wires.dialed == ["h:1"]


def test_heartbeats_do_not_keep_a_run_from_coming_to_rest() -> None:
    edge = HandEdge()
    edge.accept()
    assert [name for name in edge.wires.timers if not edge.wires.background[name]] == []


def test_an_edge_that_gets_no_confirmation_is_left_for_another_with_more_patience_each_time() -> None:
    """A broker cut off from the root can confirm nobody; another one may."""
    edge = HandEdge(("h:1", "h:2"), grant_ms=1000, ping_ms=86_400_000)
    edge.act("subscribe", T)
    edge.accept()
    edge.pass_time(1000)
    assert edge.wires.dialed == ["h:1", "h:2"]
    edge.accept("b2")
    edge.pass_time(1999)
    assert len(edge.wires.dialed) == 2
    edge.pass_time(1)
    assert len(edge.wires.dialed) == 3
    edge.accept("b1")
    edge.make_live()
    edge.pass_time(60_000)
    assert len(edge.wires.dialed) == 3


def test_an_edge_without_topics_is_not_left() -> None:
    edge = HandEdge(grant_ms=1000, ping_ms=86_400_000)
    edge.accept()
    edge.pass_time(10_000)
    assert edge.wires.dialed == ["h:1"]


def test_the_lost_edge_is_tried_last() -> None:
    edge = HandEdge(("h:1", "h:2"))
    edge.accept("b0", View((neighbour("b5", 1),)))
    edge.die()
    edge.die()
    edge.die()
    assert edge.wires.dialed == ["h:1", "at-b5", "h:2", "h:1"]


def test_a_client_at_the_address_of_a_broker_is_no_edge() -> None:
    edge = HandEdge(("h:1", "h:2"))
    edge.client.on_opened(1, Peer("client", "bob", 0))
    assert edge.wires.dialed == ["h:1", "h:2"]
    assert edge.sent(Attach) == []


def test_what_an_edge_says_after_it_sent_its_client_away_does_not_count() -> None:
    """BRK-C2: a View of the old edge in the same batch is no answer of the next one, which wants an Attach first."""
    edge = HandEdge(("h:1", "h:2"), folds=True)
    edge.accept("b1")
    edge.act("subscribe", T)
    edge.say(Ticket("1.0.b1", b""))
    edge.new()
    edge.say(Denied(T, FENCED), View(()))

    assert edge.connection == 2
    assert edge.new() == []
    edge.accept("b2")
    assert isinstance(edge.new()[0], Attach)

"""Gossip: spreads with high probability, never delivers twice, and keeps bounded memory (docs/protocols/gossip.md)."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.chance import mix
from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Message
from ordercast.core.process import OverlayPlace, Peer
from ordercast.protocols import lookup
from ordercast.protocols.gossip.delivered import WINDOW, Delivered
from ordercast.protocols.gossip.machine import GossipMachine
from ordercast.protocols.gossip.members import GossipView, ViewLimits
from ordercast.protocols.gossip.options import GossipOptions, rounds_for
from ordercast.protocols.gossip.packets import Gossip
from ordercast.protocols.gossip.rumours import RumourLimits, Rumours
from ordercast.scenario.load import parse_scenario
from ordercast.sim import simulate
from tests.support.hand_wires import HandWires

OTHER = Peer("node", "other", 0, "other")


def message(number: int, origin: str = "ann") -> Message:
    return Message(Origin(origin), number, Topic("t"), b"%d" % number)


def machine(**options: Any) -> tuple[GossipMachine, HandWires]:
    wires = HandWires()
    place = OverlayPlace(Peer("node", "me", 0, "me"), ("other", "third"), genesis=True, salt=5)
    one = GossipMachine(wires, place, GossipOptions(**options))
    one.on_start()
    return one, wires


def rounds(one: GossipMachine, wires: HandWires, count: int) -> list[Gossip]:
    wires.casts.clear()
    for _ in range(count):
        one.on_timer(wires.next_timer())
    return [packet for _, packet in wires.casts if isinstance(packet, Gossip)]


def test_a_message_is_passed_on_as_many_rounds_as_it_may_and_its_age_travels_with_it() -> None:
    """GSP-1, GSP-2."""
    one, wires = machine(rounds=3, fanout=1)
    one.on_publish(message(1))
    assert wires.delivered == [message(1)]
    assert [packet.ages for packet in rounds(one, wires, 6)] == [b"\1", b"\2", b"\3", b"", b"", b""]


def test_a_duplicate_is_no_news_and_the_higher_age_counts() -> None:
    """GSP-3."""
    one, wires = machine(rounds=5, fanout=1)
    one.on_cast(OTHER, [Gossip((message(1),), b"\0"), Gossip((message(1),), b"\3")])
    assert len(wires.delivered) == 1
    assert [packet.ages for packet in rounds(one, wires, 3)] == [b"\4", b"\5", b""]


def test_a_history_that_is_too_small_never_delivers_twice() -> None:
    """GSP-3.2."""
    one, wires = machine(history=1, buffer=1)
    for number in (1, 2, 3, 1, 2, 3, 1):
        one.on_cast(OTHER, [Gossip((message(number),), b"\0")])
    assert [one.number for one in wires.delivered] == [1, 2, 3]


def test_a_full_packet_carries_the_youngest() -> None:
    rumours: Rumours[Message] = Rumours(RumourLimits(rounds=9, per_packet=2, buffer=3, history=9), 1)
    old, young, younger, newest = map(message, (1, 2, 3, 4))
    rumours.hear((old, young, younger), bytes([5, 0, 0]))
    assert sorted(one.number for one in rumours.chosen()[0]) == [2, 3]
    rumours.hear((newest,), bytes([0]))
    assert old not in rumours.items.values(), "the buffer is full: the oldest goes"


def test_the_window_says_of_each_number_once_that_it_is_new_and_of_none_that_is_too_old() -> None:
    seen = Delivered(2)
    assert [seen.add("x", number) for number in (1, 3, 2, 3, 1, 2)] == [True, True, True, False, False, False]
    assert seen.add("x", WINDOW + 10)
    assert not seen.add("x", 4), "too old to be told from a duplicate"
    assert seen.add("x", 1 << 60)
    assert seen.add("y", 1)
    assert seen.add("z", 1)
    assert len(seen.windows) == 2


def members(**limits: int) -> GossipView:
    return GossipView("me", 0, ("a", "b"), ViewLimits(**{"view": 3, "per_packet": 4, "forget": 5} | limits), 3)


def test_a_view_is_bounded_never_holds_its_own_process_and_forgets_the_silent() -> None:
    """GSP-4."""
    some = members()
    for i in range(20):
        some.next_round()
        some.hear([("me", 9, 0), (f"m{i}", 0, 0)], "a")
        assert len(some) <= 3
        assert "me" not in some.ring
    assert "m19" in some.ring
    for _ in range(6):
        some.next_round()
    assert some.draw(3) == []
    some.next_round()
    assert sorted(some.ring) == ["a", "b"], "who knows nobody goes back to its contacts"


def test_a_view_knows_of_each_when_it_was_last_heard_of_wherever_it_stands() -> None:
    """GSP-4.2: what is looked up by its place among the contacts is what a search of the ring finds."""
    contacts = ("a", "b", "me", "c", "d")
    view = GossipView("me", 0, contacts, ViewLimits(view=20, per_packet=10, forget=100), salt=1)
    last = dict.fromkeys(("a", "b", "c", "d"), 0)
    words = [*contacts, "new", "newer"]
    for number in range(1, 60):
        view.next_round()
        told = words[mix(3, number) % len(words)], words[mix(4, number) % len(words)]
        view.hear([(one, 0, number % 3) for one in told], "other")
        for one in told:
            if one != "me":
                last[one] = max(last.get(one, 0), number - number % 3)
        if number > 30:  # Until then everybody stands where the contacts say; from now on some do not.
            gone = words[mix(5, number) % len(words)]
            view.forget(gone)
            last.pop(gone, None)
        assert dict(zip(view.ring, view.heard, strict=True)) == last


def test_who_left_is_forgotten_until_it_comes_back_as_another() -> None:
    """GSP-4.3."""
    some = members()
    some.hear_gone([("a", 0)], "b")
    assert some.ring == ["b"]
    some.next_round()
    some.hear([("a", 0, 1)], "b")
    assert some.ring == ["b"], "an old word"
    some.next_round()
    some.hear([("a", 1, 0)], "a")
    assert sorted(some.ring) == ["a", "b"]


def test_a_view_is_the_same_whether_or_not_its_process_is_among_the_contacts() -> None:
    """Members of a large group share one list of contacts, and where each stands in it."""
    everybody = tuple(f"m{i}" for i in range(12))
    limits = ViewLimits(view=10, per_packet=4, forget=6)
    alone = GossipView("m4", 0, tuple(one for one in everybody if one != "m4"), limits, 3)
    shared = GossipView("m4", 0, everybody, limits, 3)
    for step in range(400):
        for view in (alone, shared):
            view.next_round()
            view.hear([(f"m{mix(1, step) % 16}", 0, step % 3), (f"m{mix(2, step) % 16}", step // 50, 0)], "m1")
            if step % 5 == 0:
                view.hear_gone([(f"m{mix(3, step) % 16}", step // 50)], "m1")
        assert alone.draw(3) == shared.draw(3)
        assert (alone.ring, alone.heard) == (shared.ring, shared.heard)
        assert len(set(shared.ring)) == len(shared.ring) <= 10
        assert "m4" not in shared.ring
    assert shared.ring != list(everybody[:10]), "some have left and others have come: nobody is where it was"


@pytest.mark.parametrize(
    "packet",
    [
        Gossip((message(1),), b""),
        Gossip((message(1),) * 21, bytes(21)),
        Gossip((), b"", tuple((f"m{i}", 0, 0) for i in range(11))),
        Gossip((), b"", (("x" * 300, 0, 0),)),
        Gossip((), b"", (), (("", 0),)),
        Gossip((), b"", (), tuple((f"m{i}", 0) for i in range(11))),
    ],
)
def test_a_packet_that_makes_no_sense_is_its_senders_fault(packet: Gossip) -> None:
    """GSP-6."""
    one, _ = machine()
    with pytest.raises(PeerError, match="other"):
        one.on_cast(OTHER, [packet])


def test_how_many_rounds_a_group_needs() -> None:
    """GSP-5."""
    assert [rounds_for(members, 4) for members in (125, 1_000)] == [7, 9]


def test_everybody_hears_everything_in_a_small_calm_group_with_small_views() -> None:
    scenario = parse_scenario(
        {
            "name": "small", "overlay": {"kind": "ring", "nodes": 12}, "protocol": "gossip",
            "options": {"round_ms": 20, "rounds": 9, "view": 6}, "duration_ms": 1_000, "drain_ms": 4_000,
            "link": {"latency_ms": 4.0}, "workload": [{"kind": "open", "rate_per_s": 40, "start_ms": 300}],
        }
    )  # fmt: skip
    outcome = simulate(scenario, lookup("gossip"), seed=4)
    assert outcome.delivered == outcome.published * 12

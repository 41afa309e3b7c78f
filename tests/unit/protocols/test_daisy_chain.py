"""The daisy chain: messages climb with a clock, and skip what an earlier message has seen to."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest

from ordercast.core.effects import EffectLog
from ordercast.core.errors import InvariantError, PeerError, UsageError
from ordercast.core.ids import NodeId
from ordercast.protocols.daisy_chain.machine import DaisyChain
from ordercast.protocols.daisy_chain.packets import CheckedHop, Hop
from tests.support.multicast import Servers

RULES = ("strict", "lite", "cover")


def chain(rule: str, size: int, messages: dict[str, str], *, reduced: bool = True) -> Servers:
    return Servers("daisy-chain", size, messages, rule=rule, reduced=reduced)


@pytest.mark.parametrize(("rule", "visited"), [("strict", {3}), ("lite", set()), ("cover", set())])
def test_a_subset_of_the_last_destinations_may_skip_under_the_weaker_rules(rule: str, visited: set[int]) -> None:
    """T-DCC-1."""
    servers = chain(rule, 4, {"a": "234", "b": "24"}).run("c:a c:b *")
    assert servers.visitors("b") == visited
    assert servers.all_orders() == {2: "a b", 3: "a", 4: "a b"}


def test_a_message_that_skipped_waits_for_the_one_it_followed() -> None:
    """T-DCC-1: b overtakes a on the way to 4 and is held back there."""
    servers = chain("lite", 4, {"a": "234", "b": "24"}).run("c:a c:b 2>4")
    assert servers.order(4) == ""
    assert servers.run("*").order(4) == "a b"


@pytest.mark.parametrize(
    ("rule", "schedule", "visited"),
    [("strict", "2>3x2 3>4x2", {2, 3}), ("lite", "2>3 3>4 2>4", {2, 3}), ("cover", "2>4x2", {2})],
)
def test_a_message_takes_along_what_its_visits_learn(rule: str, schedule: str, visited: set[int]) -> None:
    """T-DCC-2: w enters at 1, never meets z there, and still comes after it at 4."""
    servers = chain(rule, 4, {"z": "24", "y": "12", "w": "14"}).run(f"c:z c:y c:w 1>2x2 {schedule}")
    assert servers.all_orders() == {1: "y w", 2: "z y", 4: "z w"}
    assert servers.visitors("w") == visited


@pytest.mark.parametrize(
    ("rule", "first_hops"),
    [
        ("strict", {"a": "1>2", "b": "1>4", "c": "1>2", "e": "1>2", "f": "1>2"}),
        ("lite", {"a": "1>4", "b": "1>4", "c": "1>4", "e": "1>3", "f": "1>2"}),
        ("cover", {"a": "1>4", "b": "1>4", "c": "1>4", "e": "1>3", "f": "1>3"}),
    ],
)
def test_each_rule_skips_where_it_may(rule: str, first_hops: dict[str, str]) -> None:
    """T-DCC-3."""
    messages = {"a": "14", "b": "14", "s": "1", "c": "14", "e": "13", "f": "14"}
    servers = chain(rule, 4, messages).run("c:a c:b c:s c:c c:e c:f *")
    assert {name: servers.hops(name)[0] for name in first_hops} == first_hops
    assert servers.order(4) == "a b c f"


def test_what_waited_is_delivered_in_the_same_step_as_what_it_waited_for() -> None:
    """T-DCC-4."""
    servers = chain("strict", 4, {"a": "14", "b": "14"}).run("c:a c:b 1>4 1>2 2>3")
    assert servers.order(4) == ""
    assert servers.run("3>4").order(4) == "a b"


@pytest.mark.parametrize("rule", RULES)
def test_a_message_stops_at_its_last_destination(rule: str) -> None:
    """T-DCC-5."""
    assert len(chain(rule, 4, {"a": "12", "b": "2"}).run("c:a 1>2 c:b *").log) == 1


def test_as_published_a_message_goes_on_to_the_last_server() -> None:
    """T-DCC-5."""
    servers = Servers("daisy-chain-published", 4, {"a": "12", "b": "2"}).run("c:a 1>2 c:b *")
    assert len(servers.log) == 5
    assert servers.visitors("a") == servers.visitors("b") == {3, 4}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", range(1, 9))
def test_a_message_that_always_skips_costs_one_packet_a_destination(rule: str, size: int) -> None:
    messages = {"first": "13579bdf"[:size], "second": "13579bdf"[:size]}
    servers = Servers("daisy-chain", 15, {}, rule=rule)
    names = {"1": "1", "3": "3", "5": "5", "7": "7", "9": "9", "b": "11", "d": "13", "f": "15"}
    for number, (name, dst) in enumerate(messages.items(), start=1):
        servers._ask(name, number, tuple(NodeId(names[letter]) for letter in dst))
    servers.run("c:first * c:second *")
    assert 1 + len(servers.hops("second")) == size
    assert servers.visitors("second") == set()


@pytest.mark.parametrize("size", range(2, 9))
def test_a_message_that_never_skips_costs_a_packet_a_server(size: int) -> None:
    servers = chain("strict", size, {"a": f"1{size}"}).run("c:a *")
    assert len(servers.log) == size - 1


class TestOutOfSequence:
    """T-DCC-11: the protocol needs FIFO channels, and the transport has to see to it."""

    MESSAGES: ClassVar[dict[str, str]] = {"c": "14", "e": "134"}

    def test_in_sequence_all_is_well(self) -> None:
        servers = chain("strict", 4, self.MESSAGES, reduced=False).run("c:c c:e *")
        assert servers.order(4) == "c e"

    def test_out_of_sequence_a_server_waits_for_ever(self) -> None:
        servers = Servers("daisy-chain", 4, self.MESSAGES, rule="strict", reduced=False, check_invariants=False)
        servers.run("c:c c:e 1!2 *")
        assert servers.is_blocked()
        assert servers.order(4) == ""

    def test_the_invariant_names_the_server_where_it_went_wrong(self) -> None:
        servers = chain("strict", 4, self.MESSAGES, reduced=False)
        with pytest.raises(InvariantError, match=r"^3: client#1, number 1 from 1 to 4, counts 2"):
            servers.run("c:c c:e 1!2 *")


@pytest.mark.parametrize("rule", RULES)
def test_real_time_order_is_not_kept(rule: str) -> None:
    """q is asked for after p is done, and still comes before it: q < m < p."""
    servers = chain(rule, 2, {"m": "12", "p": "1", "q": "2"}).run("c:m c:p")
    assert servers.completed == ["p"]
    assert servers.run("c:q *").all_orders() == {1: "m p", 2: "q m"}


class TestNonsenseIsBlamedOnThePeer:
    def servers(self) -> Servers:
        return Servers("daisy-chain", 3, {"a": "13"}, rule="strict", check_invariants=False).run("c:a")

    def hop(self, servers: Servers) -> Hop:
        (packet,) = servers.channels["1", "2"]
        assert isinstance(packet, Hop)
        return packet

    @pytest.mark.parametrize(("clock", "whole"), [((0,), False), ((9, 1), False), ((-1, 1), False), ((0, 0), True)])
    def test_a_clock_that_is_none(self, clock: tuple[int, ...], whole: bool) -> None:
        servers = self.servers()
        packet = Hop(self.hop(servers).message, clock, whole)
        with pytest.raises(PeerError, match="1: sends message client#1 with a clock that is none"):
            servers.machines[NodeId("2")].on_receive(NodeId("1"), packet, EffectLog())

    @pytest.mark.parametrize(("peer", "to"), [("3", "2"), ("2", "1"), ("client", "2")])
    def test_a_message_on_its_way_down(self, peer: str, to: str) -> None:
        servers = self.servers()
        with pytest.raises(PeerError, match=f"{peer}: sends message client#1 to {to}, which is not above it"):
            servers.machines[NodeId(to)].on_receive(NodeId(peer), self.hop(servers), EffectLog())

    def test_servers_that_disagree_about_the_checks(self) -> None:
        servers = self.servers()
        hop = self.hop(servers)
        packet = CheckedHop(hop.message, hop.clock, hop.whole, (1,))
        with pytest.raises(PeerError, match="do not agree on check_invariants"):
            servers.machines[NodeId("2")].on_receive(NodeId("1"), packet, EffectLog())


class TestInvariants:
    def test_a6_a_jump_over_a_server_that_must_be_visited(self) -> None:
        servers = chain("strict", 3, {"a": "13"}).run("c:a")
        servers.channels["1", "3"].append(servers.channels["1", "2"].popleft())
        servers.carry("1", "3")  # From destination to destination it may be a skip.
        servers = chain("strict", 4, {"a": "14"}).run("c:a")
        servers.channels["1", "3"].append(servers.channels["1", "2"].popleft())
        with pytest.raises(InvariantError, match="client#1 jumped from 1 to 3"):
            servers.carry("1", "3")

    def test_a3_a_delivery_before_its_past(self) -> None:
        servers = chain("strict", 3, {"a": "13", "b": "13"}).run("c:a c:b")
        third = servers.machines[NodeId("3")]
        assert isinstance(third, DaisyChain)
        third._is_enabled = lambda _carried: True  # type: ignore[method-assign]
        with pytest.raises(InvariantError, match="3 delivers client#2 before its past"):
            servers.carry("1", "3")

    def test_a4_a_visit_that_is_on_its_way_to_nobody(self) -> None:
        servers = chain("strict", 3, {"a": "12"}).run("c:a")
        (packet,) = servers.channels["1", "2"]
        assert isinstance(packet, CheckedHop)
        with pytest.raises(InvariantError, match="3 is visited by client#1, which has no destination above"):
            servers.machines[NodeId("3")].on_receive(
                NodeId("2"), msgspec.structs.replace(packet, clock=()), EffectLog()
            )

    def test_a5_a_packet_held_back_for_nothing(self) -> None:
        servers = chain("strict", 2, {"a": "12", "b": "12"}, reduced=False).run("c:a c:b 1!2")
        second = servers.machines[NodeId("2")]
        assert isinstance(second, DaisyChain)
        second._next_ready = lambda: None  # type: ignore[method-assign]
        with pytest.raises(InvariantError, match="2 holds back a packet whose time has come"):
            servers.run("1>2x2")


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(UsageError, match="options of daisy-chain: Invalid enum value 'published'"):
        Servers("daisy-chain", 2, {}, rule="published")

"""The scenarios of LoCaMu's specification step by step, each with the outcome it must have."""

from __future__ import annotations

import pytest

from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.locamu.packets import Ack, Alias, Data, read_names
from tests.mutants.locamu_mutants import SENDS_IN_NOBODYS_NAME
from tests.support.locamu_lab import TreeGroup, line


def test_identifiers_grow_along_a_line_and_are_cut_to_the_window() -> None:
    """S-IDS."""
    group = TreeGroup(line(6), "5")
    message = group.publish("0", "5")
    expected = {"01": "0", "12": "01", "23": "012", "34": "123", "45": "234"}
    for hop, owners in expected.items():
        (packet,) = group.travelling(message, to=hop[1], by=hop[0])
        assert group.names(packet) == (set(owners), set())
        assert group.said(packet).past == []
        if hop == "01":
            assert group.vector("0", packet) == {"1": 1, "2": 1}
        if hop == "45":
            assert group.vector("4", packet) == {"5": 1}
        group.carry(message, to=hop[1], by=hop[0])
    assert group.delivered["5"] == [message]


def test_nobody_waits_for_the_message_it_holds() -> None:
    """S-SELF: LCM-C2, LCM-C3 and LCM-C4."""
    group = TreeGroup(line(3), "012")
    message = group.publish("0", "012")
    group.forward(message, "012")
    assert all(group.delivered[node] == [message] for node in group.nodes)


@pytest.mark.parametrize("suspicious", ["proxy first", "answer first"])
def test_a_neighbour_takes_over_for_a_forwarder_that_fell_silent(suspicious: str) -> None:
    """S-FIG33."""
    group = TreeGroup("10 12 13", "123 3")
    first = group.publish("0", "123")
    group.forward(first, "012")
    group.lose(first, to="3", by="1")
    group.suspect("1", by="2")
    (proxy,) = group.travelling(first, to="3", by="2")
    assert group.names(proxy) == ({"0", "1"}, set())
    assert group.said(proxy).forwarder == group.routes.rank[group.nodes[1]]
    second = group.publish("2", "3")
    if suspicious == "answer first":
        group.carry(second, to="3", by="2")
        assert group.held("3") == [second]
        group.carry(first, to="3", by="2")
    else:
        group.carry(first, to="3", by="2")
        group.carry(second, to="3", by="2")
    assert group.order["3"] == [first, second]
    group.suspect("1", by="0")
    group.carry(first, to="2", by="0")
    group.carry(first, to="3", by="0")
    assert group.order["2"] == [first, second]
    assert group.order["3"] == [first, second]
    group.finish()
    group.assert_forgotten()


def silenced(protocol: str | ProtocolInfo) -> tuple[TreeGroup, list[Message]]:
    """S-FIG33 as far as time brings it while 1 is down: 0 and 2 suspect it, and 0 sends its message past it."""
    group = TreeGroup("10 12 13", "123 3", protocol=protocol)
    first = group.publish("0", "123")
    group.forward(first, "012")
    group.crash("1")
    group.in_flight.clear()
    group.suspect("1", by="2")
    group.suspect("1", by="0")
    second = group.publish("2", "3")
    for _ in range(20):
        group.carry_all()
        armed = [(node, timer) for node in group.nodes for timer in sorted(group.timers[node], key=str)]
        for node, timer in armed:
            group.fire(node, timer)
    return group, [first, second]


def test_without_proxies_and_names_a_message_waits_for_a_forwarder_to_come_back() -> None:
    """S-FIG33 (LCM-C15): what is missing is the number of a node that is down, and nobody says it in its place."""
    group, (first, second) = silenced("locamu")
    assert group.order["3"] == [first, second]
    group, (first, second) = silenced(SENDS_IN_NOBODYS_NAME)
    assert group.order["3"] == [first]
    assert group.held("3") == [second]
    group.recover("1")
    group.finish()
    assert group.order["3"] == [first, second]


def test_a_copy_that_comes_after_the_jump_adds_its_name_only() -> None:
    """S-FIG34."""
    group = TreeGroup(line(3), "012")
    message = group.publish("0", "012")
    group.carry(message, to="1", by="0")
    group.suspect("1", by="0")
    group.carry(message, to="2", by="0")
    group.carry(message, to="2", by="1")
    assert group.order["2"] == [message]
    assert group.processed("2", "0") == (1, set())
    assert group.processed("2", "1") == (1, set())
    (entry,) = group.machine("2").store.entries.values()
    assert [(shape.forwarder, late) for shape, _, late in entry.vectors[:-1]] == [(0, 0), (1, 1)], "1 came late"


def pushed_names(group: TreeGroup, *, to: str, by: str) -> list[set[str]]:
    """Whose numbers the aliases name that are on their way."""
    aliases = [p for sender, receiver, p in group.in_flight if (sender, receiver) == (by, to) and isinstance(p, Alias)]
    named = [vectors for alias in aliases for vectors in read_names(alias.names)]
    return [{group.nodes[flagged >> 1] for flagged, _, _ in vectors} for vectors in named]


def test_two_ways_that_skip_different_nodes_share_a_name() -> None:
    """S-FIG36."""
    group = TreeGroup(line(5), "34")
    group.suspect("2", by="1")
    message = group.publish("0", "34")
    group.carry(message, to="1", by="0")
    (jumped,) = group.travelling(message, to="3", by="1")
    assert group.names(jumped) == ({"0", "1"}, set())
    group.suspect("1", by="0")
    group.carry(message, to="2", by="0")
    (other,) = group.travelling(message, to="3", by="2")
    assert group.names(other) == ({"0", "2"}, set())
    group.carry(message, to="3", by="1")
    (first,) = group.travelling(message, to="4", by="3")
    assert group.names(first) == ({"1", "3"}, set())
    group.carry(message, to="3", by="2")
    assert group.order["3"] == [message]
    assert pushed_names(group, to="4", by="3") == [{"0", "1", "2", "3"}]


def test_no_path_is_used_on_which_too_many_names_are_missing() -> None:
    """S-FIG37."""
    group = TreeGroup(line(5), "4")
    group.suspect("1", by="0")
    group.suspect("3", by="2")
    message = group.publish("0", "4")
    group.carry(message, to="2", by="0")
    assert group.travelling(message, to="4") == []
    group.trust("1", by="0")
    group.carry(message, to="1", by="0")
    group.carry(message, to="2", by="1")
    (packet,) = group.travelling(message, to="4", by="2")
    assert group.names(packet) == ({"2"}, {"1"})


def test_only_who_has_the_header_may_send_in_anothers_name() -> None:
    """S-FIG39."""
    group = TreeGroup(line(4), "13")
    group.suspect("1", by="0")
    message = group.publish("0", "13")
    group.forward(message, "023")
    group.in_flight.clear()
    group.ask("1")
    assert group.travelling(message, to="1", by="2") == []
    assert group.travelling(message, to="1", by="3") == []
    assert [sender for sender, to, p in group.in_flight if isinstance(p, Alias) and to == "1"] == ["2", "3"]
    group.carry(Alias, to="1", by="3")
    group.carry(Alias, to="1", by="2")
    assert group.order["1"] == []
    group.in_flight.clear()
    group.suspect("0", by="2")
    (proxy,) = group.travelling(message, to="1", by="2")
    assert group.said(proxy).forwarder == 0
    group.carry(message, to="1", by="2")
    assert group.order["1"] == [message]


def test_with_f_2_a_message_jumps_over_two_nodes() -> None:
    """S-FIG310 (a)."""
    group = TreeGroup(line(4), "3", f=2)
    message = group.publish("0", "3")
    group.lose(message, to="1", by="0")
    group.suspect("1", by="0")
    group.suspect("2", by="0")
    group.carry(message, to="3", by="0")
    assert group.delivered["3"] == [message]


def test_with_f_2_a_node_downstream_is_a_proxy_for_one_upstream() -> None:
    """S-FIG310 (b)."""
    group = TreeGroup(line(4), "13 1", f=2)
    group.suspect("1", by="0")
    group.suspect("2", by="0")
    first = group.publish("0", "13")
    group.carry(first, to="3", by="0")
    group.suspect("2", by="3")
    second = group.publish("3", "1")
    group.carry(second, to="1", by="3")
    assert group.held("1") == [second]
    group.suspect("0", by="3")
    group.carry(first, to="1", by="3")
    assert group.order["1"] == [first, second]


def test_with_f_2_a_node_on_another_branch_is_a_proxy() -> None:
    """S-FIG310 (c)."""
    group = TreeGroup("01 02 13 24", "34", f=2)
    message = group.publish("0", "34")
    group.forward(message, "024")
    group.lose(message, to="1", by="0")
    group.suspect("0", by="2")
    group.suspect("1", by="2")
    (proxy,) = group.travelling(message, to="3", by="2")
    assert group.said(proxy).forwarder == 0
    group.carry(message, to="3", by="2")
    assert group.delivered["3"] == [message]


def gap(**options: object) -> tuple[TreeGroup, list[str]]:
    """S-GAP up to the moment when 3 has y: the ids of m, x and y."""
    group = TreeGroup("01 12 23 24", "1234 34 3", **options)  # type: ignore[arg-type]
    group.suspect("1", by="0")
    m = group.publish("0", "1234")
    group.forward(m, "024")
    group.lose(m, to="3", by="2")
    x = group.publish("1", "34")
    group.carry(x, to="2", by="1")
    group.lose(x, to="3", by="2")
    group.lose(x, to="4", by="2")
    group.trust("1", by="0")
    group.carry(m, to="1", by="0")
    group.carry(m, to="2", by="1")
    machine = group.machine("2")
    group.in_flight = [flying for flying in group.in_flight if flying[1] != "3" or isinstance(flying[2], Ack)]
    log = group._do(group.nodes[2], "on_suspect", group.nodes[3])  # Then trusted again: 2 sends m and x to 3 anew.
    assert log is not None
    group.trust("3", by="2")
    assert any(entry.message == m for entry in machine.store.entries.values())
    group.carry(m, to="3", by="2")
    group.lose(x, to="3", by="2")
    group.suspect("2", by="1")
    group.carry(x, to="4", by="1")
    group.suspect("2", by="4")
    y = group.publish("4", "3")
    group.carry(y, to="3", by="4")
    return group, [message.id for message in (m, x, y)]


def test_a_number_ahead_of_its_stream_does_not_stand_for_those_before_it() -> None:
    """S-GAP (LCM-C7)."""
    group, (m, x, y) = gap()
    assert group.processed("3", "1") == (0, {2})
    assert [message.id for message in group.held("3")] == [y]
    group.finish()
    assert [message.id for message in group.order["3"]] == [m, x, y]
    group.assert_forgotten()


def test_as_printed_a_number_ahead_hides_the_gap() -> None:
    """S-GAP (LCM-C7)."""
    group, (m, _, y) = gap(protocol="locamu-published")
    assert [message.id for message in group.order["3"]] == [m, y], "y is processed before x"
    repaired, _ = gap(protocol="locamu-published", corrections=["C7"])
    assert [message.id for message in repaired.order["3"]] == [m]


def proxied(**options: object) -> tuple[TreeGroup, list[str]]:
    """S-PROXY up to the moment when 2 has m."""
    group = TreeGroup(line(6), "23 245", **options)  # type: ignore[arg-type]
    group.suspect("2", by="1")
    x = group.publish("1", "23")
    group.carry(x, to="3", by="1")
    group.suspect("4", by="3")
    m = group.publish("3", "245")
    group.lose(m, to="2", by="3")
    group.carry(m, to="5", by="3")
    group.suspect("3", by="5")
    group.carry(m, to="4", by="5")
    group.suspect("3", by="4")
    group.carry(m, to="2", by="4")
    return group, [x.id, m.id]


def test_a_proxy_passes_on_the_whole_header() -> None:
    """S-PROXY (LCM-C9)."""
    group, (x, m) = proxied()
    assert [message.id for message in group.held("2")] == [m]
    group.finish()
    assert [message.id for message in group.order["2"]] == [x, m]
    group.assert_forgotten()


def test_as_printed_a_trimmed_header_breaks_the_order_at_the_next_proxy() -> None:
    """S-PROXY (LCM-C9)."""
    group, (_, m) = proxied(protocol="locamu-published")
    assert [message.id for message in group.order["2"]] == [m], "m is processed before x"
    repaired, _ = proxied(protocol="locamu-published", corrections=["C9"])
    assert repaired.order["2"] == []


def late(**options: object) -> tuple[TreeGroup, str, str]:
    """S-LATE."""
    group = TreeGroup(line(4), "123 3", **options)  # type: ignore[arg-type]
    group.suspect("1", by="0")
    m = group.publish("0", "123")
    group.forward(m, "023")
    assert group.processed("3", "0") == (0, {1})
    assert group.processed("3", "2") == (1, set())
    group.trust("1", by="0")
    group.forward(m, "012")
    return group, m.id, group.publish("1", "3").id


def test_names_learned_late_are_pushed_downstream() -> None:
    """S-LATE (LCM-C10)."""
    group, m, n = late()
    assert pushed_names(group, to="3", by="2") == [{"0", "1", "2"}]
    group.carry(Alias, to="3", by="2")
    assert group.processed("3", "1") == (1, set())
    follower = next(p for _, to, p in group.in_flight if to == "2" and isinstance(p, Data) and p.message.id == n)
    group.forward(follower.message, "123")
    assert [message.id for message in group.order["3"]] == [m, n]
    group.finish()
    group.assert_forgotten()


def test_as_printed_a_message_waits_for_a_name_that_nobody_passes_on() -> None:
    """S-LATE (LCM-C10)."""
    group, _, n = late(protocol="locamu-published")
    assert not [p for _, to, p in group.in_flight if to == "3" and not isinstance(p, Ack)]
    follower = next(p for _, to, p in group.in_flight if to == "2" and isinstance(p, Data) and p.message.id == n)
    group.forward(follower.message, "123")
    assert [message.id for message in group.held("3")] == [n]


def test_streams_count_what_is_routed_to_a_node_and_nothing_else() -> None:
    """S-GROUPS."""
    group = TreeGroup(line(4), "1 123 3 2")
    sent = [group.publish("0", members) for members in ("1", "123", "1", "3", "2", "3")]
    while any(isinstance(packet, Data) for _, _, packet in group.in_flight):
        by, to, packet = next(flying for flying in group.in_flight if isinstance(flying[2], Data))
        group.carry(packet.message, to=to, by=by)
        assert not group.held(to)
    assert group.counter("0", "0", "1") == 6
    assert group.counter("0", "0", "2") == 4
    assert group.order["1"] == sent
    assert group.order["2"] == [sent[i] for i in (1, 3, 4, 5)]
    assert group.order["3"] == [sent[i] for i in (1, 3, 5)]
    assert group.processed("1", "0") == (6, set())
    assert group.processed("2", "0") == (4, set())
    assert group.processed("2", "1") == (4, set())
    assert group.processed("3", "1") == (3, set())
    assert group.processed("3", "2") == (3, set())
    assert group.processed("3", "0") == (0, {1, 2, 4})
    group.in_flight.clear()
    group.round("2")
    group.carry(Ack, to="3", by="2")
    assert group.processed("3", "0") == (4, set())
    group.settle()
    group.assert_forgotten()


def fence(**options: object) -> tuple[TreeGroup, list[str]]:
    """S-FENCE up to the moment when 3 has heard of the floors of 2."""
    group = TreeGroup(line(4), "0123", **options)  # type: ignore[arg-type]
    first, second = group.publish("0", "0123"), group.publish("0", "0123")
    group.forward(first, "012")
    group.forward(second, "012")
    group.lose(first, to="3", by="2")
    if group.options.delta:
        group.lose(second, to="3", by="2")
    else:
        group.carry(second, to="3", by="2")
    group.round("2")
    group.carry(Ack, to="3", by="2")
    return group, [first.id, second.id]


@pytest.mark.parametrize("delta", [True, False])
def test_floors_behind_the_fence_are_ignored(delta: bool) -> None:
    """S-FENCE (LCM-C11)."""
    group, expected = fence(delta=delta)
    assert group.processed("3", "0") == (0, set())
    group.finish()
    assert [message.id for message in group.order["3"]] == expected
    group.assert_forgotten()


def test_as_printed_a_neighbours_minimum_loses_messages() -> None:
    """S-FENCE (LCM-C11)."""
    group, _ = fence(protocol="locamu-published", delta=False)
    assert group.processed("3", "0") == (2, set())
    group.finish()
    assert group.delivered["3"] == []
    repaired, expected = fence(protocol="locamu-published", delta=False, corrections=["C11"])
    repaired.finish()
    assert [message.id for message in repaired.delivered["3"]] == expected


def test_a_stale_copy_is_recognised_after_everything_is_forgotten() -> None:
    """S-STALE."""
    group = TreeGroup(line(5), "234")
    group.suspect("2", by="1")
    message = group.publish("0", "234")
    group.carry(message, to="1", by="0")
    (kept,) = group.travelling(message, to="3", by="1")
    group.finish()
    group.assert_forgotten()
    assert group.hand(kept, to="3", by="1") == []
    assert group.order["3"] == [message]


def spider(**options: object) -> tuple[TreeGroup, list[str]]:
    """S-SPIDER up to the moment when 4 has m2."""
    group = TreeGroup("01 12 23 34 25", "45 4", f=2, **options)  # type: ignore[arg-type]
    for peer in "12":
        group.suspect(peer, by="0")
    first = group.publish("0", "45")
    group.carry(first, to="5", by="0")
    for peer in "23":
        group.suspect(peer, by="5")
    second = group.publish("5", "4")
    group.carry(second, to="4", by="5")
    return group, [first.id, second.id]


def test_with_f_2_a_forwarder_numbers_far_enough_to_be_missed() -> None:
    """S-SPIDER (LCM-C13)."""
    group, expected = spider()
    assert [message.id for message in group.held("4")] == expected[1:]
    group.finish()
    assert [message.id for message in group.order["4"]] == expected
    group.assert_forgotten()


def test_with_the_published_radius_a_branch_hides_what_is_missing() -> None:
    """S-SPIDER (LCM-C13)."""
    group, (_, second) = spider(profile="published")
    assert [message.id for message in group.order["4"]] == [second]


ZIGZAG = "01 12 23 34 45 06 07 18 29 3a 4b"


def zigzag(**options: object) -> tuple[TreeGroup, list[str], list[bool]]:
    """S-ZIGZAG; whether each of the messages through the leaves was held back on arrival."""
    group = TreeGroup(ZIGZAG, "57 b a 9 8 7", f=2, **options)  # type: ignore[arg-type]
    first = group.publish("6", "57")
    group.forward(first, "6012345")
    waited = []
    last = first
    hops = [("5", "b", "4"), ("b", "a", "43"), ("a", "9", "32"), ("9", "8", "21"), ("8", "7", "10")]
    for here, there, skipped in hops:
        for peer in skipped:
            group.suspect(peer, by=here)
        last = group.publish(here, there)
        group.carry(last, to=there, by=here)
        waited.append(last in group.held(there))
        if waited[-1] and there != "7":
            shadow = {"b": "4", "a": "3", "9": "2", "8": "1"}[there]
            group.carry(first, to=there, by=shadow)
    return group, [first.id, last.id], waited


def test_with_f_2_nodes_beside_the_route_know_what_passed() -> None:
    """S-ZIGZAG (LCM-C14)."""
    group, expected, waited = zigzag()
    assert waited == [True] * 5
    group.finish()
    assert [message.id for message in group.order["7"]] == expected
    group.assert_forgotten()


def test_without_shadows_a_chain_beside_the_trunk_comes_back_unnoticed() -> None:
    """S-ZIGZAG (LCM-C14)."""
    group, (_, last), waited = zigzag(profile="published")
    assert waited == [False] * 5
    assert [message.id for message in group.order["7"]] == [last]


def test_a_node_that_recovers_goes_on_with_its_numbers() -> None:
    """S-CRASH."""
    group = TreeGroup(line(4), "3 23")
    a = group.publish("0", "3")
    group.carry(a, to="1", by="0")
    group.lose(a, to="2", by="1")
    group.crash("1")
    group.suspect("1", by="0")
    group.forward(a, "023")
    group.recover("1")
    group.trust("1", by="0")
    group.in_flight.clear()
    b = group.publish("1", "23")
    (packet,) = group.travelling(b, to="2", by="1")
    assert group.vector("1", packet) == {"2": 2, "3": 2}
    group.carry(b, to="2", by="1")
    assert group.held("2") == [b]
    group.finish()
    assert group.order["2"] == [a, b]
    assert group.delivered["3"] == [a, b]
    group.assert_forgotten()

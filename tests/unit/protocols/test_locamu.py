"""LoCaMu as a machine: copies, crashes, sessions, hostile peers, and input that makes no sense."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ordercast.cli import main
from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Place
from ordercast.core.messages import Packet
from ordercast.overlay.extended import Overlay
from ordercast.overlay.graphs import build_graph
from ordercast.protocols import lookup
from ordercast.protocols.locamu.packets import Ack, Alias, Data, Whole
from ordercast.scenario.model import Tree
from tests.support.group import assert_copy_is_independent
from tests.support.locamu_lab import TreeGroup, line

ROOT = Path(__file__).parents[3]
BINARY = "01 02 13 14 25 26"


def busy_group(**options: object) -> TreeGroup:
    """Packets in flight, messages held back, names learned late."""
    group = TreeGroup(BINARY, "0123456 345 26", **options)  # type: ignore[arg-type]
    for round_ in range(5):
        for node in "0356":
            group.publish(node, ["0123456", "345", "26"][round_ % 3])
        group.reorder(round_)
        del group.in_flight[:1]
        for _ in range(min(9, len(group.in_flight))):
            sender, receiver, packet = group.in_flight.pop(0)
            group.hand(packet, to=receiver, by=sender)
        if round_ == 1:
            group.suspect("1", by="0")
        if round_ == 2:
            group.suspect("2", by="6")
    return group


def test_a_copy_is_equal_and_independent() -> None:
    group = busy_group()
    assert any(group.held(node) for node in group.nodes)
    links = [link for node in group.nodes for _, link in group.machine(node).links._sessions()]
    assert any(link.held for link in links)
    for node in group.nodes:
        assert_copy_is_independent(group, node, topic="345")


def test_equal_histories_lead_to_equal_states() -> None:
    first, second = busy_group(), busy_group()
    assert first.in_flight == second.in_flight
    for node in first.nodes:
        assert _by_name(first.machines[node].frozen()) == _by_name(second.machines[node].frozen())


def _by_name(frozen: object) -> object:
    """With names for classes, because every group watches its nodes with classes of its own."""
    if isinstance(frozen, tuple | frozenset):
        return type(frozen)(map(_by_name, frozen)) if type(frozen) in {tuple, frozenset} else frozen
    return frozen.__qualname__ if isinstance(frozen, type) else frozen


@pytest.mark.parametrize("f", [1, 2])
def test_durable_state_is_enough_to_go_on(f: int) -> None:
    group = busy_group(f=f)
    for node in group.nodes:
        group.crash(node)
    group.in_flight.clear()
    for node in group.nodes:
        group.recover(node)
    group.settle()
    published = {"0123456": 8, "345": 8, "26": 4}
    for node in group.nodes:
        expected = sum(count for members, count in published.items() if node in members)
        assert len(group.delivered[node]) == len(set(group.delivered[node])) == expected
    group.assert_forgotten()


def test_every_packet_survives_the_wire() -> None:
    group = busy_group()
    for node in "3456":
        group.ask(node)
        group.round(node)
    codec = lookup("locamu").codec()
    assert {type(packet) for _, _, packet in group.in_flight} == {Ack, Alias, Data}
    for _, _, packet in group.in_flight:
        assert codec.decode(codec.encode(packet), "peer") == packet


def test_a_lost_reference_is_asked_for_and_whole_headers_follow_until_a_session_begins_anew() -> None:
    """LCM-H5: a session that does not go on is given up."""
    group = TreeGroup(line(3), "012")
    first, second, third = (group.publish("0", "012") for _ in range(3))
    group.lose(first, to="1", by="0")
    group.carry(second, to="1", by="0")
    assert group.order["1"] == []
    group.fire("1", "need")
    group.carry(Ack, to="0", by="1")
    later = [group.publish("0", "012") for _ in range(40)]
    sessions = [packet.session for a, b, packet in group.in_flight if (a, b) == ("0", "1") and isinstance(packet, Data)]
    assert sessions[0] == 1  # The third message, on its way already.
    assert sessions[1:33] == [0] * 32
    assert set(sessions[33:]) == {2}
    group.settle()
    assert group.order["1"] == group.order["2"] == [first, second, third, *later]
    group.assert_forgotten()


def test_a_link_that_loses_session_after_session_is_given_ever_fewer() -> None:
    """LCM-H5: four times as many copies with whole headers each time."""
    group = TreeGroup(line(3), "012")
    whole = []
    for _ in range(3):
        lost, ahead = (group.publish("0", "012") for _ in range(2))
        group.lose(lost, to="1", by="0")
        group.carry(ahead, to="1", by="0")
        group.in_flight.clear()
        group.fire("1", "need")
        group.carry(Ack, to="0", by="1")
        while not group.travelling(group.publish("0", "012"), to="1", by="0")[-1].session:
            pass
        copies = [packet for a, b, packet in group.in_flight if (a, b) == ("0", "1") and isinstance(packet, Data)]
        whole.append(sum(not packet.session for packet in copies))
        group.trust("1", by="0")
    assert whole == [32, 128, 512]


def test_a_copy_ahead_of_its_turn_is_read_when_the_turn_comes() -> None:
    """LCM-H4: a session is read in its own order."""
    group = TreeGroup(line(3), "012")
    first, second = (group.publish("0", "012") for _ in range(2))
    group.carry(second, to="1", by="0")
    group.carry(first, to="1", by="0")
    assert group.order["1"] == [first, second]


def test_a_copy_of_an_older_session_is_read_when_it_comes() -> None:
    """LCM-H4: every session has its own table."""
    group = TreeGroup(line(3), "012")
    old = group.publish("0", "012")
    group.trust("1", by="0")
    new = group.publish("0", "012")
    group.carry(new, to="1", by="0")
    assert group.order["1"] == []
    group.carry(old, to="1", by="0")
    assert group.order["1"] == [old, new]


def test_what_came_ahead_of_a_late_copy_is_read_although_it_was_given_up() -> None:
    """LCM-H5, LCM-P4: its sender is down for good, and nobody else can say what its header means."""
    group = TreeGroup(line(3), "012")
    first, second = (group.publish("0", "012") for _ in range(2))
    group.carry(second, to="1", by="0")
    group.fire("1", "need")
    group.lose(Ack, to="0", by="1")
    group.carry(first, to="1", by="0")
    assert group.order["1"] == [first, second]


def test_a_link_on_which_copies_come_late_is_waited_for() -> None:
    """LCM-H5: a copy that came after all, after it was asked for, has twice as long the next time."""
    group = TreeGroup(line(3), "012")
    for looks in (1, 2, 4):
        group.trust("1", by="0")
        group.in_flight.clear()
        late, ahead = (group.publish("0", "012") for _ in range(2))
        group.carry(ahead, to="1", by="0")
        for _ in range(looks):
            assert not any(packet.reset for packet in _acks(group, "1", "0"))
            group.fire("1", "need")
        assert [packet.reset for packet in _acks(group, "1", "0")][-1]
        group.carry(late, to="1", by="0")


def _acks(group: TreeGroup, by: str, to: str) -> list[Ack]:
    return [packet for a, b, packet in group.in_flight if (a, b) == (by, to) and isinstance(packet, Ack)]


def test_peers_that_break_the_rules_are_named() -> None:
    group = TreeGroup(line(6), "012345")
    message = group.publish("0", "012345")
    (good,) = group.travelling(message, to="1", by="0")
    far = Whole(5, 0, 0, [], []).flat()
    headers = [
        far,
        (),
        (0, 0),
        (0, 0, 0, 1, 0, 2, 1, 2, 1),
        (0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 1, 1),
        (0, 0, 0, 1, -2, 0),
    ]
    for header in headers:
        with pytest.raises(PeerError, match="0: sent 0#1 with a header that makes no sense"):
            group.hand(Data(message, 0, 0, header), to="1", by="0")
    for i, header in enumerate([(), (4, 7), (6, 0, 1), (6, 0, 1, 1 << 40, 0, 1, 0, 0), (0, 3, 1)]):
        with pytest.raises(PeerError, match="0: sent 0#1 with a header that makes no sense"):
            group.hand(Data(message, i + 2, 0, header), to="1", by="0")
    for names in [(), (1,), (1, 0, 2, 1), (1, 0, -5), (-1, 0), (1, 0, 1, 1, 2, 0, 1, 0, 1), (1, 0, 1, 1, 1, 2, 1),
                  (1, 0, 1, 1, 1, 0), (1, 0, 1, 1, 1, 1), (2, 0, 0, 2, 5000, *range(5000), 2, 2, 1, 2, 1)]:  # fmt: skip
        with pytest.raises(PeerError, match="0: sent names that make no sense"):
            group.hand(Alias(names), to="1", by="0")
    with pytest.raises(PeerError, match="0: sent an acknowledgement that makes no sense"):
        group.hand(Ack(((3,),)), to="1", by="0")
    with pytest.raises(PeerError, match="5: is not linked to this node"):
        group.hand(good, to="1", by="5")
    with pytest.raises(PeerError, match="0: sent a Packet"):
        group.hand(Packet(), to="1", by="0")


def test_a_message_goes_to_a_group_that_is_known() -> None:
    group = TreeGroup(line(3), "012")
    with pytest.raises(UsageError, match="unknown group '34'"):
        group.publish("0", "34")
    with pytest.raises(UsageError, match="locamu multicasts to groups"):
        group.broadcast("0", topic="012", dst=["1"])


def test_a_runtime_that_does_not_know_the_tree_is_told() -> None:
    info = lookup("locamu")
    with pytest.raises(UsageError, match="n0: locamu runs on a tree"):
        info.build(Place(NodeId("n0"), (), (NodeId("n0"),)), info.parse_options({}))


def test_nothing_is_kept_of_what_is_far_away() -> None:
    """LCM-P6: as many streams, columns and links in a tree of 500 nodes as in one of 100."""
    sizes = []
    for count in (100, 500):
        info = lookup("locamu")
        options = info.parse_options({})
        overlay = Overlay(build_graph(Tree(nodes=count), 0), {}, info, options)
        machine = info.build(overlay.place(NodeId("n4"), 0), options)
        sizes.append([len(getattr(machine.here, name)) for name in ("distance", "linked", "column")])
    assert sizes[0] == sizes[1]


TOML = """
name = "bad"
protocol = "locamu"
duration_ms = 100
{rest}
[[workload]]
kind = "schedule"
steps = [{{ node = "n0", at_ms = 1{step} }}]
"""
EDGES = '[overlay]\nkind = "edges"\nedges = [{}]\n'
LINE = '[overlay]\nkind = "line"\nnodes = 4\n'


@pytest.mark.parametrize(
    ("rest", "step", "reason"),
    [
        (EDGES.format('["n0", "n1"], ["n1", "n2"], ["n2", "n0"]'), "", "needs a tree, and this graph has a cycle"),
        (EDGES.format('["n0", "n1"], ["n2", "n3"]'), "", "not connected"),
        (EDGES.format('["n0", "n0"]'), "", "is a loop"),
        ('[overlay]\nkind = "clique"\nnodes = 4\n', "", "needs a tree, and this graph has a cycle"),
        (LINE + "[options]\nf = 3\n", "", "options.f: 3 is too large for locamu on this tree"),
        (LINE + "[options]\nf = 0\n", "", "options of locamu"),
        (LINE + "[options]\nradius = 3\n", "", "unknown option of locamu 'radius'"),
        (LINE, ', topic = "none"', "unknown topic 'none'"),
        (LINE, ', dst = ["n2"]', "locamu multicasts to groups"),
        (LINE + '[groups]\nkind = "explicit"\nmembers = { t = ["n9"] }\n', "", "unknown node 'n9'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    rest: str,
    step: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(TOML.format(rest=rest, step=step))
    monkeypatch.setattr(sys, "argv", ["ordercast", "simulate", str(file), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert reason in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("page", ["locamu", "locamu-published"])
def test_the_page_has_every_heading(page: str) -> None:
    text = (ROOT / "docs" / "protocols" / f"{page}.md").read_text(encoding="utf-8")
    for heading in ("## Promise", "## Assumptions", "## Steps", "## Source", "## Deviations", "## Cost"):
        assert heading in text


def test_the_page_explains_each_step_that_the_code_cites() -> None:
    page = (ROOT / "docs" / "protocols" / "locamu.md").read_text(encoding="utf-8")
    files = [*(ROOT / "src/ordercast/protocols/locamu").rglob("*.py"), ROOT / "src/ordercast/overlay/extended.py"]
    cited = {step for file in files for step in re.findall(r"LCM-[A-Z]\d+", file.read_text(encoding="utf-8"))}
    assert len(cited) > 20
    for step in sorted(cited):
        assert f"- **{step}** " in page or f"| {step} |" in page, step

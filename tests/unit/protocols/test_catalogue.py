"""The catalogue: every protocol can be found, says truly what it costs, and behaves as a machine must."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.messages import Packet
from ordercast.protocols import CATALOGUE, lookup
from ordercast.protocols.flood.unordered import Bare
from tests.support.group import Group, assert_copy_is_independent

RELIABLE = ("fifo", "flood", "sequencer", "vector")
BROADCASTS = (*RELIABLE, "unordered")
PEOPLE = ("ann", "bob", "cho", "dan")
RING = [("ann", "bob"), ("bob", "cho"), ("cho", "dan"), ("dan", "ann")]


def busy_group(protocol: str) -> Group:
    """A group with packets in flight and messages held back."""
    group = Group(protocol, *PEOPLE, edges=RING)
    for round_ in range(6):
        for node in PEOPLE:
            group.broadcast(node, bytes([round_]))
        group.reorder(round_)
        del group.in_flight[:2]
        for _ in range(12):
            sender, receiver, packet = group.in_flight.pop(0)
            group.hand(packet, to=receiver, by=sender)
    return group


def test_the_catalogue_is_sorted_by_name() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    assert all(info.name == name for name, info in CATALOGUE.items())


@pytest.mark.parametrize("protocol", BROADCASTS)
def test_a_copy_is_equal_and_independent(protocol: str) -> None:
    group = busy_group(protocol)
    for node in group.nodes:
        assert_copy_is_independent(group, node)


@pytest.mark.parametrize("protocol", BROADCASTS)
def test_equal_histories_lead_to_equal_states(protocol: str) -> None:
    first, second = busy_group(protocol), busy_group(protocol)
    assert first.in_flight == second.in_flight
    for node in first.nodes:
        assert first.machines[node] == second.machines[node]
        assert hash(first.machines[node]) == hash(second.machines[node])


@pytest.mark.parametrize("protocol", RELIABLE)
def test_durable_state_is_enough_to_go_on(protocol: str) -> None:
    group = busy_group(protocol)
    for node in PEOPLE:
        group.crash(node)
    group.in_flight.clear()
    for node in PEOPLE:
        group.recover(node)
    group.settle()
    for node in group.nodes:
        delivered = group.delivered[node]
        assert len(delivered) == len(set(delivered)) == 24


@pytest.mark.parametrize("protocol", RELIABLE)
def test_saved_state_does_not_change_with_the_machine_it_came_from(protocol: str) -> None:
    group = busy_group(protocol)
    node = group.nodes[0]
    saved = group.machines[node].save()
    before = group.build(node)
    before.restore(saved)
    group.settle()
    after = group.build(node)
    after.restore(saved)
    assert before == after


@pytest.mark.parametrize("protocol", BROADCASTS)
def test_every_packet_survives_the_wire(protocol: str) -> None:
    group = busy_group(protocol)
    codec = CATALOGUE[protocol].codec()
    assert group.in_flight
    for _, _, packet in group.in_flight:
        assert codec.decode(codec.encode(packet), "ann") == packet


@pytest.mark.parametrize("protocol", BROADCASTS)
@pytest.mark.parametrize("size", [2, 8, 15, 16, 100])
def test_the_metadata_formula_is_what_the_wire_says(protocol: str, size: int) -> None:
    """N nodes, o and t the lengths of the names of publisher and topic; numbers below 128."""
    info = CATALOGUE[protocol]
    nodes = [f"n{i}" for i in range(size)]
    group = Group(protocol, *nodes, edges=[(nodes[0], node) for node in nodes[1:]])
    message = group.broadcast(nodes[1], b"payload", topic="weather")
    codec = info.codec()
    header = codec.size(group.in_flight[0][2]) - len(message.payload)
    if protocol == "sequencer":
        group.carry(message, to=nodes[0])
        order = next(packet for _, _, packet in group.in_flight if type(packet).__name__ == "Order")
        header += codec.size(order)
    names = {"o": len(message.origin), "t": len(message.topic), "N": size}
    assert header == eval(info.metadata, {"__builtins__": {}}, names)


@pytest.mark.parametrize("protocol", [*BROADCASTS, "links"])
def test_every_protocol_has_a_page_that_explains_each_step_the_code_cites(protocol: str) -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "protocols" / f"{protocol}.md").read_text(encoding="utf-8")
    for heading in ("## Promise", "## Assumptions", "## Steps", "## Source", "## Deviations", "## Cost"):
        assert heading in page
    (file,) = (
        (root / "src" / "ordercast" / "protocols").rglob(f"{protocol}.py")
        if protocol != "links"
        else (root / "src" / "ordercast" / "protocols" / "shared" / "links.py",)
    )
    code = file.read_text(encoding="utf-8")
    cited = set(re.findall(r"\b(?:FLD|LNK)-[A-Z]\d\b", code))
    assert cited
    for step in sorted(cited):
        assert f"- **{step}** " in page


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown protocol 'vecter'; did you mean 'vector'"):
        lookup("vecter")


OWN = """
from ordercast.protocols import lookup
import msgspec
MINE = msgspec.structs.replace(lookup("flood"), name="mine")
OTHER = 3
"""


def test_your_own_protocol_is_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assert lookup(f"{file}:MINE").name == "mine"
    assert lookup(f"{file}:MINE") is lookup(f"{file}:MINE")


def test_your_own_protocol_is_loaded_from_a_module() -> None:
    assert lookup("ordercast.protocols.flood.flood:FLOOD") is CATALOGUE["flood"]


def test_what_is_wrong_with_your_own_protocol_is_said(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    broken = tmp_path / "broken.py"
    broken.write_text("import nonesuch_module")
    for name, reason in [
        (f"{file}:NONE", "there is no 'NONE' in it"),
        (f"{file}:OTHER", "'OTHER' is not a ProtocolInfo"),
        (f"{tmp_path}/absent.py:MINE", "no file"),
        (f"{broken}:MINE", "cannot be loaded: ModuleNotFoundError"),
        ("nonesuch.module:MINE", "cannot be loaded: ModuleNotFoundError"),
    ]:
        with pytest.raises(UsageError, match=reason):
            lookup(name)


def test_unordered_forgets_what_is_lost_and_keeps_no_order() -> None:
    group = Group("unordered", "ann", "bob")
    first, second = group.broadcast("ann"), group.broadcast("ann")
    group.lose(first, to="bob")
    group.settle()
    assert group.delivered["bob"] == [second]


def test_unordered_refuses_strangers_and_foreign_packets() -> None:
    group = Group("unordered", "ann", "bob", "cho", edges=[("ann", "bob"), ("bob", "cho")])
    packet: Packet = Bare(group.broadcast("cho"))
    with pytest.raises(PeerError, match="cho: is not a neighbour"):
        group.hand(packet, to="ann", by="cho")
    with pytest.raises(PeerError, match="bob: sent a Packet"):
        group.hand(Packet(), to="ann", by="bob")

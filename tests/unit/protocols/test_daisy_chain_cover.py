"""The rule `cover`: visits take along exactly their past, and a flush keeps the logs short."""

from __future__ import annotations

import pytest

from ordercast.core.chance import mix, salt
from ordercast.core.effects import EffectLog
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.explore import explore
from ordercast.protocols.daisy_chain.cover import CoverChain, FlushAsk, Flushed, Mark
from ordercast.protocols.daisy_chain.packets import CheckedHop
from tests.support.multicast import Servers

MANY = {f"m{i}": "123" for i in range(8)}


def cover(size: int, messages: dict[str, str], flush_every: int = 1000) -> Servers:
    return Servers("daisy-chain", size, messages, rule="cover", flush_every=flush_every)


def chain(servers: Servers, node: int) -> CoverChain:
    machine = servers.machines[NodeId(str(node))]
    assert isinstance(machine, CoverChain)
    return machine


def test_a_log_that_has_grown_long_asks_for_a_flush_once() -> None:
    servers = cover(3, MANY, flush_every=3).run("c:m0 c:m1 c:m2 c:m3 c:m4 1>2x5")
    assert list(servers.channels["2", "1"]) == [FlushAsk(0)]
    assert chain(servers, 2).rule.logged() == 5


def test_a_flush_empties_all_logs_and_lets_new_messages_wait_meanwhile() -> None:
    servers = cover(3, MANY, flush_every=3).run("c:m0 c:m1 c:m2 1>2x3 2>1 c:m3")
    assert servers.order(1) == "m0 m1 m2", "m3 waits at 1, which has marked the end of the epoch"
    servers.run("1>2")
    assert chain(servers, 2).rule.logged() == 0, "nothing can come from below any more"
    assert servers.order(3) == ""
    servers.run("*")
    assert all(chain(servers, node).epoch == 1 for node in (1, 2, 3))
    assert servers.order(1) == servers.order(2) == servers.order(3) == "m0 m1 m2 m3"


def test_a_message_of_the_next_epoch_may_arrive_before_the_end_of_the_last() -> None:
    servers = cover(3, MANY, flush_every=3).run("c:m0 c:m1 c:m2 1>2x3 2>1 c:m3 1>2 1>3 2>3x4 3>1x2 1>2")
    assert chain(servers, 2).epoch == 0
    assert servers.order(2) == "m0 m1 m2 m3"
    servers.run("*")
    assert servers.completed == ["m0", "m1", "m2", "m3"]


def test_a_mark_of_the_next_epoch_may_arrive_before_the_end_of_the_last() -> None:
    servers = cover(3, MANY, flush_every=1)
    servers.run("c:m0 1>2 2>1 1>2 2>3x2 1>3 3>1x2 c:m1 1>2 2>3 3>1 1>2")
    second = chain(servers, 2)
    assert (second.epoch, second.marks, second.marked) == (0, 1, True)
    servers.run("3>2")
    assert (second.epoch, second.marks, second.marked) == (1, 0, True)
    servers.run("*")
    assert {chain(servers, node).epoch for node in (1, 2, 3)} == {2}
    assert servers.completed == ["m0", "m1"]


def test_a_flush_of_the_next_epoch_may_be_asked_for_before_the_end_of_the_last() -> None:
    servers = cover(4, {"a": "12", "b": "23"}, flush_every=1)
    servers.run("c:a 1>2 2>1 1>2 1>3 2>3 1>4 2>4 3>4 4>2 4>3 c:b 2>3 3>1")
    lowest = chain(servers, 1)
    assert (lowest.epoch, lowest.wanted) == (0, True)
    servers.run("4>1")
    assert (lowest.epoch, lowest.wanted, lowest.marked) == (1, False, True)
    servers.run("*")
    assert {chain(servers, node).epoch for node in (1, 2, 3, 4)} == {2}


@pytest.mark.parametrize("seed", range(30))
def test_flushes_disturb_neither_order_nor_progress(seed: int) -> None:
    dice = salt(seed, "flush")
    sets = ["134", "24", "1245", "35", "15", "2", "2345", "45"]
    messages = {f"m{i}": sets[mix(dice, i, 1) % len(sets)] for i in range(30)}
    servers = cover(5, messages, flush_every=2)
    waiting = list(messages)
    step = 0
    while True:
        step += 1
        busy = sorted(pair for pair, channel in servers.channels.items() if channel)
        if waiting and (not busy or mix(dice, step, 2) % 4 == 0):
            servers.enter(waiting.pop())
        elif busy:
            servers.carry(*busy[mix(dice, step, 3) % len(busy)])
        else:
            break
    assert not servers.is_blocked()
    assert not servers.has_cycle()
    assert chain(servers, 1).epoch >= 2
    assert chain(servers, 5).rule.logged() <= 2 + 30 // 2


def test_flushes_disturb_no_interleaving_of_a_small_configuration() -> None:
    options = {"rule": "cover", "flush_every": 1, "check_invariants": True}
    found = explore("daisy-chain", nodes=3, messages=3, sizes_from=2, options=options)
    assert found.decided
    assert found.counterexample is None
    assert found.sizes[-1].outcomes == 120, "and no admissible order is excluded"


@pytest.mark.parametrize(
    ("packet", "peer", "to", "reason"),
    [
        (FlushAsk(0), "1", "2", "asks 2 for a flush, which is for another server to decide"),
        (FlushAsk(0), "client", "1", "asks 1 for a flush"),
        (Mark(0), "3", "2", "marks epoch 0, which 2 does not expect of it"),
        (Mark(1), "1", "2", "marks epoch 1, which 2 does not expect of it"),
        (Flushed(0), "3", "2", "ends epoch 0, which 2 has not marked"),
        (Flushed(0), "2", "1", "ends epoch 0, which 1 has not marked"),
    ],
)
def test_nonsense_is_blamed_on_the_peer(packet: Packet, peer: str, to: str, reason: str) -> None:
    machine = cover(3, {}).machines[NodeId(to)]
    with pytest.raises(PeerError, match=f"{peer}: {reason}"):
        machine.on_receive(NodeId(peer), packet, EffectLog())


def test_a_message_held_back_at_the_end_of_an_epoch_is_a_bug_of_ours() -> None:
    servers = cover(3, {"a": "12", "b": "12"}).run("c:a c:b")
    lost = servers.channels["1", "2"].popleft()
    assert lost.carries
    servers.channels["1", "2"][0] = _whole(servers.channels["1", "2"][0])
    servers.run("1>2")
    with pytest.raises(InvariantError, match="2 still holds client#2 back at the end of an epoch"):
        servers.machines[NodeId("2")].on_receive(NodeId("1"), Mark(0), EffectLog())


def _whole(packet: Packet) -> Packet:
    """The second of two packets to server 2, with a clock that does not need the first to be read."""
    assert isinstance(packet, CheckedHop)
    return CheckedHop(packet.message, (2, 0, 0), True, packet.index)


def test_a_flush_that_is_asked_for_twice_happens_once() -> None:
    servers = cover(3, MANY, flush_every=2).run("c:m0 c:m1 1>2x2 2>3x2")
    assert list(servers.channels["2", "1"]) == list(servers.channels["3", "1"]) == [FlushAsk(0)]
    servers.run("*")
    assert {chain(servers, node).epoch for node in (1, 2, 3)} == {1}

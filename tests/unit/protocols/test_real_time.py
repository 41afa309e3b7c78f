"""Real-time order: nothing is answered before all its destinations have come to it, at its turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ordercast.core.effects import Deliver, EffectLog
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Outbox
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.daisy_chain.variants import DAISY_CHAIN
from ordercast.protocols.multicast.multicast import Key, key_of
from ordercast.protocols.multicast.real_time import Reached, RealTime
from tests.support.multicast import CLIENT, Servers

SMALLEST = {"m": "12", "p": "1", "q": "2"}


def test_the_smallest_violation_happens_without_it_and_not_with_it() -> None:
    """m is on its way from 1 to 2; p follows it at 1 and is answered; q, asked for after that, overtakes m at 2."""
    plain = Servers("daisy-chain", 2, SMALLEST).run("c:m c:p")
    assert plain.completed == ["p"]
    assert plain.run("c:q *").all_orders() == {1: "m p", 2: "q m"}

    ordered = Servers("daisy-chain-real-time", 2, SMALLEST).run("c:m c:p")
    assert ordered.completed == []
    assert ordered.order(1) == ""
    assert ordered.run("* c:q *").all_orders() == {1: "m p", 2: "m q"}
    assert set(ordered.completed) == {"m", "p", "q"}


def test_a_message_to_one_server_waits_for_nobody() -> None:
    lab = Servers("daisy-chain-real-time", 2, {"p": "1"}).run("c:p")
    assert lab.completed == ["p"]
    assert not any(lab.channels.values())


class AnnouncesEarly(RealTime):
    """Tells the others as soon as a message is ordered, although one before it still waits."""

    def _absorb(self, effects: EffectLog, out: Outbox) -> None:
        for effect in effects.effects:
            if isinstance(effect, Deliver):
                for other in effect.message.dst:
                    if other != self.node:
                        out.send(other, Reached(*key_of(effect.message)))
        super()._absorb(effects, out)

    def _announce(self, key: Key, others: list[NodeId], out: Outbox) -> None:
        pass


def early() -> ProtocolInfo:
    def build(place: Any, options: Any) -> RealTime:
        return AnnouncesEarly(place, DAISY_CHAIN.build(place, options))

    return msgspec.structs.replace(lookup("daisy-chain-real-time"), name="announces-early", build=build)


@pytest.mark.parametrize(
    ("protocol", "answered"), [("daisy-chain-real-time", []), (early(), ["m"])], ids=["at its turn", "early"]
)
def test_to_be_ordered_is_not_enough(protocol: str | ProtocolInfo, answered: list[str]) -> None:
    """x is slow on its way from 1 to 3, m follows it at 1; an answer to m now would let q at 3 come before both."""
    lab = Servers(protocol, 3, {"x": "13", "m": "12", "q": "3"}).run("c:x c:m")
    while busy := [pair for pair, channel in sorted(lab.channels.items()) if channel and pair != ("1", "3")]:
        lab.carry(*busy[0])
    assert lab.completed == answered
    assert lab.run("c:q *").order(3) == "q x"


def test_only_servers_can_say_that_they_have_come_to_a_message() -> None:
    lab = Servers("daisy-chain-real-time", 2, SMALLEST)
    with pytest.raises(PeerError, match="client: says that it has come to message client#1, but is no server"):
        lab.machines[NodeId("1")].on_receive(CLIENT, Reached(Origin("client"), 1), EffectLog())


def test_a_copy_is_equal_and_independent() -> None:
    lab = Servers("skeen-real-time", 2, SMALLEST).run("c:m@1 c:m@2 1>2")
    machine = lab.machines[NodeId("2")]
    clone, frozen = machine.copy(), machine.frozen()
    assert clone == machine
    lab.run("c:q@2")
    assert clone != machine
    assert clone.frozen() == frozen

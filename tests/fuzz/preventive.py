"""What a neighbour with the token can say on a connection of the preventive broadcast, in each of its kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message, Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.preventive.packets import Begin, Hello, SafeMark
from ordercast.sim.overlays.run import KIND, live
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import recorded
from tests.fuzz.engine import Target
from tests.fuzz.harvest import drawn
from tests.properties.preventive_memory_swarm import memory_scenario
from tests.support.hand_wires import HandWires
from tests.support.restless_sampler import RestlessSampler

_OF_A_KIND = 8
_MALLORY, _FRIEND = Peer("node", "mallory", 0, "mallory"), Peer("node", "friend", 0, "friend")
_MEMORY = {"memory": "links", "skip_sender": False, "fallback": "hint"}
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "preventive": ("preventive", {"sampling": "spray"}),
    "preventive-cyclon": ("preventive", {"sampling": "cyclon"}),
    "preventive-links": ("preventive", {**_MEMORY, "sampling": "spray"}),
    "preventive-knowing": ("preventive", {"local_vectors": True, "skip_sender": False, "forget_ms": 0}),
    "flood-overlay": ("flood-overlay", {"sampling": "spray"}),
    "vector-overlay": ("vector-overlay", {"sampling": "spray"}),
}
"""By name: protocol and options."""


@cache
def _said(name: str) -> list[bytes]:
    """Packets of a short run with churn, and such as the types allow."""
    protocol, options = _KINDS[name]
    info = lookup(protocol)
    found: dict[type[Packet], list[bytes]] = {}

    def tap(_source: str, _target: str, packet: Packet) -> None:
        some = found.setdefault(type(packet), [])
        if len(some) < _OF_A_KIND and not isinstance(packet, RestlessSampler.packets):
            some.append(info.codec().encode(packet))

    def listen(world: OverlayWorld) -> tuple[int, bool]:
        world.processes.tap = tap
        return live(world)

    recorded(KIND._replace(live=listen), _scenario(options), info, 3, None, packets=False)
    rest = tuple(kind for kind in info.packets if kind not in found)
    return [data for some in found.values() for data in some] + [
        info.codec().encode(packet) for packet in drawn(rest, name)
    ]


def _scenario(options: dict[str, Any]) -> Any:
    import msgspec

    churn = memory_scenario(1)
    times = {"period_ms": 150, "ack_ms": 260, "retry_ms": 50, "join_ms": 300}
    return msgspec.structs.replace(churn, options={**times, **options}, duration_ms=700.0, fault=[])


def _round_trip(info: ProtocolInfo) -> Callable[[bytes], None]:
    codec = info.codec()

    def decode(data: bytes) -> None:
        packet = codec.decode(data, "mallory")
        assert codec.decode(codec.encode(packet), "mallory") == packet

    return decode


def _neighbour(info: ProtocolInfo, options: dict[str, Any]) -> Callable[[bytes], None]:
    """A process with two neighbours takes what one of them says, or blames it; then it goes on as before."""
    codec, chosen = info.codec(), info.parse_options(dict(options))

    def receive(data: bytes) -> None:
        packet = codec.decode(data, "mallory")
        machine, wires = _between_two(info, chosen)
        try:
            machine.on_packets(1, [packet])
        except PeerError:
            machine.on_closed(1, gone=False)
            raise
        finally:
            before = len(wires.delivered)
            machine.on_publish(_message(2))
            assert len(wires.delivered) == before + 1
            for _ in range(30):
                if wires.timers:
                    machine.on_timer(wires.next_timer())
            for _, said in wires.sent:
                codec.encode(said)

    return receive


def _between_two(info: ProtocolInfo, options: Any) -> tuple[OverlayMachine, HandWires]:
    assert info.build_overlay is not None
    wires = HandWires(first=10)
    place = OverlayPlace(Peer("node", "me", 0, "me"), ("friend", "mallory"), genesis=True, salt=3)
    machine = info.build_overlay(wires, place, options)
    machine.on_start()
    first: Packet = Begin(0, 0) if options.memory != "vector" else SafeMark(0)
    for connection, peer in ((1, _MALLORY), (2, _FRIEND)):
        machine.on_opened(connection, peer)
        machine.on_packets(connection, [Hello(options.rules, Origin("me"), (), True), first])
    machine.on_publish(_message(1))
    return machine, wires


def _message(number: int) -> Message:
    return Message(Origin(NodeId("me")), number, Topic("t0"), b"")


def preventive_targets() -> Iterator[Target]:
    for name, (protocol, options) in _KINDS.items():
        info = lookup(protocol)
        seeds: Callable[[], list[bytes]] = lambda name=name: _said(name)  # type: ignore[misc]  # noqa: E731
        if name == protocol:
            yield Target(f"packets-of-{name}", seeds, _round_trip(info), PeerError, cases=900)
        yield Target(f"neighbours-of-{name}", seeds, _neighbour(info, options), PeerError, cases=400)

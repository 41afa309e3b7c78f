"""What strangers with a token can cast to members of clusters and gossip groups, and say on a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.sim.overlays.run import KIND, live
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import recorded
from tests.fuzz.engine import Target
from tests.fuzz.harvest import drawn
from tests.properties.cluster_swarm import cluster_scenario
from tests.support.hand_wires import HandWires

_OF_A_KIND = 8
_SENDER = Peer("node", "mallory", 0, "mallory")
_OPTIONS = {
    "cluster": {"entries": 3, "managers": ("me", "other", "third")},
    "gossip": {},
}


@cache
def _said(name: str) -> list[bytes]:
    """Packets of a short run with losses and hand-overs, and such as the types allow."""
    info = lookup(name)
    found: dict[type[Packet], list[bytes]] = {}

    def tap(_source: str, _target: str, packet: Packet) -> None:
        some = found.setdefault(type(packet), [])
        if len(some) < _OF_A_KIND:
            some.append(info.codec().encode(packet))

    def listen(world: OverlayWorld) -> tuple[int, bool]:
        world.processes.tap = tap
        return live(world)

    scenario = cluster_scenario(3)
    if name == "gossip":
        import msgspec

        scenario = msgspec.structs.replace(scenario, options={}, protocol="gossip")
    recorded(KIND._replace(live=listen), scenario, info, 3, None, packets=False)
    rest = tuple(kind for kind in info.packets if kind not in found)
    return [data for some in found.values() for data in some] + [
        info.codec().encode(packet) for packet in drawn(rest, name)
    ]


def _round_trip(info: ProtocolInfo) -> Callable[[bytes], None]:
    codec = info.codec()

    def decode(data: bytes) -> None:
        packet = codec.decode(data, "mallory")
        assert codec.decode(codec.encode(packet), "mallory") == packet

    return decode


def _machine(info: ProtocolInfo) -> Callable[[bytes], None]:
    codec = info.codec()
    options = info.parse_options(dict(_OPTIONS[info.name]))

    def receive(data: bytes) -> None:
        packet = codec.decode(data, "mallory")
        machine, wires = _fresh(info, options)
        try:
            machine.on_cast(_SENDER, [packet])
        except PeerError:
            machine.on_packets(1, [packet])
        finally:
            for _ in range(30):  # It goes on as if nothing had been.
                machine.on_timer(wires.next_timer())
        for _, said in wires.casts:
            codec.encode(said)

    return receive


def _fresh(info: ProtocolInfo, options: object) -> tuple[OverlayMachine, HandWires]:
    assert info.build_overlay is not None
    wires = HandWires()
    place = OverlayPlace(Peer("node", "me", 0, "me"), ("other", "mallory"), genesis=True, salt=3)
    machine = info.build_overlay(wires, place, options)
    machine.on_start()
    machine.on_opened(1, _SENDER)
    return machine, wires


def overlay_targets() -> Iterator[Target]:
    for name in _OPTIONS:
        info = lookup(name)
        yield Target(f"packets-of-{name}", lambda name=name: _said(name), _round_trip(info), PeerError, cases=900)  # type: ignore[misc]
        yield Target(f"casts-to-{name}", lambda name=name: _said(name), _machine(info), PeerError, cases=400)  # type: ignore[misc]

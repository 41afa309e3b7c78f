"""What is really said and kept: packets of every protocol and of brokers from small runs, and machines as they end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import msgspec

from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.core.wire import Codec
from ordercast.protocols import CATALOGUE
from ordercast.scenario.load import load_scenario
from ordercast.sim import simulate
from tests.support.any_packet import any_packet

ROOT = Path(__file__).parents[2]
_OF_A_KIND = 6
"""So many packets of each kind are enough to begin with."""
_MULTICAST = ("daisy-chain", "delporte-fauconnier", "replicated-", "skeen")


class Harvest(msgspec.Struct):
    """What a run of one protocol left."""

    info: ProtocolInfo
    packets: dict[type[Packet], list[bytes]] = {}
    places: list[tuple[Place, Any]] = []
    machines: list[Machine] = []

    def encodings(self) -> list[bytes]:
        """Packets of every kind; those that the run had no use for are drawn."""
        chance, codec = random.Random(self.info.name), self.info.codec()
        missing = [kind for kind in self.info.packets if kind not in self.packets]
        drawn = [codec.encode(any_packet((kind,), chance)) for kind in missing for _ in range(_OF_A_KIND)]
        return [data for some in self.packets.values() for data in some] + drawn

    def fresh(self) -> Machine:
        """A machine as it is built, at a place that has neighbours."""
        place, options = self.places[0]
        return self.info.build(place, options)


@cache
def harvest(protocol: str) -> Harvest:
    """The harvest of a short run under virtual time."""
    info = CATALOGUE[protocol]
    found = Harvest(info)

    def build(place: Place, options: Any) -> Machine:
        machine = info.build(place, options)
        found.places.append((place, options))
        found.machines.append(machine)
        return machine

    def size(codec: Codec, packet: Packet) -> int:
        some = found.packets.setdefault(type(packet), [])
        encoded = codec.encode(packet)
        if len(some) < _OF_A_KIND:
            some.append(encoded)
        return len(encoded) + 4

    scenario = load_scenario(ROOT / "scenarios" / f"{_scenario(info)}.toml")
    with TemporaryDirectory() as directory, mock.patch.object(Codec, "size", size):
        simulate(scenario, msgspec.structs.replace(info, build=build), seed=1, out=Path(directory) / "run")
    return found


def _scenario(info: ProtocolInfo) -> str:
    if info.name.startswith(_MULTICAST):
        return "multicast"
    return "locamu-join-leave" if info.admits else "calm"


def drawn(kinds: tuple[type[Packet], ...], seed: str) -> Iterator[Packet]:
    """Packets of each of these kinds with any content that its types allow."""
    chance = random.Random(seed)
    for kind in kinds:
        for _ in range(_OF_A_KIND):
            yield any_packet((kind,), chance)

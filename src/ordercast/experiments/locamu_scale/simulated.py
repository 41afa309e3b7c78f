"""Simulated runs of the studies: a world with a watch on it, and the judge's verdict on its trace."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.core.wire import Codec
from ordercast.experiments.kit.claims import judged
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale.meter import Metered, metered
from ordercast.protocols.locamu import packets as locamu_packets
from ordercast.protocols.shared.sizes import WORD
from ordercast.protocols.tree import cbcast_clocks
from ordercast.scenario.model import Scenario, Trace
from ordercast.sim.links.host import Host
from ordercast.sim.links.world import World
from ordercast.sim.run import live, simulate

Prepare = Callable[[World], None]


class Lived(msgspec.Struct, frozen=True):
    """A world after its run, and the judge's verdict on its trace."""

    world: World
    judged: Row
    """Whether it held what it promises; empty where nobody looked."""


def lived(scenario: Scenario, protocol: ProtocolInfo, prepare: Prepare | None = None, *, judge: bool = True) -> Lived:
    """Let a scenario live, watched from its beginning by what `prepare` puts in place, and have it judged."""
    worlds: list[World] = []

    def drive(world: World) -> tuple[int, bool]:
        worlds.append(world)
        if prepare is not None:
            prepare(world)
        return live(world)

    scenario = msgspec.structs.replace(scenario, trace=Trace(record="app"))
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run" if judge else None
        simulate(scenario, protocol, out=run, drive=drive)
        return Lived(worlds[0], {} if run is None else _judged(run))


def _judged(run: Path) -> Row:
    from ordercast.verify.judge import judge_path

    (verdict,) = judge_path(run)
    return judged(verdict)


def machine_of(host: Host) -> Any:
    """The machine of a host, also of one that is metered."""
    machine = host.machine
    return machine.inside if isinstance(machine, Metered) else machine


Count = Callable[[Packet, Any], int]
"""What the copy that a machine is sending costs by the source's count."""


class Sizes:
    """Headers of the copies of messages: true bytes on the wire, and bytes by the source's count."""

    def __init__(self, protocol: ProtocolInfo, count: Count | None) -> None:
        self.protocol = metered(protocol, self._seen)
        self._count = count
        self._codec: Codec = protocol.codec()
        self.copies = 0
        self.wire = 0
        self.wire_most = 0
        self.model = 0
        self.model_most = 0
        self.others = 0
        """Packets without a message: acknowledgements and the like."""
        self.other_bytes = 0

    def _seen(self, _node: NodeId, _peer: NodeId, packet: Packet, machine: Machine) -> None:
        size = self._codec.size(packet)
        message: Message | None = getattr(packet, packet.carries) if packet.carries else None
        if message is None:
            self.others += 1
            self.other_bytes += size
            return
        header = size - len(message.payload)
        counted = self._count(packet, machine) if self._count is not None else 0
        self.copies += 1
        self.wire += header
        self.wire_most = max(self.wire_most, header)
        self.model += counted
        self.model_most = max(self.model_most, counted)

    def row(self) -> Row:
        return {
            "copies": self.copies,
            "wire_mean": self.wire / self.copies,
            "wire_most": self.wire_most,
            "model_mean": self.model / self.copies if self._count is not None else None,
            "model_most": self.model_most if self._count is not None else None,
            "other_packets": self.others,
            "other_bytes_per_copy": self.other_bytes / self.copies,
        }


def by_tally(_packet: Packet, machine: Any) -> int:
    """As the machine counts it, which has option `tally`: what changed since the copy before on the link."""
    return int(machine.tally.last)


def as_whole(packet: Packet, machine: Any) -> int:
    """Of a header that stands for itself: a word per number, in an order that everyone knows, and LoCaMu's vectors."""
    if isinstance(packet, locamu_packets.Data):
        header = locamu_packets.Whole.read(packet.header)
        vectors = sum(WORD + 2 * WORD * len(nodes) for _, nodes, _ in header.vectors)
        return vectors + WORD * sum(1 for _ in header.past)
    if isinstance(packet, cbcast_clocks.Data):
        return WORD * len(packet.clock.slots())
    return by_tally(packet, machine)

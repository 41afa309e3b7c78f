"""The replicated atomic multicasts as users choose them. Spec: docs/protocols/replicated.md."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.daisy_chain import variants as daisy_chain
from ordercast.protocols.multicast import delporte_fauconnier
from ordercast.protocols.multicast.multicast import CheckedOptions, Ranks, key_of
from ordercast.protocols.multicast.real_time import with_real_time
from ordercast.protocols.multicast.skeen import SKEEN, Propose, Skeen
from ordercast.protocols.replicated.machine import PACKETS, Replicated

Replicas = Annotated[int, msgspec.Meta(ge=1)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0)]


class SkeenOptions(CheckedOptions, frozen=True, forbid_unknown_fields=True):
    replicas: Replicas = 3
    """Servers in a group; fewer than half of them may crash."""
    retry_ms: Milliseconds = 500.0
    """What is not confirmed after so long is sent again."""


class FauconnierOptions(delporte_fauconnier.DelporteFauconnierOptions, frozen=True, forbid_unknown_fields=True):
    replicas: Replicas = 3
    retry_ms: Milliseconds = 500.0


class ReplicatedChainOptions(daisy_chain.DaisyChainOptions, frozen=True, forbid_unknown_fields=True):
    replicas: Replicas = 3
    retry_ms: Milliseconds = 500.0


class EnteringSkeen(Skeen):
    """REP-R8: a message enters at its lowest destination, and a proposal is as good as the client's copy.

    A client that dies while it sends to several groups would leave a message that some of them wait for in vain.
    """

    def _entries(self, ranks: Ranks) -> Ranks:
        return ranks[:1]

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        super()._on_step(peer, packet, out)
        if isinstance(packet, Propose):
            record = self.records.get(key_of(packet.message))
            if record is not None and record.own is None:
                self._on_ask(record.message, record.ranks, out)


def replicated(multicast: ProtocolInfo, options: type[msgspec.Struct]) -> ProtocolInfo:
    """The multicast with every server replaced by a group; its options plus `replicas`."""

    def build(place: Place, chosen: Any) -> Machine:
        return Replicated(place, chosen, multicast)

    return ProtocolInfo(
        name=f"replicated-{multicast.name}",
        summary=f"{multicast.name} with every server replaced by a group of replicas that agree on its inputs",
        source=f"{multicast.source}; replication after Oki and Liskov, Viewstamped Replication, PODC 1988, pp. 8-17",
        guarantee=Guarantee.ATOMIC,
        overlay="a link between every two servers, and between a client and every server; links may lose and reorder",
        faults="fewer than half of the replicas of each group crash; loss, duplicates, wrong suspicions",
        metadata=f"{multicast.metadata} + 8 + s + t + k",
        genuine=False,
        build=build,
        packets=PACKETS,
        options=options,
    )


REPLICATED_SKEEN = replicated(msgspec.structs.replace(SKEEN, build=EnteringSkeen), SkeenOptions)
REPLICATED_DELPORTE_FAUCONNIER = replicated(delporte_fauconnier.DELPORTE_FAUCONNIER, FauconnierOptions)
REPLICATED_DAISY_CHAIN = replicated(daisy_chain.DAISY_CHAIN, ReplicatedChainOptions)
REPLICATED_DAISY_CHAIN_REAL_TIME = replicated(with_real_time(daisy_chain.DAISY_CHAIN), ReplicatedChainOptions)

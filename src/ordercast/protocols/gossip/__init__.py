"""Gossip multicast: eventual delivery with high probability, on datagrams, without anybody who knows everybody."""

from __future__ import annotations

from typing import Any

from ordercast.core.messages import Guarantee
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.gossip.machine import GossipMachine
from ordercast.protocols.gossip.options import GossipOptions
from ordercast.protocols.gossip.packets import PACKETS

__all__ = ["GOSSIP"]


def _build(wires: OverlayWires, place: OverlayPlace, options: Any) -> OverlayMachine:
    return GossipMachine(wires, place, options)


GOSSIP = ProtocolInfo(
    name="gossip",
    summary="Everybody tells a few others what it heard, a few rounds long; almost everybody hears everything.",
    source="lpbcast-like layer of Lightweight Causal Cluster Consistency, Chalmers technical report 2005-09",
    guarantee=Guarantee.EVENTUAL,
    overlay="any; processes cast to members that they choose themselves",
    faults="loss, duplication, reordering, crashes; a message reaches each member with high probability, not for sure",
    metadata="an age of one byte",
    genuine=False,
    packets=PACKETS,
    build_overlay=_build,
    options=GossipOptions,
    readmits=True,
    admits=True,
    casts=True,
)

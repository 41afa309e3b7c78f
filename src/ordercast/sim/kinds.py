"""Chooses the kind of simulated world for a protocol: nodes with links, overlays that change, brokers and clients."""

from __future__ import annotations

from typing import Any

from ordercast.core.registry import ProtocolInfo
from ordercast.sim import run
from ordercast.sim.catalogue import BROKER
from ordercast.sim.overlays import run as overlays
from ordercast.sim.run import WorldKind


def kind_of(protocol: ProtocolInfo) -> WorldKind[Any]:
    """The kind of a scenario's world: how it is built, lives and is summed up."""
    if protocol.name == BROKER.name:
        from ordercast.sim.pubsub import run as pubsub  # Late: nobody else needs brokers and clients.

        return pubsub.KIND
    if protocol.build_overlay is not None:
        return overlays.KIND
    return run.KIND

"""Chooses the kind of simulated world for a protocol: nodes with links, or brokers and clients with connections."""

from __future__ import annotations

from typing import Any

from ordercast.core.registry import ProtocolInfo
from ordercast.sim import run
from ordercast.sim.catalogue import BROKER
from ordercast.sim.run import Kind


def kind_of(protocol: ProtocolInfo) -> Kind[Any]:
    """How its world is built, lives and is summed up."""
    if protocol.name == BROKER.name:
        from ordercast.sim.pubsub import run as pubsub  # Late: nobody else needs brokers and clients.

        return pubsub.KIND
    return run.KIND

"""Causal cluster consistency: optimistic causal order for many observers and few updaters at a time."""

from __future__ import annotations

from typing import Any

from ordercast.core.messages import Guarantee
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import PACKETS

__all__ = ["CLUSTER"]


def _build(wires: OverlayWires, place: OverlayPlace, options: Any) -> OverlayMachine:
    return ClusterMachine(wires, place, options)


def _claims(options: Any) -> list[str]:
    """CLU-9: with a total order, that what anybody delivers fits into one order of all."""
    return ["one-order"] if options.total_rounds else []


CLUSTER = ProtocolInfo(
    name="cluster",
    summary="Never out of causal order; any number of observers, vectors as long as there are updaters at a time.",
    source="Lightweight Causal Cluster Consistency, Chalmers technical report 2005-09, corrected",
    guarantee=Guarantee.OPTIMISTIC_CAUSAL,
    overlay="any; processes cast to members that they choose themselves",
    faults="loss, duplication, reordering, crashes, restarts; updates may be skipped, with a small probability",
    metadata="9 bytes per entry of the vector (entries, not members), and a key",
    genuine=False,
    packets=PACKETS,
    build_overlay=_build,
    options=ClusterOptions,
    scope="topic",
    readmits=True,
    admits=True,
    casts=True,
    addressed=("managers",),
    claims=_claims,
)

"""The preventive broadcast in the catalogue."""

from __future__ import annotations

from typing import Any

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.messages import Guarantee
from ordercast.core.process import OverlayPlace, OverlayWires
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.preventive.knowing import Knowing
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import PREVENTIVE_PACKETS
from ordercast.protocols.preventive.remembering import Remembering
from ordercast.protocols.preventive.samplers import SAMPLERS
from ordercast.protocols.preventive.settings import PreventiveOptions

_SAMPLING_PACKETS = tuple(packet for kind, _ in SAMPLERS.values() for packet in kind.packets)


def build(wires: OverlayWires, place: OverlayPlace, options: Any) -> Preventive:
    if options.sampling not in SAMPLERS:
        raise unknown_name("sampling", options.sampling, SAMPLERS)
    return kind_of(options)(wires, place, options)


def kind_of(options: PreventiveOptions) -> type[Preventive]:
    """The machine for the memory that the options ask for; refuses what would deliver twice."""
    if options.local_vectors:
        if options.memory != "vector" or options.skip_sender or options.forget_ms:
            raise UsageError("options.local_vectors needs memory = 'vector', skip_sender = false and forget_ms = 0")
        return Knowing
    if options.memory == "vector":
        return Preventive
    if options.skip_sender or options.fallback != "hint":
        raise UsageError(f"options.memory = '{options.memory}' needs skip_sender = false and fallback = 'hint'")
    if options.memory == "counting" and (options.sampling != "fixed" or options.script):
        raise UsageError("options.memory = 'counting' is for links that stay: sampling = 'fixed' and no script")
    return Remembering


PREVENTIVE = ProtocolInfo(
    name="preventive",
    summary="causal broadcast with constant headers on an overlay that changes: new links are used once they are safe",
    source="B. Nédelec, P. Molli, A. Mostéfaoui, Breaking the Scalability Barrier of Causal Broadcast for Large and "
    "Dynamic Networks, SRDS 2018, corrected",
    guarantee=Guarantee.CAUSAL,
    overlay="whom each knows first: a fixed graph or a peer sampling; connections are first in, first out",
    faults="joins, leaves, crashes, restarts with and without state, broken connections and partitions that heal, "
    "while the living stay connected; what only a process knew that crashed may be lost with it",
    metadata="15 + o + t",
    genuine=False,
    build_overlay=build,
    packets=(*PREVENTIVE_PACKETS, *_SAMPLING_PACKETS),
    options=PreventiveOptions,
    uniform=False,
    readmits=True,
    admits=True,
)

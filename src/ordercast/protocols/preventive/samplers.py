"""The peer samplings that a preventive broadcast can be built with, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ordercast.core.process import OverlayPlace
from ordercast.overlay.cyclon import Cyclon
from ordercast.overlay.sampling import Contact, FixedSampler, Sampler, SamplerWires
from ordercast.overlay.script import ScriptSampler, parse_script
from ordercast.overlay.spray import Spray
from ordercast.overlay.views import SamplingTimes
from ordercast.protocols.preventive.settings import PreventiveOptions

SamplerFactory = Callable[[SamplerWires, Contact, OverlayPlace, PreventiveOptions], Sampler]

_MOST_MS = 60_000.0
"""A neighbour that stays away is looked for at least this often."""


def fixed_graph(wires: SamplerWires, me: Contact, _place: OverlayPlace, options: PreventiveOptions) -> Sampler:
    if options.script:
        return ScriptSampler(wires, me, parse_script(options.script))
    retry = int(options.retry_ms * 1_000_000)
    return FixedSampler(wires, me, retry, max(retry, int(_MOST_MS * 1_000_000)))


def _times(options: PreventiveOptions) -> SamplingTimes:
    period, retry = int(options.period_ms * 1_000_000), int(options.retry_ms * 1_000_000)
    return SamplingTimes(period, int(options.ack_ms * 1_000_000), retry)


def spray(wires: SamplerWires, me: Contact, place: OverlayPlace, options: PreventiveOptions) -> Sampler:
    return Spray(wires, me, _times(options), place.salt, genesis=place.genesis)


def cyclon(wires: SamplerWires, me: Contact, place: OverlayPlace, options: PreventiveOptions) -> Sampler:
    return Cyclon(
        wires, me, _times(options), place.salt, genesis=place.genesis, size=options.view_size,
        length=options.exchange_length,
    )  # fmt: skip


SAMPLERS: Mapping[str, tuple[type[Sampler], SamplerFactory]] = {
    "cyclon": (Cyclon, cyclon),
    "fixed": (FixedSampler, fixed_graph),
    "spray": (Spray, spray),
}

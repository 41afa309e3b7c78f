"""Flood with one thing broken at a time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message
from ordercast.protocols.flood.flood import FLOOD, Flood
from ordercast.protocols.shared.links import Kind, ReliableLinks


class DeliversTwice(Flood):
    def _deliver(self, message: Message, out: Outbox) -> None:
        super()._deliver(message, out)
        if message.number % 5 == 0:
            super()._deliver(message, out)


DELIVERS_TWICE = msgspec.structs.replace(FLOOD, name="delivers-twice", build=DeliversTwice)


class DeliversToStrangers(Flood):
    def _deliver(self, message: Message, out: Outbox) -> None:
        out.deliver(message)


DELIVERS_TO_STRANGERS = msgspec.structs.replace(FLOOD, name="delivers-to-strangers", build=DeliversToStrangers)


class Forges(Flood):
    def _deliver(self, message: Message, out: Outbox) -> None:
        out.deliver(msgspec.structs.replace(message, number=message.number + 1_000))


FORGES = msgspec.structs.replace(FLOOD, name="forges", build=Forges)


class LinksWithAFavourite(ReliableLinks):
    def spread(self, kind: Kind, content: Any, extra: Any, source: NodeId | None, asks: bool, out: Outbox) -> None:
        everyone = self.links
        self.links = dict(list(everyone.items())[:2])
        super().spread(kind, content, extra, source, asks, out)
        self.links = everyone


class SkipsANeighbour(Flood):
    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.links = LinksWithAFavourite(place, options.ack_ms, options.retransmit_ms)


SKIPS_A_NEIGHBOUR = msgspec.structs.replace(FLOOD, name="skips-a-neighbour", build=SkipsANeighbour)


class LinksThatForget(ReliableLinks):
    def _resend_old(self, out: Outbox) -> None:
        self.resend_armed = False


class NeverResends(Flood):
    def __init__(self, place: Place, options: Any) -> None:
        super().__init__(place, options)
        self.links = LinksThatForget(place, options.ack_ms, options.retransmit_ms)


NEVER_RESENDS = msgspec.structs.replace(FLOOD, name="never-resends", build=NeverResends)


class WaitsForNobody(Flood):
    def _enough(self, holders: Collection[NodeId]) -> bool:
        return True


WAITS_FOR_NOBODY = msgspec.structs.replace(FLOOD, name="waits-for-nobody", build=WaitsForNobody)


class TrustsItsSuspicions(Flood):
    def _enough(self, holders: Collection[NodeId]) -> bool:
        return len(holders) >= self.f or self.trusted.issubset(holders)


class CountsTheDead(Flood):
    """Takes fewer holders when neighbours are suspected, also if those are among them."""

    def _enough(self, holders: Collection[NodeId]) -> bool:
        return len(holders) >= min(self.f, max(len(self.trusted), 1))


TRUSTS_ITS_SUSPICIONS = msgspec.structs.replace(FLOOD, name="trusts-its-suspicions", build=TrustsItsSuspicions)
COUNTS_THE_DEAD = msgspec.structs.replace(FLOOD, name="counts-the-dead", build=CountsTheDead)


class ForgetsWhatItSaw(Flood):
    durable: ClassVar[tuple[str, ...]] = tuple(name for name in Flood.durable if name != "seen")


FORGETS_WHAT_IT_SAW = msgspec.structs.replace(FLOOD, name="forgets-what-it-saw", build=ForgetsWhatItSaw)


class ForgetsWhatWaits(Flood):
    durable: ClassVar[tuple[str, ...]] = tuple(name for name in Flood.durable if name not in {"waiting", "holders"})


FORGETS_WHAT_WAITS = msgspec.structs.replace(FLOOD, name="forgets-what-waits", build=ForgetsWhatWaits)

"""Daisy chain atomic multicast as users choose it: the corrected protocol with its three rules, and the published one.

Spec: docs/protocols/daisy-chain.md. The parts: clocks, packets, rules, machine; `cover` and the article's own version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.daisy_chain import published as daisy_chain_published
from ordercast.protocols.daisy_chain.cover import CoverChain, FlushAsk, Flushed, Mark
from ordercast.protocols.daisy_chain.machine import ChainOptions, DaisyChain
from ordercast.protocols.daisy_chain.packets import CheckedHop, Hop
from ordercast.protocols.daisy_chain.published import PublishedChain
from ordercast.protocols.daisy_chain.rules import Lite, Rule, Strict
from ordercast.protocols.multicast.multicast import FIFO_LINKS, NO_FAULTS, Ask, Done

_SOURCE = "Louzada and Dotti, Daisy Chain Cast - um protocolo para Multicast Atomico, PUCRS"


class DaisyChainOptions(ChainOptions, frozen=True, forbid_unknown_fields=True):
    """Which rule decides what may be skipped."""

    rule: Literal["strict", "lite", "cover"] = "lite"
    flush_every: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Rule `cover`: so many deliveries in a server's log ask for a flush."""


class StrictChain(DaisyChain):
    """Skips behind a message with the same destinations."""

    def _rule(self, me: int, _size: int, _options: ChainOptions) -> Rule:
        return Strict(me)


class LiteChain(DaisyChain):
    """Skips where an earlier message has taken all news along."""

    def _rule(self, me: int, size: int, _options: ChainOptions) -> Rule:
        return Lite(me, size)


CHAINS: dict[str, type[DaisyChain]] = {"strict": StrictChain, "lite": LiteChain, "cover": CoverChain}


def build(place: Place, options: Any) -> Machine:
    return CHAINS[options.rule](place, options)


DAISY_CHAIN = ProtocolInfo(
    name="daisy-chain",
    summary="atomic multicast: a message climbs through its destinations with a clock, and nobody waits for its end",
    source=f"{_SOURCE}; corrected",
    guarantee=Guarantee.ATOMIC,
    overlay=FIFO_LINKS,
    faults=NO_FAULTS,
    metadata="17 + o + d + 2 * c",
    genuine=False,
    build=build,
    packets=(Ask, Done, Hop, CheckedHop, FlushAsk, Mark, Flushed),
    options=DaisyChainOptions,
)

DAISY_CHAIN_PUBLISHED = ProtocolInfo(
    name="daisy-chain-published",
    summary="UNSAFE: the daisy chain as printed, which can deliver in a cycle or block; for study only",
    source=_SOURCE,
    guarantee=Guarantee.ATOMIC,
    overlay=FIFO_LINKS,
    faults="none, and without any fault the order can still break",
    metadata="17 + o + d + E",
    genuine=False,
    build=PublishedChain,
    packets=(Ask, Done, Hop, CheckedHop),
    options=daisy_chain_published.PublishedChainOptions,
)

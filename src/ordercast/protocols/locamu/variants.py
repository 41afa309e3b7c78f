"""LoCaMu, localized reliable causal multicast on a tree: the corrected protocol, and the published one.

Spec: docs/protocols/locamu.md.
"""

from __future__ import annotations

from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.locamu.membership.notices import Farewell, Knock, Welcome
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.packets import Ack, Alias, Data, Notice
from ordercast.protocols.locamu.rules import LocamuOptions, PublishedOptions, printed_with

_SOURCE = "V. Santos, Localized Reliable Causal Multicast, MSc thesis, Instituto Superior Tecnico, 2019"
_OVERLAY = "a tree; links go to every node within f + 1 hops of it, and may lose, double and reorder packets"


class PublishedLocamu(Locamu):
    """The algorithm as printed, but for misprints; with the corrections that were asked for."""

    def __init__(self, place: Place, options: PublishedOptions) -> None:
        self.rules = printed_with(options.corrections)
        super().__init__(place, options)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        raise UsageError(f"{self.place.node} cannot subscribe to {topic!r}: the members of a group are fixed")

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        raise UsageError(f"{self.place.node} cannot leave {topic!r}: the members of a group are fixed")


def reach(options: Any) -> int:
    """Links span f + 1 hops."""
    return int(options.f) + 1


LOCAMU = ProtocolInfo(
    name="locamu",
    summary="causal multicast to groups on a tree: headers and state depend on what is near, not on the system's size",
    source=f"{_SOURCE}; corrected",
    guarantee=Guarantee.CAUSAL,
    overlay=_OVERLAY,
    faults=(
        "crashes and recoveries with state without limit; order and no duplication under any suspicions; progress "
        "while at most f nodes of each path of 2f + 1 are down, but for messages that only nodes that stay down have; "
        "partitions that heal; no restart without state"
    ),
    metadata="17 + o + t + vectors of the last 2f + 1 nodes + changes of the past; see locamu.md",
    genuine=False,
    build=Locamu,
    packets=(Data, Alias, Ack, Notice, Knock, Welcome, Farewell),
    options=LocamuOptions,
    reach=reach,
    notes_membership=True,
    admits=True,
)

LOCAMU_PUBLISHED = ProtocolInfo(
    name="locamu-published",
    summary="UNSAFE: LoCaMu as printed, which can break causal order and lose messages; for study only",
    source=_SOURCE,
    guarantee=Guarantee.CAUSAL,
    overlay=_OVERLAY,
    faults="none: with crashes or wrong suspicions order can break and messages can be lost",
    metadata=LOCAMU.metadata,
    genuine=False,
    build=PublishedLocamu,
    packets=(Data, Alias, Ack, Notice),
    options=PublishedOptions,
    reach=reach,
)

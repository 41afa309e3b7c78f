"""Everything that can be simulated: the protocols, and the broker system, which is more than one machine per node."""

from __future__ import annotations

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee
from ordercast.core.registry import ProtocolInfo, is_code
from ordercast.protocols import CATALOGUE, OVERLAYS
from ordercast.protocols import lookup as lookup_protocol
from ordercast.pubsub.settings import BrokerSettings


def _no_machine(_place: Place, _options: object) -> Machine:
    raise UsageError("protocol 'broker' is a system of broker and client processes; `ordercast simulate` runs it")


BROKER = ProtocolInfo(
    name="broker",
    summary="a tree of brokers that repairs itself; clients choose a guarantee per publication",
    source="P. C. Leite de Matos, Fault-tolerant publish-subscribe system with multiple delivery guarantees, "
    "NOVA University Lisbon, 2024; corrected",
    guarantee=Guarantee.CAUSAL,
    overlay="a tree of brokers with clients at its edges; any two processes can connect; reliable FIFO connections",
    faults="any number of broker crashes as long as one is left, client crashes, restarts; with partitions = primary "
    "also cuts, pauses and partitions, while a majority of brokers is connected",
    metadata="origin + number + topic + keys, about 30 bytes",
    genuine=False,
    build=_no_machine,
    packets=(),
    options=BrokerSettings,
    uniform=False,
    scope="topic",
    readmits=True,
    notes_membership=True,
)
SIMULATED: dict[str, ProtocolInfo] = dict(sorted([*CATALOGUE.items(), *OVERLAYS.items(), (BROKER.name, BROKER)]))
"""Sorted by name."""


def lookup(name: str) -> ProtocolInfo:
    """The protocol called `name`, the broker system, or a protocol of your own (`file.py:NAME`)."""
    if name == BROKER.name:
        return BROKER
    if name not in SIMULATED and not is_code(name):
        raise unknown_name("protocol", name, SIMULATED)
    return lookup_protocol(name)

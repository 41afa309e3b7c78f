"""The tables of a scenario that are about a tree of brokers and its clients (`protocol = "broker"`)."""

from __future__ import annotations

from typing import Literal

from ordercast.scenario.tables import Kind, Latency, Table


class BrokerClient(Table, frozen=True):
    """A client: the broker it begins at, and what it is a member of."""

    edge: str
    topics: list[str] = []
    """Receives these, and publishes on them."""
    publishes: list[str] = []
    """Publishes on these without receiving them, unless a filter takes them in."""
    start: Literal["now", "earliest", "last-of-each-key"] = "now"
    """From where it reads its topics: `earliest` needs topics that are kept."""
    filters: list[str] = []
    """Receives every topic that one of these takes in, from the first publication on."""


class KeptTopic(Table, frozen=True):
    """Topics that brokers keep, as `[[keep]]` of a cluster file says it. 0: no limit."""

    filter: str
    max_age_ms: float = 0.0
    max_bytes: int = 0
    copies: int = 2
    compact: Literal["none", "key"] = "none"


class RegionLatency(Table, frozen=True):
    """One way, between two regions or within one."""

    between: tuple[str, str]
    latency_ms: Latency
    one_way: bool = False
    """Only from the first to the second."""


class BrokerTree(Kind, frozen=True, tag="broker-tree"):
    """Brokers below each other and clients at them. Every process can reach every other, whatever the tree."""

    clients: dict[str, BrokerClient]
    parents: dict[str, str] = {}
    """Broker to parent; the one without a parent is the root. Empty: a random tree of `brokers` named b0, b1, ..."""
    brokers: int = 0
    degree: int = 3
    """Of a random tree: the most brokers that are connected to one."""
    regions: dict[str, str] = {}
    """Broker or client to region; a client is in the region of its edge unless it is named."""
    latency: list[RegionLatency] = []
    """By region. `links` has other values for pairs of processes, `link` the value for all others."""
    keep: list[KeptTopic] = []
    """Topics that are kept; the brokers have disks for them."""
    detection_ms: Latency = 0.0
    """How long after the last packet of a dead process its death is noticed, at each connection."""
    detection: dict[str, Latency] = {}
    """Processes that take longer or shorter than that to notice the death of others."""
    silence_ms: Latency = 2000.0
    """Silence (a partition, a process that stands still) after which a connection is given up."""


class Cut(Kind, frozen=True, tag="cut"):
    """The connections between two processes break; both go on."""

    between: tuple[str, str]
    at_ms: float


class Join(Kind, frozen=True, tag="join"):
    """A broker or client of the overlay that is not there from the beginning starts now."""

    node: str
    at_ms: float


class Leave(Kind, frozen=True, tag="leave"):
    """A broker or client leaves on purpose."""

    node: str
    at_ms: float

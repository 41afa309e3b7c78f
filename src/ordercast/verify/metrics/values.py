"""The metrics of a run as values: what `measure` returns, and all that tables and figures need to know about it."""

from __future__ import annotations

import msgspec

QUANTILES = (*(step / 20 for step in range(20)), 0.99, 0.999, 1.0)
"""Where a distribution's curve is sampled; p50, p90, p99, p99.9 and the maximum are among them."""
ALL = "all"
"""Stands for every guarantee together."""


class Distribution(msgspec.Struct, frozen=True):
    """The spread of values. `curve` holds the value at each of QUANTILES, the smallest first."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    curve: tuple[float, ...]


class Slice(msgspec.Struct, frozen=True):
    """One step of the timeline, `start_s` after the first event."""

    start_s: float
    deliveries: int
    p99_latency_ms: float | None


class TimelineMark(msgspec.Struct, frozen=True):
    """A fault, or the reaction to one, on the timeline."""

    time_s: float
    kind: str
    node: str
    peer: str | None


class MeasuredRepair(msgspec.Struct):
    """One repair of a broker that lost its parent, or failover of a client that lost its edge broker."""

    node: str
    client: bool
    lost: str
    start_s: float
    """After the first event of the run."""
    start_ns: int
    attached_ms: float | None = None
    """From the start until it had a parent (or was root) again; None: never."""
    synchronised_ms: float | None = None
    """Until its topics were complete again, where that is recorded."""
    parent: str = ""
    role: str = ""
    term: str = ""
    rounds: float | None = None
    election_ms: float | None = None


class Topology(msgspec.Struct):
    """A tree of brokers before the first fault and at the end: broker to parent (empty for the root)."""

    before: dict[str, str]
    after: dict[str, str]
    clients_before: dict[str, str] = {}
    """Client to its edge broker."""
    clients_after: dict[str, str] = {}
    dead: list[str] = []
    """Brokers that are down at the end."""
    repaired: bool = False
    """Whether there was any fault."""


class LinkGraph(msgspec.Struct):
    """An overlay that chooses its links: from, to and state of each, before anybody came or went and at the end."""

    before: list[tuple[str, str, str]]
    after: list[tuple[str, str, str]]
    nodes_before: list[str]
    """Empty, like `before`: nothing changed, or nobody can say what came first."""
    nodes_after: list[str]


class ReplicaDigest(msgspec.Struct, frozen=True):
    """The last digest of a replica's state; topic is empty for all of it."""

    node: str
    topic: str
    digest: str


class RunMetrics(msgspec.Struct, kw_only=True):
    """The metrics of one run. Times between nodes need one clock, packets need their rows; see `missing`."""

    run: str
    path: str
    protocol: str
    guarantee: str
    nodes: int
    published: int
    delivered: int
    deliveries_by_node: dict[str, int]
    duration_s: float | None = None
    """First event to last."""
    active_s: float | None = None
    """First publication to last delivery: what throughput is measured over."""
    deliveries_per_s: float | None = None
    messages_per_s: float | None = None
    latency_ms: dict[str, Distribution] | None = None
    """Publication to delivery by guarantee; `all` too where a run mixes guarantees."""
    header_bytes: Distribution | None = None
    """Per copy of a message put on a link."""
    header_bytes_by_packet: dict[str, Distribution] = {}
    """Per class of packet, where the trace names it; the simulator names those that carry no message."""
    header_total_bytes: int | None = None
    payload_total_bytes: int | None = None
    packets_sent: int | None = None
    message_copies_sent: int | None = None
    control_packets_sent: int | None = None
    """Packets that carry no message."""
    copies_per_delivery: float | None = None
    drops: int | None = None
    hold_back_ms: Distribution | None = None
    """From a node's first receipt of a message to its delivery there."""
    held_share: float | None = None
    """Of the received messages, how many waited at all."""
    repair_ms: Distribution | None = None
    failover_ms: Distribution | None = None
    """From a client's loss of its edge broker until it is attached to another."""
    repairs: list[MeasuredRepair] = []
    topology: Topology | None = None
    links: LinkGraph | None = None
    digests: list[ReplicaDigest] = []
    detection_ms: Distribution | None = None
    """From a crash to the first suspicion of the crashed node."""
    timeline: list[Slice] | None = None
    marks: list[TimelineMark] = []
    missing: dict[str, str] = {}
    """Metric to the reason why it is None."""

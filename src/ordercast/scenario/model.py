"""A scenario as values. Every table of the TOML file is one struct here; docs/scenarios.md lists them for users."""

from __future__ import annotations

from typing import Any, Literal

from ordercast.scenario.brokers import BrokerTree, Cut, Join, Leave
from ordercast.scenario.tables import Kind as _Kind
from ordercast.scenario.tables import Latency
from ordercast.scenario.tables import Table as _Table

# --- overlay: who is connected to whom ---------------------------------------------------------------------------


class Clique(_Kind, frozen=True, tag="clique"):
    nodes: int


class LineGraph(_Kind, frozen=True, tag="line"):
    nodes: int


class Ring(_Kind, frozen=True, tag="ring"):
    nodes: int


class Star(_Kind, frozen=True, tag="star"):
    nodes: int


class Tree(_Kind, frozen=True, tag="tree"):
    """k-ary, filled level by level; n0 is the root."""

    nodes: int
    branching: int = 2


class RandomTree(_Kind, frozen=True, tag="random-tree"):
    """Each node hangs on an earlier one with room left; `degree` bounds the neighbours of a node (0: no bound)."""

    nodes: int
    degree: int = 0


class Regular(_Kind, frozen=True, tag="regular"):
    """Random and connected, every node with `degree` neighbours."""

    nodes: int
    degree: int


class Servers(_Kind, frozen=True, tag="servers"):
    """Servers n0, n1, ... with a link between every two, and clients c0, c1, ... with a link to every server."""

    nodes: int
    clients: int = 0


class Edges(_Kind, frozen=True, tag="edges"):
    """Given edge by edge, here or in a file with one edge a line."""

    edges: list[tuple[str, str]] = []
    file: str = ""
    tree: bool = False
    """Whether it must be a tree; a cycle is then an error."""


GraphOverlay = Clique | LineGraph | Ring | Star | Tree | RandomTree | Regular | Servers | Edges
Overlay = GraphOverlay | BrokerTree

# --- groups: who is subscribed to what at the start --------------------------------------------------------------


class Everyone(_Kind, frozen=True, tag="everyone"):
    """Every node is a member of every topic."""

    topics: int = 1


class Explicit(_Kind, frozen=True, tag="explicit"):
    members: dict[str, list[str]]


class Subtrees(_Kind, frozen=True, tag="subtrees"):
    """One group per interior node of a tree: the nodes below and including it."""


class Zipf(_Kind, frozen=True, tag="zipf"):
    """`count` groups; the k-th has a share of the nodes that falls with k to the power of `exponent`."""

    count: int
    exponent: float = 1.0
    smallest: int = 2


Groups = Everyone | Explicit | Subtrees | Zipf

# --- links and nodes ---------------------------------------------------------------------------------------------


class Link(_Table, frozen=True):
    """A link: how packets travel from one node to a neighbour."""

    latency_ms: Latency = 5.0
    fifo: bool = True
    loss: float = 0.0
    duplicate: float = 0.0


class LinkOverride(_Table, frozen=True):
    """Other values for the links between two nodes, both ways unless `one_way`."""

    between: tuple[str, str]
    one_way: bool = False
    latency_ms: Latency | None = None
    fifo: bool | None = None
    loss: float | None = None
    duplicate: float | None = None


class Cpu(_Table, frozen=True):
    """A node as a single server with a queue: what one input costs. Outputs leave when the service ends."""

    per_packet_us: float = 0.0
    per_byte_us: float = 0.0
    per_send_us: float = 0.0
    per_sent_byte_us: float = 0.0
    per_delivery_us: float = 0.0


class NodeCapacity(_Table, frozen=True):
    """The capacity of a node. Bandwidth is shared by all its links; 0 means no limit."""

    bandwidth_mbps: float = 0.0
    ingress_mbps: float = 0.0
    shared: bool = False
    """Whether `bandwidth_mbps` is all there is for both directions: one queue for what leaves and what arrives."""
    cpu: Cpu | None = None


class NodeOverride(_Table, frozen=True):
    nodes: list[str]
    bandwidth_mbps: float | None = None
    ingress_mbps: float | None = None
    shared: bool | None = None
    cpu: Cpu | None = None


class Detector(_Table, frozen=True):
    """An eventually perfect failure detector: a crash or a cut is noticed by the neighbours after `delay_ms`."""

    delay_ms: float = 100.0
    by: dict[str, float] = {}
    """Nodes that take longer or shorter than that to notice, in milliseconds."""


# --- destinations: to whom messages without topics go ------------------------------------------------------------


class RandomTo(_Kind, frozen=True, tag="random"):
    """A random set of exactly `count` servers."""

    count: int


class AnyTo(_Kind, frozen=True, tag="any"):
    """A random size from 1 to all servers, then a random set of that size."""


class TpccTo(_Kind, frozen=True, tag="tpcc"):
    """The warehouses that a transaction of the TPC-C mix touches; each server holds `warehouses_per_node` of them."""

    warehouses_per_node: int = 1


class GroupsTo(_Kind, frozen=True, tag="groups"):
    """One of the groups of `size` servers; with probability `random` a random set of that size instead.

    `contiguous` groups are neighbours in the order of servers; the members of `strided` ones are equally far apart.
    """

    size: int
    layout: Literal["contiguous", "strided"] = "strided"
    random: float = 0.0


class ExplicitTo(_Kind, frozen=True, tag="explicit"):
    """One of the given sets, each as likely as the others."""

    sets: list[list[str]]


To = RandomTo | AnyTo | TpccTo | GroupsTo | ExplicitTo

# --- workload ----------------------------------------------------------------------------------------------------


class _LoadKind(_Kind, frozen=True, kw_only=True):
    """The fields that every kind of load has."""

    publishers: list[str] | Literal["all", "clients"] = "all"
    """`clients`: the clients of the overlay, or everyone where it has none."""
    topics: list[str] | Literal["member", "any"] = "member"
    """Which topic a message goes to: one of a list, any that the publisher is a member of, or any at all."""
    popularity: float = 0.0
    """Zipf exponent over the topics to choose from; 0 is uniform."""
    destinations: int = 0
    """Number of random explicit destinations, for multicast without topics: short for `to` of kind `random`."""
    to: To | None = None
    """How the destinations of a multicast without topics are chosen."""
    guarantee: str | dict[str, float] = ""
    """A guarantee for all, or shares of several; empty: the protocol's own."""
    keys: int = 0
    """Size of the key space; 0: no keys."""
    keys_per_message: int = 1
    payload_bytes: int = 64
    start_ms: float = 0.0
    stop_ms: float | None = None
    limit: int | None = None
    """At most so many messages from this load."""


class OpenLoad(_LoadKind, frozen=True, kw_only=True, tag="open"):
    """Messages at a rate that does not depend on deliveries; `rate_per_s` over all publishers."""

    rate_per_s: float
    arrival: Literal["poisson", "regular"] = "poisson"
    window: int = 0
    """A publisher waits while a link from its node has so many packets on their way that are not handled; 0: never."""


class ClosedLoad(_LoadKind, frozen=True, kw_only=True, tag="closed"):
    """Each publisher keeps `outstanding` messages on their way and publishes the next when one is done."""

    outstanding: int = 1
    rate_per_s: float = 0.0
    """At most so many messages over all publishers, spread evenly; 0: no such limit."""
    think_ms: float = 0.0
    until: Literal["self", "everyone", "completed"] = "everyone"
    """Done when the publisher itself, or every live member, has delivered it, or when the protocol says so."""


class BurstLoad(_LoadKind, frozen=True, kw_only=True, tag="burst"):
    """Every `every_ms`, each publisher publishes `size` messages at once."""

    size: int
    every_ms: float


class ReplyLoad(_LoadKind, frozen=True, kw_only=True, tag="reply"):
    """A node that delivers a message answers it with `probability`; answers are answered up to `depth`."""

    probability: float
    delay_ms: float = 0.0
    depth: int = 3


class Step(_Table, frozen=True):
    """One line of an explicit schedule, at a time or right after `node` delivered the message `after`."""

    node: str
    do: Literal["publish", "subscribe", "unsubscribe"] = "publish"
    at_ms: float | None = None
    after: str | None = None
    topic: str | None = None
    dst: list[str] = []
    keys: list[str] = []
    guarantee: str = ""
    payload_bytes: int = 64


class Schedule(_Kind, frozen=True, tag="schedule"):
    steps: list[Step]


Workload = OpenLoad | ClosedLoad | BurstLoad | ReplyLoad | Schedule

# --- faults ------------------------------------------------------------------------------------------------------


class Crash(_Kind, frozen=True, tag="crash"):
    """The process is gone; of what it had in flight a prefix survives on each link."""

    node: str
    at_ms: float
    survive: Literal["all", "none", "random"] = "random"
    recover_ms: float | None = None
    state: Literal["kept", "lost"] = "kept"


class Pause(_Kind, frozen=True, tag="pause"):
    """The process stands still and loses nothing."""

    node: str
    at_ms: float
    until_ms: float


class Slow(_Kind, frozen=True, tag="slow"):
    """Every input takes `extra_ms` longer."""

    node: str
    at_ms: float
    until_ms: float
    extra_ms: float


class Partition(_Kind, frozen=True, tag="partition"):
    """A partition loses what is sent from one side to the other; `one_way`: only from the first side to the second."""

    sides: tuple[list[str], list[str]]
    at_ms: float
    until_ms: float
    one_way: bool = False


class Suspicion(_Kind, frozen=True, tag="suspicion"):
    """The detector wrongly suspects `node`, at `by` or at all its neighbours."""

    node: str
    at_ms: float
    until_ms: float
    by: str | None = None


class Delay(_Kind, frozen=True, tag="delay"):
    """From now on what one sends the other takes `latency_ms`, both ways unless `one_way`: until then, or for good."""

    between: tuple[str, str]
    at_ms: float
    latency_ms: Latency
    until_ms: float | None = None
    one_way: bool = False


Fault = Crash | Pause | Slow | Partition | Suspicion | Delay | Cut | Join | Leave


class Trace(_Table, frozen=True):
    record: Literal["all", "app"] = "all"


class Scenario(_Table, frozen=True):
    """One experiment. `ordercast simulate` runs it; a seed makes it one run."""

    name: str
    overlay: Overlay
    workload: list[Workload]
    description: str = ""
    protocol: str = "flood"
    options: dict[str, Any] = {}
    """Settings of the protocol."""
    seed: int = 0
    duration_ms: float = 1000.0
    """Publications and faults happen before this; then all faults end and the run drains."""
    drain_ms: float = 60_000.0
    """How long the drain may take before the run counts as not come to rest."""
    groups: Groups = Everyone()
    link: Link = Link()
    links: list[LinkOverride] = []
    node: NodeCapacity = NodeCapacity()
    nodes: list[NodeOverride] = []
    carrier: Literal["udp", "tcp"] = "udp"
    """What carries the casts of real processes: datagrams, or connections. It means nothing to a simulation."""
    sizes: Literal["wire", "model"] = "wire"
    """What a packet takes of a bandwidth: its encoded length, or its payload and what the protocol's source counts."""
    detector: Detector = Detector()
    fault: list[Fault] = []
    trace: Trace = Trace()

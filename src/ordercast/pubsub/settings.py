"""Settings of a broker. Names and defaults follow the source; docs/broker-config.md explains them to users."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Ms = Annotated[float, msgspec.Meta(gt=0, le=86_400_000)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same at every broker of a tree. Defaults suit one machine or one local network."""

    total_degree: _Count = 16
    """Neighbours (parent, children, clients) above which a broker refuses further children; clients never."""
    max_hops: _Count = 3
    """How far a broker's view of the tree reaches."""
    request_ms: _Ms = 2000.0
    """Silence limit for a parent request or an election (the source's timer)."""
    retry_ms: _Ms = 300.0
    """Pause before seeking again, drawn from half to one and a half times this."""
    stability_ms: _Ms = 100.0
    """Period of stability reports."""
    member_timeout_ms: _Ms = 20_000.0
    """Absence after which the root fences a member; must exceed the longest repair."""
    fold_ms: _Ms = 10_000.0
    """How often the root asks all brokers whether what ended sessions have left behind can be folded."""
    startup_grace_ms: _Ms = 10_000.0
    """How long a starting broker insists on its configured parent."""
    buffer_soft_limit: _Count = 50_000
    """Publications of a topic, logged, pending or held, above which an edge broker asks its clients to pause. Nothing
    is ever evicted."""
    buffer_soft_bytes: _Count = 1 << 26
    """Bytes of a topic's publications above which an edge broker asks its clients to pause. One that goes on regardless
    is cut off at four times as many."""
    memory_soft_bytes: _Count = 1 << 30
    """Bytes of all publications of a broker. Above, topics that hold more than their share of it pause."""
    absent_member: Literal["cover", "wait"] = "cover"
    """Who answers for a member whose connection has ended: `cover`: its last edge, as long as that is there, so totals
    go on without it; `wait`: nobody, and totals of its topics wait until it is back or fenced."""
    slow_member: Literal["fence", "wait"] = "fence"
    """What becomes of a member that is attached and takes nothing for `slow_member_ms`, while its topic holds more than
    half of what makes publishers pause: `fence` ends its session, `wait` lets it hold the topic up for good."""
    slow_member_ms: _Ms = 60_000.0
    filters_per_client: _Count = 1000
    """Filters that one client may follow at a time."""
    topics_per_client: _Count = 10_000
    """Topics in which one client may take part at a time, to receive or to publish."""
    filters_per_user: _Count = 10_000
    """Filters that the clients of one user may follow at one broker at a time, all of them together."""
    topics_per_user: _Count = 100_000
    """Topics in which the clients of one user may take part at one broker at a time, counted for each of them; a filter
    counts as a topic too."""
    topics_limit: _Count = 200_000
    """Topics with members in the whole tree; a client that would begin one more is denied it."""
    order_scope: Literal["session", "key"] = "session"
    """`session`: everything that one client publishes on a topic keeps its order, whatever keys and guarantees; what
    it publishes behind a `total` waits at its edge for the commit. `eventual` publications too: if one overtook,
    somebody could deliver it and publish a `causal` one after it, which would be ahead of what happened before it.
    `key` (the source): only where publications share a key."""
    view_order: Literal["ancestors-first", "hop-order", "score"] = "ancestors-first"
    """In which order candidates for a new parent are asked; `score`: by latency, topics, hops and room."""
    partitions: Literal["primary", "excluded"] = "primary"
    """`primary`: a root needs a majority of the configured brokers and holds a lease. `excluded`: a broken connection
    means a dead process (the source), and any number of brokers may crash as long as one is left."""
    lease_ms: _Ms = 3000.0
    """A root that no majority has confirmed for so long steps down; a new one waits so long before it decides."""
    safe_copies: _Count = 2
    """f + 1: brokers that hold a publication before its publisher is told that it is safe."""
    region: str = ""
    """Where this broker stands, for `score`."""

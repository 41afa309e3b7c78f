"""Settings of causal cluster consistency."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ordercast.core.errors import UsageError
from ordercast.protocols.cluster.events import MAX_ENTRIES
from ordercast.protocols.gossip.options import Count, GossipOptions, Milliseconds

Recovery = Literal["none", "source", "k", "k+source"]
Whole = Annotated[int, msgspec.Meta(ge=0)]


class ClusterOptions(GossipOptions, frozen=True, forbid_unknown_fields=True):
    """Those of the gossip beneath, and: times are whole rounds unless their name says otherwise."""

    clusters: tuple[str, ...] = ("t0",)
    """Clusters that the process is a member of from the start. Updates on another one make it a member of that one."""
    entries: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRIES)] = 8
    """Coordinators that a cluster has at a time, at most: the length of every vector."""
    coordinators: tuple[str, ...] = ()
    """Names of processes that own entry 0, 1, ... for ever. Empty: entries are leased from `managers`."""
    managers: tuple[str, ...] = ()
    """Where the managers of entries listen, the same list at every process."""
    tolerated: Whole = 1
    """Managers of an entry that may be dead at a time (k); 2k + 1 of them look after each entry."""
    observers: tuple[str, ...] = ()
    """Names of processes that take updates as they come, in no order."""
    recovery: Recovery = "k+source"
    ask: Count = 4
    """Members that are asked for a missing update, at most (k)."""
    recovery_buffer: Count = 400
    replacement: Literal["fifo", "age"] = "fifo"
    terminate_rounds: Whole = 0
    """How long an update waits for those before it until they are asked for; 0: `rounds` + 1."""
    recover_rounds: Count = 4
    """How long they are waited for after that. More than a request and its answer take."""
    digest_every: Whole = 1
    """Rounds from one digest to the next; 0: none, and the last update before a silence may stay unnoticed."""
    total_rounds: Whole = 0
    """Total order: how long an update is held for those that come before it; 0: no total order. See CLU-9."""
    held: Count = 2_000
    """Updates that wait at a time, at most."""
    proposals: Count = 1_000
    """Own updates that wait for an entry, at most; a newer one is refused."""
    packet_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=56_000)] = 16_000
    """A packet gets no further update beyond this."""
    lease_ms: Milliseconds = 4_000.0
    drift: Annotated[float, msgspec.Meta(ge=0, lt=0.5)] = 0.01
    """By how much the rate of any clock may differ from true time: the promise of one owner at a time rests on it."""
    claim_ms: Milliseconds = 500.0
    """How long the managers' answers are waited for."""
    catch_up_ms: Milliseconds = 2_000.0
    """How long a new owner waits for the last updates of the one before."""
    idle_leases: Whole = 0
    """Leases without an update after which an entry is given back; 0: never."""
    join_ms: Milliseconds = 1_000.0
    """How long a member's answer to a newcomer is waited for, before another one is asked."""
    join_attempts: Count = 5
    """Members that a newcomer asks before it begins with what it hears from now on."""

    @property
    def terminate_ns(self) -> int:
        return (self.terminate_rounds or self.rounds + 1) * self.round_ns

    @property
    def recover_ns(self) -> int:
        return self.recover_rounds * self.round_ns

    @property
    def total_ns(self) -> int:
        return self.total_rounds * self.round_ns


def check_options(options: ClusterOptions) -> None:
    """Refuse settings that contradict each other, in one line."""
    group = 2 * options.tolerated + 1
    if options.coordinators and options.managers:
        raise UsageError("coordinators and managers: entries are either given for ever or leased, not both")
    if len(options.coordinators) > options.entries:
        raise UsageError(f"coordinators: {len(options.coordinators)} for {options.entries} entries")
    if options.managers and len(options.managers) < group:
        raise UsageError(f"managers: {len(options.managers)}; to tolerate {options.tolerated} dead takes {group}")
    for name in ("coordinators", "managers", "clusters"):
        if len(set(getattr(options, name))) != len(getattr(options, name)):
            raise UsageError(f"{name}: one stands there twice")

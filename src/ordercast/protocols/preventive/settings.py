"""Settings of the preventive broadcast."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ordercast.protocols.preventive.packets import RULES

Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=86_400_000)]


class PreventiveOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times that a process waits and amounts that it keeps. Times are those of the network it is meant for."""

    sampling: str = "fixed"
    """Who chooses the neighbours: `fixed`, the graph of the scenario; or a peer sampling."""
    script: tuple[str, ...] = ()
    """Links that open and close besides those of the graph, as `n0 opens n3 at 20 via n1`. Goes with `fixed`."""
    reading: tuple[str, ...] = ()
    """How `preventive-draft` takes its text in the same scenario; nothing to this protocol."""
    period_ms: Milliseconds = 60_000.0
    """Of a peer sampling: how often a process exchanges a part of its view."""
    view_size: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Of `cyclon`: entries of a view. `spray` finds its own."""
    exchange_length: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """Of `cyclon`: entries that an exchange gives away."""
    max_buffer: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 1024
    """So many messages may wait for a link to become safe; then the attempt begins anew."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    """So often a link is tried before it is given up."""
    ack_ms: Milliseconds = 3_000.0
    """How long an attempt waits for its acknowledgement: several round trips."""
    hold_ms: Milliseconds = 10_000.0
    """How long a link is kept for a lock that was promised to pass."""
    join_ms: Milliseconds = 5_000.0
    """How long a joiner waits for one contact before it asks another."""
    leave_ms: Milliseconds = 10_000.0
    """How long a process that leaves waits for somebody who has all that it had."""
    retry_ms: Milliseconds = 1_000.0
    """After this time a neighbour that was lost is looked for, and then ever less often."""
    log_keep: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 4_096
    """So many messages are kept for neighbours that come back after a partition or a restart."""
    max_send_queue: Annotated[int, msgspec.Meta(ge=2, le=1 << 24)] = 8_192
    """A neighbour that is so many messages behind is given up, so that nobody pays for its slowness."""
    skip_sender: bool = True
    """Whether a message is not sent back to where it came from."""
    memory: Literal["vector", "counting", "links"] = "vector"
    """How copies are told from news: one number an origin (`vector`); or what is still to come over each link, where
    links stay as they are (PRV-9.2, `counting`) and where they change (PRV-9.3, `links`). The same everywhere."""
    local_vectors: bool = False
    """Whether a process can say how two messages are to each other (PRV-9.4); needs `skip_sender = false` and
    `forget_ms = 0`, and costs a look at every origin for each copy."""
    fallback: Literal["digest", "flood", "hint"] = "digest"
    """What is tried first where no way for a lock is known: the peer says what it has, or the lock goes over all safe
    links, or the peer says who has a safe link to it. What failed once is repaired by a digest."""
    forget_ms: Annotated[float, msgspec.Meta(ge=0)] = 86_400_000.0
    """An origin that was silent for twice this time is forgotten (PRV-9.1); 0: never."""

    @property
    def rules(self) -> int:
        """Rules that neighbours must have in common: the version of the packets and the kind of memory."""
        return RULES + 256 * ("vector", "counting", "links").index(self.memory)

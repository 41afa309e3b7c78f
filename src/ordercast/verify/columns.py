"""A run in columns: int32 arrays that every check reads.

Logs are numbered by receiver (a node, or a later life of it that had lost its state), messages along one possible
execution, so that numbers grow along happened-before. `ev[off[c]:off[c + 1]]` is the log of receiver c: v >= 0 is the
delivery of v, v < 0 the publication of ~v. Every published message stands in it once, every delivery once a receiver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.kernels.jit import Flags, Ints, Offsets
from ordercast.verify.past import HappenedBefore
from ordercast.verify.verdict import CHECKS

BIT = {check: np.uint16(1 << i) for i, check in enumerate(CHECKS)}


class StateDigest(msgspec.Struct, frozen=True):
    """The last state digest that a live node recorded, of everything or of one topic."""

    node: str
    topic: str
    digest: str
    seq: int


class RunFacts(msgspec.Struct, kw_only=True):
    """Facts about the run besides its arrays."""

    run: str
    path: str
    protocol: str
    guarantee: str
    scope: str
    order_scope: str = "session"
    uniform: bool = True
    """Whether what a receiver that died or left had delivered is owed to all."""
    left: list[int] = []
    """Receivers that left before the end of the run, and do not promise to have passed on what they had."""
    checks: list[str]
    claimed: list[str]
    holes: str
    """What is missing from the trace, in words; empty if nothing is."""
    complete: bool | None
    """Whether everything that was under way at the end is in the trace; None: nobody says."""
    one_clock: bool = False
    """Whether times of different nodes may be compared."""
    facts: dict[str, int | str]
    sends_recorded: int = 0
    asks_real_time: bool = False
    """Whether any message is held to real-time order."""
    digests: list[StateDigest] = []


@dataclass(frozen=True, slots=True)
class Names:
    """The names behind the numbers. Messages that were delivered and never published follow the published ones."""

    messages: pa.Array[Any]
    nodes: pa.Array[Any]
    topics: pa.Array[Any]
    keys: pa.Array[Any]


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of a run. Where one has another with `_off` beside it, that one says where each part begins."""

    ev: Ints
    off: Offsets
    seq: Ints
    """Place of each entry of `ev` in the node's own history."""
    node: Ints
    """Node of each receiver."""
    alive: Flags
    """Whether each receiver is up at the end."""

    pub: Ints
    """Receiver (in its role as publisher) of each message."""
    pub_seq: Ints
    topic: Ints
    """Of each message; the number of topics where it has none."""
    obliges: np.ndarray[Any, np.dtype[np.uint16]]
    """Of each message: the checks it is held to, as BIT."""
    key_off: Offsets
    keys: Ints
    key_topic: Ints

    log: Ints
    log_off: Offsets
    """The logs along which happened-before runs: `ev` itself, or cut by topic."""
    chain: Ints
    """Of each message: the log it was published in."""
    at: Offsets
    """Of each message: where in `log`."""
    line_off: Offsets
    lines: Ints
    """Of each message: the lines of program order it stands in, one per publisher, or one per publisher and key."""

    missed_off: Offsets
    missed: Ints
    """Per receiver, dead or alive: messages that it owed and never delivered, those that were due longest first."""
    due: Ints
    """Of each: the place in the receiver's log up to which nothing may overtake it; NEVER for all of it."""
    asked: Flags
    """Of each: whether it is asked for in the end, because the receiver was still there."""
    copied: Flags
    """Of each message: whether anybody delivered it whose deliveries are owed to all."""
    unordered: Flags
    """Of each entry of `ev`: a delivery at a node that keeps no order, as its trace says; empty if there are none."""
    published_ns: Offsets
    first_ns: Offsets
    first_by: Ints
    """Of each message: when it was published, when and by whom first delivered; empty if no check asks."""
    odd: Offsets
    """Breaches of integrity, one a row: kind, message, receiver, seq, and the seq before where there is one."""
    outsiders: Ints
    """Nodes that handled a message that was neither theirs nor for them, one a row: message, node, seq."""

    @property
    def receivers(self) -> int:
        return self.off.size - 1

    @property
    def messages(self) -> int:
        return self.pub.size

    def held(self, check: str) -> Flags:
        """Which messages are held to `check`."""
        held: Flags = ((self.obliges & BIT[check]) != 0).astype(np.uint8)
        return held

    def owed(self) -> tuple[Offsets, Ints, Ints]:
        """Messages that each receiver owed and never delivered, and up to which place."""
        return self.missed_off, self.missed, self.due


@dataclass(frozen=True, slots=True)
class Columns:
    """One run, ready to be judged."""

    about: RunFacts
    arrays: Arrays
    names: Names
    past: HappenedBefore
    """Happened-before as the run's scopes define it."""


def left_to_give(arrays: Arrays, about: RunFacts) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Flags on `Arrays.missed`: there is somebody who could have given it, its publisher or one who delivered it.

    Where agreement is not uniform, those that died or left do not count.
    """
    present = arrays.alive != 0
    if not about.uniform:
        present[about.left] = False
    missed = arrays.missed
    given: np.ndarray[Any, np.dtype[np.bool_]] = (arrays.copied[missed] != 0) | present[arrays.pub[missed]]
    return given

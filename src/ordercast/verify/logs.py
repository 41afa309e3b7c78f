"""The rows of a trace by who received them: lives of nodes, and what each published and delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from ordercast.verify.kernels.jit import Flags, Ints, Offsets


@dataclass(frozen=True, slots=True)
class Lives:
    """The receivers: one for each node, and one more each time it came back without its state."""

    node: Ints
    life: Ints
    entry_off: Offsets
    """Where each receiver's rows begin."""
    alive: Flags
    fell: Offsets
    """The row with which each one that is not up at the end ceased to be; -1 for the others."""


@dataclass(frozen=True, slots=True)
class Logs:
    """Publications and first deliveries, with messages numbered; `entry` is the row of each."""

    ev: Ints
    off: Offsets
    entry: Offsets
    publication: Offsets
    """Row of each message's publication."""
    odd: Offsets
    names: pa.Array[Any]

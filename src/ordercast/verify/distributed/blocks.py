"""The fifth stage: checks that need the deliveries of all receivers in one place, by block of keys or topics.

`total` is cut by key, `total-topic` and `one-order` by topic. `prefix` and `acyclic` look at all messages together:
each is one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from ordercast.verify.distributed.wire import schema_of
from ordercast.verify.tasks import Partial
from ordercast.verify.verdict import ONE_ORDER, WITHOUT_PLACE
from ordercast.verify.witness import STARTS, Cycle, Cycles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ordercast.verify.distributed.setup import TaskCut

FOUND = schema_of(block=pa.int32(), data=pa.binary())
RESULT = -1
"""The block of a row that says what a stage found; rows of other blocks are deliveries."""
_CUT = ("total", "total-topic", ONE_ORDER)
TOGETHER = (*_CUT, "prefix", "acyclic")
"""The checks of this stage; all others are decided receiver by receiver."""


class FoundInBlock(msgspec.Struct):
    """The findings in one block."""

    partial: Partial
    by_key: dict[int, Cycle] = {}
    """Of keys whose total messages have no order: a cycle through the fewest receivers."""
    stuck: list[int] = []
    """Messages that have no place in any order, the first of them."""
    cycles: list[tuple[int, Cycle]] = []
    """Cycles, each with fewer receivers than the one before, and the message each was sought from."""


def blocks_of(checks: Iterable[str], held: Iterable[str], cut: TaskCut) -> dict[str, range]:
    """Which blocks belong to which check, of those that the run asks for and any message is held to."""
    blocks: dict[str, range] = {}
    following = 0
    for check in TOGETHER:
        if check in checks and check in held:
            blocks[check] = range(following, following + (cut.key_blocks if check in _CUT else 1))
            following = blocks[check].stop
    return blocks


def cycles_in(found: Iterable[FoundInBlock]) -> Cycles:
    """The cycles that are told, as a search over all blocks at once would have found them."""
    chosen: Cycles = {}
    blocks = list(found)
    for one in blocks:
        chosen |= {("total", key): cycle for key, cycle in one.by_key.items()}
    for check in WITHOUT_PLACE:
        mine = [one for one in blocks if one.partial.check == check]
        starts = sorted(message for one in mine for message in one.stuck)[:STARTS]
        met = [(len(cycle[0]), origin, cycle) for one in mine for origin, cycle in one.cycles if origin <= starts[-1]]
        if met:
            chosen[check, 0] = min(met)[2]
    return chosen

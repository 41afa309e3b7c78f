"""The groups of figure 5.4: their sizes follow Zipf's law, as in the evaluation of Scribe."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache

GROUPS = 1_500
EXPONENT = 1.25
PRINTED_NODES, PRINTED_MEMBERS = 65_536, 237_895
"""The total that the source prints."""
SCRIBE_NODES, SCRIBE_MEMBERS = 100_000, 395_247
"""The total that is known for the nodes of Scribe's evaluation."""


@cache
def group_sizes(nodes: int, groups: int = GROUPS) -> tuple[int, ...]:
    """Members of each group, largest first: the g-th has N * g^-1.25 of them, rounded half up; many may have none."""
    return tuple(math.floor(nodes * g**-EXPONENT + 0.5) for g in range(1, groups + 1))


def members(nodes: int, groups: int = GROUPS) -> int:
    """Members of all groups together, which is how many entries the clocks of CBCAST have."""
    return sum(group_sizes(nodes, groups))


def nodes_for(total: int) -> int:
    """The fewest nodes whose groups have that many members together, or more."""
    return bisect_left(range(2 * total), total, key=members)


def groups_for(total: int, nodes: int) -> int:
    """After how many groups the members are nearest to that total."""
    return min(range(1, GROUPS + 1), key=lambda groups: abs(members(nodes, groups) - total))

"""Worst cases of header and local memory, in bytes, as formulas of system size, f and degree (figure 5.4).

LoCaMu's two header sizes come from `ordercast.protocols.locamu.sizes`: the formula that gives the 540 bytes that the
source states, and the largest header that this implementation can have. The source has no formula for memory.
"""

from __future__ import annotations

from ordercast.experiments.locamu_scale import zipf
from ordercast.protocols.locamu.rules import radii
from ordercast.protocols.locamu.sizes import largest, streams_around
from ordercast.protocols.shared.sizes import WORD

BYTES_PER_PROCESSED = 3 * WORD
"""Of what a LoCaMu node knows of one forwarder: its rank, how far its stream is processed, and one number beyond."""


def entries(nodes: int, groups: str) -> int:
    """Members of all groups together."""
    return zipf.members(nodes) if groups == "zipf" else nodes


def within(degree: int, hops: int) -> int:
    """Other nodes so near to one, in a large tree where everyone has `degree` neighbours."""
    return sum(degree * (degree - 1) ** (hop - 1) for hop in range(1, hops + 1))


def cbcast_header(members: int) -> int:
    """A word per member of each group."""
    return WORD * members


def cbcast_memory(members: int, linked: int) -> int:
    """Its clock, and the last one on each link for the differences."""
    return WORD * members * (1 + linked)


def barriers_header(nodes: int) -> int:
    """Everyone has to wait for a message of everyone: a node and a number each."""
    return 2 * WORD * nodes * nodes


def barriers_memory(nodes: int) -> int:
    """Memory of causal barriers: the record of what is delivered where, and the barriers."""
    return WORD * nodes * nodes + barriers_header(nodes)


def largest_of_differences(degree: int, f: int) -> int:
    """LoCaMu's header where every stream of the neighbourhood has changed: two words each, and one a first node."""
    reach = radii(f, "corrected")
    streams = streams_around(degree, reach)
    return largest(degree, f) + WORD * streams + WORD * (1 + within(degree, reach.window))


def locamu_memory(degree: int, f: int, profile: str) -> int:
    """The past, the last one sent on each link, and what is processed of each forwarder within the window."""
    reach = radii(f, profile)
    past = WORD * streams_around(degree, reach)
    return past * (1 + within(degree, reach.jump)) + BYTES_PER_PROCESSED * within(degree, reach.window)

"""Faults besides the order of steps: suspicions, right or wrong, and packets that never arrive."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.explore.scope.configurations import parse_node

DETECTOR = -2
"""Stands for the failure detector of a node where others stand for the peer of an input; further ones go down from it,
one for each scripted toggle, so that they may happen in any order."""

_TOGGLE = re.compile(r"\s*(?P<node>\w+)\s*:\s*(?P<peers>[\w\s,]+?)(?P<stays>\s+stays)?\s*")


class DetectorChange(msgspec.Struct, frozen=True):
    """The failure detector of a node changes its mind about some linked nodes."""

    peers: tuple[int, ...]
    on: bool
    """Whether they are suspected from now on, or trusted again."""


class Toggle(msgspec.Struct, frozen=True):
    """A node may begin to suspect some others at any time, and trust them again at any time after that."""

    node: int
    peers: tuple[int, ...]
    stays: bool = False
    """Whether it trusts them only in the end."""

    def inputs(self) -> list[DetectorChange]:
        """The inputs of this fault, in the order in which they happen, if it happens."""
        return [DetectorChange(self.peers, on=True), *([] if self.stays else [DetectorChange(self.peers, on=False)])]


class Faults(msgspec.Struct, frozen=True):
    """A limit on how much may go wrong in a run."""

    losses: int = 0
    """So many packets may be lost."""
    suspicions: int = 0
    """So often any node may change its mind about any node that it is linked to."""
    toggles: tuple[Toggle, ...] = ()
    without: tuple[str, ...] = ()
    """Packets of these types never arrive, but for the end of the run."""


def check_faults(faults: Faults, neighbours: Sequence[Sequence[int]], packets: Sequence[str]) -> None:
    """Refuse by name what could never happen, given the linked nodes of each node and the types of packets."""
    for field, count in (("losses", faults.losses), ("suspicions", faults.suspicions)):
        if count < 0:
            raise UsageError(f"{field}: {count} is less than none")
    for name in faults.without:
        if name not in packets:
            raise UsageError(f"without: {unknown_name('packet', name, packets)}")
    for toggle in faults.toggles:
        strangers = [peer for peer in toggle.peers if peer not in neighbours[toggle.node]]
        if strangers:
            raise UsageError(f"toggles: n{toggle.node} is not linked to n{strangers[0]} and cannot suspect it")


def parse_toggle(text: str, nodes: int) -> Toggle:
    """`0:1,2` (n0 suspects n1 and n2 at once, and trusts them again), `0:1 stays` (and never does)."""
    match = _TOGGLE.fullmatch(text)
    if match is None:
        raise UsageError(f"toggles: {text!r} is not like '0:1,2' or '0:1 stays'")
    peers = [parse_node(word, nodes, "toggles") for word in match["peers"].split(",")]
    return Toggle(parse_node(match["node"], nodes, "toggles"), tuple(dict.fromkeys(peers)), bool(match["stays"]))

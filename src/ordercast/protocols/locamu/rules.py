"""Rules of LoCaMu: how far it looks, and which of the corrections to the published algorithm are in force.

Spec: docs/protocols/locamu.md ("Radii", "Corrections").
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class Radii(msgspec.Struct, frozen=True):
    """Distances on the tree that follow from f."""

    f: int
    jump: int
    """J: the longest link."""
    numbering: int
    """rho: how far downstream a forwarder numbers a message."""
    window: int
    """W: of so many nodes before a receiver at most f may be skipped. Also the radius of the state kept (sigma)."""
    shadow: int
    """g: so many hops beside the route a message without payload travels along."""


def radii(f: int, profile: str) -> Radii:
    if profile == "published":
        return Radii(f, f + 1, f + 1, 2 * f + 1, 0)
    return Radii(f, f + 1, max(f + 1, 2 * f), 2 * f + 1, f // 2)


class Rules(msgspec.Struct, frozen=True):
    """Differences between the corrected algorithm and the printed one; each rule bears the number of its correction."""

    duplicates_first: bool = True
    """LCM-C6: a duplicate is recognised before it is held back, and raises nothing."""
    gapless: bool = True
    """LCM-C7: the own column counts a stream up to its first gap, not up to its highest number."""
    flags_late: bool = True
    """LCM-C8: a vector learned after forwarding is marked and never raises the past."""
    whole: bool = True
    """LCM-C9: headers are not trimmed to what the receiver's neighbourhood contains."""
    pushes: bool = True
    """LCM-C10: names learned late are passed on soon, and on demand."""
    fenced: bool = True
    """LCM-C11: a neighbour's minimum is adopted only behind the fence."""
    keeps_until_complete: bool = True
    """LCM-C12: a message that all linked nodes have is kept until every near forwarder upstream has named it, too."""
    checks_safety: bool = True
    """At most f of the last 2f + 1 nodes may be skipped."""
    merges: bool = True
    """Vectors of further copies are taken over."""
    proxies: bool = True
    """Others send in the name of a suspected forwarder. Off only to see what it is good for."""


CORRECTED = Rules()
PRINTED = Rules(
    duplicates_first=False,
    gapless=False,
    flags_late=False,
    whole=False,
    pushes=False,
    fenced=False,
    keeps_until_complete=False,
)
FIELD_OF = {
    "C6": "duplicates_first",
    "C7": "gapless",
    "C8": "flags_late",
    "C9": "whole",
    "C10": "pushes",
    "C11": "fenced",
    "C12": "keeps_until_complete",
}

Correction = Literal["C6", "C7", "C8", "C9", "C10", "C11", "C12"]
_Ms = Annotated[float, msgspec.Meta(gt=0, le=600_000)]


class LocamuOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of LoCaMu."""

    f: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    """Nodes that may be unavailable on every path of 2f + 1."""
    profile: Literal["corrected", "published"] = "corrected"
    """The radii: `published` numbers f + 1 hops far and has no nodes beside the route; unsafe for f >= 2."""
    delta: bool = True
    """Whether a past travels as what changed since the last one on the link, where links let that work."""
    ack_ms: _Ms = 100.0
    """How long an acknowledgement may wait."""
    need_ms: _Ms = 20.0
    """How long a copy may be held back before what it waits for is asked for."""
    push_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 2.0
    """How long names that come late may wait for others, to be passed on together; 0: not at all."""
    check: bool = False
    """Whether a node checks its invariants at every message."""
    tally: bool = False
    """Whether a node counts what its headers would cost by the source's model (attribute `tally` of the machine)."""


class PublishedOptions(LocamuOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of the printed algorithm."""

    profile: Literal["corrected", "published"] = "published"
    corrections: tuple[Correction, ...] = ()
    """Which corrections apply all the same."""


def printed_with(corrections: tuple[str, ...]) -> Rules:
    """The printed rules, some of them corrected."""
    return msgspec.structs.replace(PRINTED, **{FIELD_OF[name]: True for name in corrections})

"""Settings of the gossip layer, with those of the source as defaults."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from ordercast.protocols.gossip.members import ViewLimits
from ordercast.protocols.gossip.rumours import RumourLimits

Count = Annotated[int, msgspec.Meta(ge=1)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0)]


class GossipOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`round_ms` should be longer than most packets take. All limits are per process."""

    round_ms: Milliseconds = 100.0
    fanout: Count = 4
    """Members that a process tells in a round."""
    rounds: Annotated[int, msgspec.Meta(ge=1, le=254)] = 7
    """Age, in rounds, after which a message is passed on no more: see `rounds_for`."""
    events: Count = 20
    """Messages in a packet, at most."""
    buffer: Count = 1_000
    """Messages that are passed on at the same time, at most."""
    history: Count = 1_000
    """Messages that are known to be no news, at most: twice what comes in `rounds` + 2 rounds, or more."""
    members: Count = 10
    """Members that a packet tells of, at most."""
    view: Count = 2_000
    """Members that a process knows, at most. More than there are: everybody knows everybody."""
    forget_rounds: Count = 200
    """Rounds after which a member that nobody has heard of counts as dead."""

    @property
    def round_ns(self) -> int:
        return round(self.round_ms * 1e6)

    def rumour_limits(self) -> RumourLimits:
        return RumourLimits(self.rounds, self.events, self.buffer, self.history)

    def view_limits(self) -> ViewLimits:
        return ViewLimits(self.view, self.members, self.forget_rounds)


def rounds_for(members: int, fanout: int) -> int:
    """GSP-5: rounds after which a rumour has most likely reached every one of so many members."""
    many = max(members, 2)
    hops = math.log(many, 1 + fanout) - 1e-9  # A power of 1 + fanout is not one more because of its last digit.
    return math.ceil(hops) + math.ceil(math.log(many) / fanout) + 2

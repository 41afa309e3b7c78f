"""Packets between brokers about the tree: who is whose parent, who is root, who is there (O, PC, J).

On the link of a parent and its child travel RootCheck, NewTerm, LeaseAck, TreeView, BrokerDown, BrokerUp, About,
Handover, DirectoryWave, DirectoryAck, JoinRequest and LeaveRequest; everything else is said directly, on whatever
connection the two brokers share. The connection on which a ParentRequest was accepted is the link.
"""

from __future__ import annotations

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Packet
from ordercast.pubsub.client_packets import Neighbour
from ordercast.pubsub.closed import Closed

Term = tuple[int, NodeId]
Rank = tuple[int, NodeId]
"""Minus the free connections when the parent was lost, and the node: the smaller, the better suited as root."""
Stamp = tuple[int, int]
"""Term number and serial of a change of the directory; a later change has a larger one."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A broker that joined, or, without an address, left at run time."""

    node: NodeId
    address: str
    stamp: Stamp


class KnownDirectory(msgspec.Struct, frozen=True, array_like=True):
    """BRK-J6: who was in the directory at the stamp `settled`, all changes up to it included, and the changes since."""

    changes: tuple[Change, ...] = ()
    settled: Stamp = (0, 0)
    members: dict[NodeId, str] = msgspec.field(default_factory=dict)


class ParentRequest(Packet, frozen=True, tag=40):
    """BRK-O5: be my parent. `request` grows with every request of a life."""

    request: int
    topics: tuple[Topic, ...]
    break_degree: bool
    rank: Rank


class ParentResponse(Packet, frozen=True, tag=41):
    """BRK-O6 to BRK-O9. `reason`: DEGREE, TOPIC, DETACHED, CYCLE or LEAVING; with DETACHED comes the fragment's top."""

    request: int
    accepted: bool
    term: Term
    reason: str = ""
    top: NodeId = NodeId("")
    rank: Rank = (0, NodeId(""))


class RootCheck(Packet, frozen=True, tag=42):
    """BRK-O7: climbs the parent chain of `asker` to find out whether it ends at a root."""

    request: int
    requester: NodeId
    asker: NodeId


class RootCheckReply(Packet, frozen=True, tag=43):
    """BRK-O8: `verdict` is ANCHORED, DETACHED or CYCLE."""

    request: int
    requester: NodeId
    verdict: str
    top: NodeId
    rank: Rank


class Bye(Packet, frozen=True, tag=44):
    """BRK-O10, BRK-O11: I am not, or no longer, the child that you accepted with this request."""

    request: int


class RootElection(Packet, frozen=True, tag=45):
    """BRK-O12: a claim to the root of term `number`."""

    number: int
    rank: Rank
    directory: KnownDirectory = KnownDirectory()


class RootElectionReply(Packet, frozen=True, tag=46):
    """BRK-O13: `verdict` is OK, ROOT, BETTER, STALE or ABSTAIN (it does not remember what it has promised)."""

    number: int
    verdict: str
    highest: int
    """The highest term number that the answering broker has promised or seen."""
    term_number: int = 0
    """The number of the last term that it took part in: 0 if it knows of no root before."""
    roster: dict[Topic, tuple[Origin, ...]] = msgspec.field(default_factory=dict)
    fenced: dict[Origin, int] = msgspec.field(default_factory=dict)
    directory: KnownDirectory = KnownDirectory()
    closed: Closed = msgspec.field(default_factory=dict)
    """BRK-F7: the sessions that are folded."""
    lease_ms: int = 0
    """The longest lease that it may have helped to give and that may not be over, beyond what was configured."""
    absent: dict[Topic, dict[Origin, int]] | None = None
    """BRK-M10: who is absent, and for how many milliseconds, as the root of that term told it; None: it did not."""


class RootAnnounce(Packet, frozen=True, tag=47):
    """BRK-O15: there is a new root."""

    term: Term


class NewTerm(Packet, frozen=True, tag=48):
    """BRK-O16, from the parent: this is the term. `beat` counts the root's heartbeats in it (BRK-PC3)."""

    term: Term
    beat: int = 0
    lease_ms: int = 0
    """How long the lease is that its answers give, where that is more than was configured."""


class LeaseAck(Packet, frozen=True, tag=49):
    """BRK-PC3, to the parent: these brokers have heard this beat and have promised nobody a later term."""

    term: Term
    beat: int
    nodes: tuple[NodeId, ...]


class TreeView(Packet, frozen=True, tag=50):
    """BRK-O17, from the parent: the brokers around it. Replaces the last one."""

    neighbours: tuple[Neighbour, ...]


class BrokerDown(Packet, frozen=True, tag=51):
    """BRK-O18: a hint that this life of the broker is over."""

    node: NodeId
    life: int


class BrokerUp(Packet, frozen=True, tag=52):
    """BRK-O18: the broker is in the tree in this life."""

    node: NodeId
    life: int


class About(Packet, frozen=True, tag=53):
    """BRK-O19, between parent and child: what a seeker wants to know of the sender."""

    topics: tuple[Topic, ...]
    residual: int
    region: str


class Handover(Packet, frozen=True, tag=54):
    """BRK-J3, to the children of a broker that leaves: seek, and ask `hint` first."""

    hint: NodeId


class JoinRequest(Packet, frozen=True, tag=55):
    """BRK-J2, towards the root: a broker that is in nobody's directory asks to be taken in."""

    node: NodeId
    address: str


class LeaveRequest(Packet, frozen=True, tag=56):
    """BRK-J3, towards the root: the broker asks to be struck off the directory, and to be told so at its address."""

    node: NodeId
    address: str


class DirectoryWave(Packet, frozen=True, tag=57):
    """BRK-J2, BRK-J3, along the links: all that the sender knows of the directory."""

    directory: KnownDirectory


class DirectoryAck(Packet, frozen=True, tag=58):
    """BRK-J2, BRK-J3, to the parent: these brokers have recorded every change up to the stamp."""

    stamp: Stamp
    nodes: tuple[NodeId, ...]


class Welcome(Packet, frozen=True, tag=59):
    """BRK-J2, root to newcomer: everybody knows you; here is everybody."""

    directory: KnownDirectory


class Farewell(Packet, frozen=True, tag=60):
    """BRK-J3, root to a broker that leaves: nobody counts on you any more."""


class Recall(Packet, frozen=True, tag=61):
    """BRK-PC8, from a broker that may have forgotten what it promised in a former life: what do you know?"""


class Recalled(Packet, frozen=True, tag=62):
    """The highest term number that the sender has promised or seen, and whether it may have forgotten something too."""

    highest: int
    forgetful: bool


class AskToLeave(Packet, frozen=True, tag=63):
    """BRK-J4, from any broker, because its operator said so: leave for good (BRK-J3)."""


TREE_PACKETS: tuple[type[Packet], ...] = (
    ParentRequest, ParentResponse, RootCheck, RootCheckReply, Bye, RootElection, RootElectionReply, RootAnnounce,
    NewTerm, LeaseAck, TreeView, BrokerDown, BrokerUp, About, Handover, JoinRequest, LeaveRequest, DirectoryWave,
    DirectoryAck, Welcome, Farewell, Recall, Recalled, AskToLeave,
)  # fmt: skip

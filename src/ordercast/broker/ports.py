"""The two ports between the halves of a broker: the tree keeps the links, the topics keep what travels on them."""

from __future__ import annotations

from typing import Protocol

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.closed import Closed

Term = tuple[int, NodeId]
"""Number and root: every root has a fresh one. (0, "") before the first."""
Roster = dict[Topic, tuple[Origin, ...]]
"""Who is a member of what, sorted."""
Fenced = dict[Origin, int]
"""Sessions that never count again, up to and including this attach number."""
Ages = dict[Topic, dict[Origin, int]]
"""BRK-M10: which members are absent, and for how many milliseconds."""


class TreePort(Protocol):
    """The questions that the topics half may ask the tree half."""

    node: NodeId
    life: int
    term: Term
    is_root: bool
    seeking: bool
    decides: bool
    """ROOT, and entitled to commit, grant and fence now (with `partitions = primary`: holds its lease and has waited
    out the one of its predecessor). `Topics.may_decide` is called when it becomes true."""
    parent: Connection | None
    """The link to the parent; None: ROOT or SEEKING."""
    parent_name: NodeId | None
    children: dict[Connection, NodeId]
    """The links to the children."""
    dead: dict[NodeId, int]
    """Brokers that are known to be dead, each with its last life; empty where partitions are possible."""
    member: bool
    """Whether the others count it among them."""
    directory: dict[NodeId, str]
    """All brokers that belong to the tree, this one among them, and their addresses."""


class TopicsPort(Protocol):
    """The news that the tree half tells the topics half, in the middle of its own rules."""

    def attached(self) -> None:
        """BRK-O10.3: there is a parent; open every topic (BRK-S1)."""

    def parent_lost(self) -> None:
        """BRK-O3.1: channels up and joins in progress are over; nodes that are not grounded are reset (BRK-S7)."""

    def child_added(self, child: Connection) -> None:
        """BRK-O9: a new child; send it the roster (RosterSync)."""

    def child_lost(self, child: Connection) -> None:
        """BRK-O2.4, BRK-O11: drop it from every topic (BRK-S8) and from the waves that wait for it (BRK-M9)."""

    def term_adopted(self) -> None:
        """BRK-O16: reports of another term are void; everything is evaluated anew (BRK-L6)."""

    def became_root(self) -> None:
        """BRK-O15: no grants, no opened topics. BRK-O1: at the very first start every topic is open."""

    def may_decide(self) -> None:
        """`decides` has become true: evaluate everything (BRK-L6)."""

    def stepped_down(self) -> None:
        """A root lost its lease and seeks: like `parent_lost` for a broker that had none."""

    def left_behind(self) -> None:
        """BRK-J3: the others have gone on without this broker."""

    def answered(self, link: Connection, asked: int) -> None:
        """BRK-L7: a neighbour has answered the Ping that it was sent at that time."""

    def handed_up(self) -> bool:
        """BRK-J3: whether the parent has everything that is held here."""

    def names(self) -> tuple[Topic, ...]:
        """The topics that this broker takes part in, sorted, for parent requests."""

    def has(self, topic: Topic) -> bool:
        """Whether this broker takes part in the topic."""

    def roster(self) -> Roster:
        """For an election's OK and for RosterSync."""

    def fenced(self) -> Fenced: ...

    def closed(self) -> Closed:
        """BRK-F7: the sessions that are folded."""

    def absent(self) -> Ages | None:
        """BRK-M10: what the root of the last term told of who is absent; None: it did not tell this broker."""

    def learn_absent(self, number: int, since: Ages) -> None:
        """BRK-M10: since when (in nanoseconds) members are absent, as the root of that term told others."""

    def merge_roster(self, roster: Roster, fenced: Fenced, closed: Closed | None = None) -> None:
        """BRK-O14.1, BRK-M9.4: what other brokers know."""

    def client_attached(
        self, client: Connection, peer: Peer, attach_no: int, ticket: str = "", seal: bytes = b""
    ) -> None:
        """BRK-M1: a client said Attach; the overlay has already answered with a View."""

    def client_lost(self, client: Connection, *, gone: bool) -> None:
        """BRK-M8: its connection ended, on purpose (it leaves) or not."""

    def receive(self, sender: Connection, packet: Packet) -> None:
        """A packet of pubsub.topic_packets or, from a client, of pubsub.client_packets."""

    def timer(self, name: tuple[object, ...]) -> None:
        """A timer whose name begins with "topics"."""

    def turn_end(self) -> None:
        """Send what was only noted: acknowledgements, reports."""

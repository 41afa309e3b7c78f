"""State that the parts of the tree half share: role, term, links, and who is believed to be where."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from typing import ClassVar

from ordercast.broker.place import BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.ports import Term, TopicsPort
from ordercast.broker.tree.directory_book import DirectoryBook
from ordercast.core.chance import mix, salt, unit
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection, Peer, Wires
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Neighbour
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.tree_packets import KnownDirectory, Rank

MS = 1_000_000
NOBODY = NodeId("")
NO_TERM: Term = (0, NOBODY)
_LAST = 1_000_000
"""In a rank: behind everybody who may become root."""
_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=4096)
def natural(node: NodeId) -> tuple[str | int, ...]:
    """Orders names as people do: b2 before b10."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(_DIGITS.split(node)))


def better(rank: Rank, other: Rank) -> bool:
    """Whether a seeker of this rank is to be root rather than the other."""
    return (rank[0], natural(rank[1])) < (other[0], natural(other[1]))


class TreeState(State):
    """Role, term, neighbours, and who is believed to be where. Its role changes by the methods below alone."""

    constant: ClassVar[tuple[str, ...]] = (
        "place",
        "settings",
        "wires",
        "ledger",
        "topics",
        "node",
        "life",
        "primary",
        "_salt",
    )

    topics: TopicsPort

    def __init__(
        self,
        place: BrokerPlace,
        settings: BrokerSettings,
        wires: Wires,
        ledger: BrokerLedger,
        saved: SavedBroker | None,
    ):
        self.place = place
        self.settings = settings
        self.wires = wires
        self.ledger = ledger
        self.node = place.node
        self.life = place.life
        self.primary = settings.partitions == "primary"
        configured = {**place.directory, place.node: place.address}
        self.book = DirectoryBook(configured, saved.directory if saved is not None else KnownDirectory())
        listed = self.book.directory()
        self.directory: dict[NodeId, str] = {**listed, place.node: place.address}
        self.member = place.node in listed and (not place.seeds or len(listed) > 1)
        """False: it has not joined yet; it takes no children and no clients and never claims (BRK-J2)."""
        self.leaving = False
        self.left = False
        self.claims_from_ns = 0
        """Who knows of no tree waits so long for the configured root to begin one."""

        self.term: Term = NO_TERM
        self.is_root = False
        self.seeking = True
        self.decides = False
        self.parent: Connection | None = None
        self.parent_name: NodeId | None = None
        self.children: dict[Connection, NodeId] = {}
        self.clients: dict[Connection, Peer] = {}
        self.lines_of: dict[str, tuple[Connection, ...]] = {}
        """The connections of each client, by its name: one, or for a moment more."""
        self.view: tuple[Neighbour, ...] = ()

        self.lives: dict[NodeId, int] = {}
        """The newest life seen of every broker."""
        self.dead: dict[NodeId, int] = {}
        """The newest life found dead. Only without partitions is it more than a guess."""
        self.unreachable: set[NodeId] = set()
        """Nobody answered there; forgotten as soon as somebody does."""
        self.frozen_residual = settings.total_degree
        self.accepted_request = 0
        """The request by which the parent has taken this broker; 0 for a root."""
        self._salt = salt(0, "retry", place.node)
        self._draws = 0

    # Changes of its role

    def seek(self) -> None:
        """Become SEEKING; the rank stays the same for the whole search."""
        self.seeking = True
        self.frozen_residual = self.residual

    def attach(self, line: Connection, node: NodeId, request: int) -> None:
        self.seeking = False
        self.parent, self.parent_name, self.accepted_request = line, node, request

    def detach(self) -> None:
        self.parent = self.parent_name = None

    def reign(self) -> None:
        """ROOT. Nobody is above it; what its last parent said of the neighbourhood is of another tree (BRK-O17)."""
        self.seeking, self.is_root = False, True
        self.accepted_request = 0
        self.view = ()

    def abdicate(self) -> None:
        self.is_root = self.decides = False

    def stop(self) -> None:
        """It has left: nothing concerns it any more."""
        self.children.clear()
        self.clients.clear()
        self.lines_of.clear()
        self.detach()
        self.seeking = True

    def take_client(self, line: Connection, client: Peer) -> None:
        self.clients[line] = client
        self.lines_of[client.name] = (*self.lines_of.get(client.name, ()), line)

    def drop_client(self, line: Connection) -> Peer | None:
        """Who it was; None: nobody."""
        client = self.clients.pop(line, None)
        if client is not None:
            left = tuple(other for other in self.lines_of.pop(client.name) if other != line)
            if left:
                self.lines_of[client.name] = left
        return client

    def see(self, view: tuple[Neighbour, ...]) -> None:
        """BRK-O17: the neighbourhood as the parent sees it."""
        self.view = view

    def become_member(self, directory: dict[NodeId, str]) -> None:
        """BRK-J2: it counts, with all these others."""
        self.member, self.directory = True, directory

    def know(self, directory: dict[NodeId, str]) -> None:
        """Others have come, or gone."""
        self.directory = directory

    def forget_all_but(self, nodes: Set[NodeId]) -> None:
        """Forget the incarnations and ends that were seen of all other brokers."""
        for seen in (self.lives, self.dead):
            for node in [node for node in seen if node not in nodes]:
                del seen[node]
        self.unreachable &= nodes

    def struck_off(self) -> None:
        """BRK-J3: it counts no more, though it has not asked for that."""
        self.member = False

    def begin_leaving(self) -> None:
        self.leaving = True

    def end_leaving(self) -> None:
        self.left = True

    def enter(self, term: Term) -> None:
        self.term = term

    def may_decide(self, *, decides: bool) -> bool:
        """Whether it may decide from now on; gives whether it could not before."""
        news, self.decides = decides and not self.decides, decides
        return news

    def knows_of_a_tree(self) -> None:
        """Nothing has to be waited for before it may claim."""
        self.claims_from_ns = 0

    # What follows

    @property
    def residual(self) -> int:
        """F-DEG-1: computed, never stored. Negative when clients came beyond the limit."""
        neighbours = len(self.children) + len(self.clients) + (self.parent is not None)
        return self.settings.total_degree - neighbours

    @property
    def may_claim(self) -> bool:
        """Newcomers and leavers never become root; nor does a broker that starts, as long as it knows of no tree."""
        return self.member and not self.leaving and self.wires.now_ns >= self.claims_from_ns

    @property
    def rank(self) -> Rank:
        """F-ELE-3: frozen when the parent was lost."""
        return (-self.frozen_residual if self.may_claim else _LAST, self.node)

    def lose_reach_of(self, node: NodeId) -> None:
        """Nobody answers there; it may be down, or only out of reach."""
        self.unreachable.add(node)

    def found(self, node: NodeId) -> None:
        """It has answered."""
        self.unreachable.discard(node)

    def believed_dead(self, node: NodeId) -> bool:
        return node in self.unreachable or self.dead.get(node, -1) >= self.lives.get(node, 0)

    def links(self) -> list[Connection]:
        """Parent first, then the children."""
        return [*([self.parent] if self.parent is not None else []), *self.children]

    def child_link(self, node: NodeId) -> Connection | None:
        return next((link for link, child in self.children.items() if child == node), None)

    def others(self) -> list[NodeId]:
        """Everybody in the directory but this broker, in natural order."""
        return sorted((node for node in self.directory if node != self.node), key=natural)

    def is_majority(self, nodes: set[NodeId]) -> bool:
        """Whether these are more than half of the directory."""
        return 2 * len(nodes & self.directory.keys()) > len(self.directory)

    def draw_retry_ns(self) -> int:
        """`retry_ms` times something between a half and one and a half, another one every time."""
        self._draws += 1
        factor = 0.5 + unit(mix(self._salt, self.life, self._draws))
        return int(self.settings.retry_ms * factor * MS)


class TreePart(State):
    """Base of the parts: each has a share of the rules, and besides the shared state only what these rules remember."""

    constant: ClassVar[tuple[str, ...]] = ("state", "settings", "wires")

    def __init__(self, state: TreeState) -> None:
        self.state = state
        self.settings = state.settings
        self.wires = state.wires

    @property
    def topics(self) -> TopicsPort:
        return self.state.topics

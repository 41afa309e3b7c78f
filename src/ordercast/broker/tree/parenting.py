"""Accepting and refusing children, and the checks before that (BRK-O6 to BRK-O9, BRK-O11)."""

from __future__ import annotations

from typing import NamedTuple

from ordercast.broker.tree.joining import BrokerJoining
from ordercast.broker.tree.lease import RootLease
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.notices import Notices
from ordercast.broker.tree.tree_state import NOBODY, TreePart, TreeState
from ordercast.broker.tree.views import Views
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import Bye, ParentRequest, ParentResponse, Rank, RootCheck, RootCheckReply


class CheckedRequest(NamedTuple):
    """A request that waits for the answer of the root of this fragment."""

    line: Connection
    break_degree: bool


class Parenting(TreePart):
    """Accepts and refuses children."""

    constant = (*TreePart.constant, "neighbours", "notices", "views", "joining", "lease")

    def __init__(
        self,
        state: TreeState,
        neighbours: Neighbours,
        notices: Notices,
        views: Views,
        joining: BrokerJoining,
        lease: RootLease,
    ) -> None:
        super().__init__(state)
        self.neighbours = neighbours
        self.notices = notices
        self.views = views
        self.joining = joining
        self.lease = lease
        self._checks: dict[tuple[NodeId, int], CheckedRequest] = {}
        self._accepted: dict[Connection, int] = {}
        """The request that made a child of the other end."""

    def uses(self, line: Connection) -> bool:
        return any(asked.line == line for asked in self._checks.values())

    # BRK-O6

    def asked(self, line: Connection, node: NodeId, packet: ParentRequest) -> None:
        if not self._is_newest(node, packet):
            return
        if self.state.seeking:
            self._refuse(line, packet.request, "DETACHED", self.state.node, self.state.rank)
        elif self.state.leaving or not self.state.member:
            self._refuse(line, packet.request, "LEAVING")
        elif self.state.parent_name == node:
            self._refuse(line, packet.request, "CYCLE")
        elif not packet.break_degree and self.state.residual <= 0:
            self._refuse(line, packet.request, "DEGREE")
        elif not packet.break_degree and not self.state.is_root and not all(map(self.topics.has, packet.topics)):
            self._refuse(line, packet.request, "TOPIC")
        elif self.state.is_root:
            self._accept(line, node, packet.request)
        else:
            assert self.state.parent is not None
            self._checks[(node, packet.request)] = CheckedRequest(line, packet.break_degree)
            self.wires.send(self.state.parent, RootCheck(packet.request, node, self.state.node))

    def _is_newest(self, node: NodeId, packet: ParentRequest) -> bool:
        """Whether this is the asker's newest request. It is SEEKING, so an older link to it is over."""
        link = self.state.child_link(node)
        if link is not None and self._accepted[link] >= packet.request:
            return False
        for other, number in sorted(self._checks):
            if other == node:
                if number > packet.request:
                    return False
                del self._checks[(other, number)]
        if link is not None:
            self.drop(link)
        return True

    def _refuse(
        self, line: Connection, request: int, reason: str, top: NodeId = NOBODY, rank: Rank = (0, NOBODY)
    ) -> None:
        self.wires.send(line, ParentResponse(request, False, self.state.term, reason, top, rank))

    # BRK-O7, BRK-O8

    def check(self, line: Connection, packet: RootCheck) -> None:
        """BRK-O7. A check that is lost costs the requester one timeout."""
        if line not in self.state.children:
            return
        if packet.requester == self.state.node:
            verdict = "CYCLE"
        elif self.state.is_root:
            verdict = "ANCHORED"
        elif self.state.seeking:
            verdict = "DETACHED"
        else:
            assert self.state.parent is not None
            self.wires.send(self.state.parent, packet)
            return
        reply = RootCheckReply(packet.request, packet.requester, verdict, self.state.node, self.state.rank)
        self.neighbours.say(packet.asker, reply)

    def checked(self, packet: RootCheckReply) -> None:
        """BRK-O8: the root of this fragment has looked at a request: accept, or refuse with its reason."""
        asked = self._checks.pop((packet.requester, packet.request), None)
        if asked is None:
            return
        if packet.verdict != "ANCHORED":
            self._refuse(asked.line, packet.request, packet.verdict, packet.top, packet.rank)
        elif self.state.seeking:
            self._refuse(asked.line, packet.request, "DETACHED", self.state.node, self.state.rank)
        elif self.state.parent_name == packet.requester:
            self._refuse(asked.line, packet.request, "CYCLE")
        elif self.state.leaving:
            self._refuse(asked.line, packet.request, "LEAVING")
        elif not asked.break_degree and self.state.residual <= 0:
            self._refuse(asked.line, packet.request, "DEGREE")
        else:
            self._accept(asked.line, packet.requester, packet.request)

    def detach(self) -> None:
        """The checks went up a link that is gone: whoever waits for them need not wait for its timer."""
        checks, self._checks = self._checks, {}
        for (_, request), asked in checks.items():
            self._refuse(asked.line, request, "DETACHED", self.state.node, self.state.rank)

    # BRK-O9, BRK-O11

    def _accept(self, line: Connection, node: NodeId, request: int) -> None:
        if self.state.residual <= 0:
            self.wires.count("broke_degree")
        self.state.children[line] = node
        self._accepted[line] = request
        self.wires.send(line, ParentResponse(request, True, self.state.term))
        self.lease.greet(line)
        self.joining.greet(line)
        self.topics.child_added(line)
        self.notices.accepted(line, node, self.neighbours.peers[line].life)

    def bye(self, line: Connection, packet: Bye) -> None:
        """BRK-O11: F-REQ-4: only if it is the request that was accepted."""
        if self._accepted.get(line) == packet.request:
            self.drop(line)

    def drop(self, link: Connection) -> None:
        """BRK-O2.4: a child is no longer one."""
        del self.state.children[link]
        del self._accepted[link]
        self.views.forget(link)
        self.topics.child_lost(link)

    def line_ended(self, line: Connection) -> None:
        for key in [key for key, asked in self._checks.items() if asked.line == line]:
            del self._checks[key]
        if line in self.state.children:
            self.drop(line)

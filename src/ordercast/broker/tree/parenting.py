"""Being asked to be a parent (O6 to O9, O11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ordercast.broker.tree.tree_state import NOBODY
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import Bye, ParentRequest, ParentResponse, Rank, RootCheck, RootCheckReply

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay


class Asked(NamedTuple):
    """A request that waits for the answer of the root of this fragment."""

    line: Connection
    break_degree: bool


class Host(State):
    """The children, and those who want to be."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._checks: dict[tuple[NodeId, int], Asked] = {}
        self._accepted: dict[Connection, int] = {}
        """The request that made a child of the other end."""

    def uses(self, line: Connection) -> bool:
        return any(asked.line == line for asked in self._checks.values())

    # -- O6 ---------------------------------------------------------------------------------------------------------

    def asked(self, line: Connection, node: NodeId, packet: ParentRequest) -> None:
        overlay = self.overlay
        if not self._is_newest(node, packet):
            return
        if overlay.seeking:
            self._refuse(line, packet.request, "DETACHED", overlay.node, overlay.rank)
        elif overlay.leaving or not overlay.member:
            self._refuse(line, packet.request, "LEAVING")
        elif overlay.parent_name == node:
            self._refuse(line, packet.request, "CYCLE")
        elif not packet.break_degree and overlay.residual <= 0:
            self._refuse(line, packet.request, "DEGREE")
        elif not packet.break_degree and not overlay.is_root and not all(map(overlay.topics.has, packet.topics)):
            self._refuse(line, packet.request, "TOPIC")
        elif overlay.is_root:
            self._accept(line, node, packet.request)
        else:
            assert overlay.parent is not None
            self._checks[(node, packet.request)] = Asked(line, packet.break_degree)
            overlay.wires.send(overlay.parent, RootCheck(packet.request, node, overlay.node))

    def _is_newest(self, node: NodeId, packet: ParentRequest) -> bool:
        """Whoever asks is SEEKING: an older link to it is over. A request that a newer one has overtaken is void."""
        link = self.overlay.child_link(node)
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
        self.overlay.wires.send(line, ParentResponse(request, False, self.overlay.term, reason, top, rank))

    # -- O7, O8 -----------------------------------------------------------------------------------------------------

    def check(self, line: Connection, packet: RootCheck) -> None:
        """O7. A check that is lost costs the requester one timeout."""
        overlay = self.overlay
        if line not in overlay.children:
            return
        if packet.requester == overlay.node:
            verdict = "CYCLE"
        elif overlay.is_root:
            verdict = "ANCHORED"
        elif overlay.seeking:
            verdict = "DETACHED"
        else:
            assert overlay.parent is not None
            overlay.wires.send(overlay.parent, packet)
            return
        reply = RootCheckReply(packet.request, packet.requester, verdict, overlay.node, overlay.rank)
        overlay.neighbours.say(packet.asker, reply)

    def checked(self, packet: RootCheckReply) -> None:
        """O8."""
        asked = self._checks.pop((packet.requester, packet.request), None)
        overlay = self.overlay
        if asked is None:
            return
        if packet.verdict != "ANCHORED":
            self._refuse(asked.line, packet.request, packet.verdict, packet.top, packet.rank)
        elif overlay.seeking:
            self._refuse(asked.line, packet.request, "DETACHED", overlay.node, overlay.rank)
        elif overlay.parent_name == packet.requester:
            self._refuse(asked.line, packet.request, "CYCLE")
        elif overlay.leaving:
            self._refuse(asked.line, packet.request, "LEAVING")
        elif not asked.break_degree and overlay.residual <= 0:
            self._refuse(asked.line, packet.request, "DEGREE")
        else:
            self._accept(asked.line, packet.requester, packet.request)

    def detach(self) -> None:
        """The checks went up a link that is gone: whoever waits for them need not wait for its timer."""
        checks, self._checks = self._checks, {}
        for (_, request), asked in checks.items():
            self._refuse(asked.line, request, "DETACHED", self.overlay.node, self.overlay.rank)

    # -- O9, O11 ----------------------------------------------------------------------------------------------------

    def _accept(self, line: Connection, node: NodeId, request: int) -> None:
        overlay = self.overlay
        if overlay.residual <= 0:
            overlay.wires.count("broke_degree")
        overlay.children[line] = node
        self._accepted[line] = request
        overlay.wires.send(line, ParentResponse(request, True, overlay.term))
        overlay.lease.greet(line)
        overlay.joining.greet(line)
        overlay.topics.child_added(line)
        overlay.notices.accepted(line, node, overlay.neighbours.peers[line].life)

    def bye(self, line: Connection, packet: Bye) -> None:
        """O11: F-REQ-4: only if it is the request that was accepted."""
        if self._accepted.get(line) == packet.request:
            self.drop(line)

    def drop(self, link: Connection) -> None:
        """O2.4: a child is no longer one."""
        del self.overlay.children[link]
        del self._accepted[link]
        self.overlay.views.forget(link)
        self.overlay.topics.child_lost(link)

    def line_ended(self, line: Connection) -> None:
        for key in [key for key, asked in self._checks.items() if asked.line == line]:
            del self._checks[key]
        if line in self.overlay.children:
            self.drop(line)

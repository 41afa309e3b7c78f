"""Losing a parent and finding another one (O3 to O5, O10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ordercast.broker.tree.candidates import in_order
from ordercast.broker.tree.tree_state import MS, NOBODY, better
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import Bye, Handover, ParentRequest, ParentResponse, Rank

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay

_MOVE_PAUSE_NS = 60_000 * MS
"""J1: at most one move a minute."""
_DEFERRALS = 3
"""Where partitions are possible, so often a broker lets a better one try first: it may be unable to."""


class Candidate(NamedTuple):
    """Somebody to ask; a newcomer knows only addresses."""

    node: NodeId
    address: str


class Seeker(State):
    """The state of a SEEKING broker's search."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)
    ordered: ClassVar[tuple[str, ...]] = ("_results",)

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.hint: NodeId | None = overlay.place.parent
        self.insists_until_ns = 0
        """O1: until then a starting broker asks nobody but its configured parent."""
        self.patient_until_ns = 0
        """Until then one that may have lived before waits for its configured parent if that is looking for its own."""
        self.asked: Candidate | None = None
        self.line: Connection | None = None
        self.request = overlay.life << 20
        self.rounds = 0
        self._queue: list[Candidate] = []
        self._results: dict[Candidate, str] = {}
        self._tops: dict[NodeId, Rank] = {}
        self._break_degree = False
        self._claims_next = False
        self._whole_directory = False
        self._view_was_no_help = False
        self._redialed = False
        self._deferrals = 0
        self._repairing = False
        self._may_move_ns = 0
        self.accepted_request = 0

    # -- O3 ---------------------------------------------------------------------------------------------------------

    def lose_parent(self, why: str) -> None:
        """O3: the link to the parent is over."""
        overlay = self.overlay
        lost, was_root = overlay.parent_name or NOBODY, overlay.parent_name == overlay.term[1]
        overlay.parent = overlay.parent_name = None
        self.begin(lost, why)
        overlay.topics.parent_lost()
        if not was_root or not overlay.may_claim or self.hint is not None:
            self.seek()
        elif overlay.primary:
            self._ask_once_more(lost)
        else:
            overlay.election.start()

    def _ask_once_more(self, root: NodeId) -> None:
        """With partitions perhaps only the connection broke: a claim would unsettle a root that lives."""
        self._break_degree = self._claims_next = True
        self._results = {}
        self._tops = {}
        self._queue = self._known([root])
        self._next()

    def begin(self, lost: NodeId, why: str) -> None:
        """From now on SEEKING, with a rank that stays."""
        overlay = self.overlay
        overlay.seeking = True
        overlay.frozen_residual = overlay.residual
        self.rounds = 0
        self._view_was_no_help = False
        self._deferrals = 0
        self._repairing = True
        overlay.election.forget()
        overlay.host.detach()
        overlay.wires.note("repair_start", {"lost": lost, "why": why})

    # -- O4, O5 -----------------------------------------------------------------------------------------------------

    def seek(self) -> None:
        """O4: draw up the list and begin with its first."""
        self.overlay.wires.cancel_timer(("retry",))
        self._results = {}
        self._tops = {}
        self._break_degree = self._claims_next = False
        self._queue = self._candidates()
        self._next()

    def _candidates(self) -> list[Candidate]:
        overlay = self.overlay
        hint, self.hint = self.hint, None
        if not overlay.member:
            self._whole_directory = True
            seeds = overlay.place.seeds or tuple(overlay.directory[node] for node in overlay.others())
            return [Candidate(NOBODY, seed) for seed in seeds]
        if self._insists and overlay.place.parent is not None:
            return self._known([overlay.place.parent])
        views = in_order(overlay)
        self._whole_directory = self._view_was_no_help or all(overlay.believed_dead(node) for node in views)
        nodes = [*([hint] if hint else []), *views, *(overlay.others() if self._whole_directory else [])]
        return self._known(sorted(dict.fromkeys(nodes), key=overlay.believed_dead))

    def _known(self, nodes: list[NodeId]) -> list[Candidate]:
        """Own children are not asked; nor is anybody whose address is unknown."""
        overlay = self.overlay
        children = set(overlay.children.values())
        return [
            Candidate(node, overlay.directory[node])
            for node in nodes if node in overlay.directory and node != overlay.node and node not in children
        ]  # fmt: skip

    @property
    def _insists(self) -> bool:
        return self.overlay.wires.now_ns < self.insists_until_ns

    def _next(self) -> None:
        """O5."""
        self.asked = self.line = None
        while self._queue:
            candidate = self._queue.pop(0)
            if self._is_still_one(candidate):
                self._ask(candidate)
                return
        self.overlay.wires.cancel_timer(("request",))
        self._exhausted()

    def _is_still_one(self, candidate: Candidate) -> bool:
        """It may have become a child, or left the tree, since the list was drawn up."""
        known = not candidate.node or candidate.node in self.overlay.directory
        return known and self.overlay.child_link(candidate.node) is None

    def _exhausted(self) -> None:
        again = [candidate for candidate, result in self._results.items() if result in ("DEGREE", "TOPIC")]
        if again and not self._break_degree:
            self._break_degree = True
            self._queue = again
            self._next()
        elif self.overlay.leaving and self._nobody_is_there():
            self.overlay.joining.dismissed()
        elif self._insists or not self.overlay.may_claim:
            if self.overlay.leaving:
                self.overlay.joining.hand_over_children()  # One of them may claim; who leaves never does.
            self.pause()
        elif not self._whole_directory and not self._claims_next and "DETACHED" not in self._results.values():
            self._view_was_no_help = True
            self.seek()
        else:
            self.overlay.election.start()

    def _nobody_is_there(self) -> bool:
        dead = {candidate.node for candidate, result in self._results.items() if result == "DEAD"}
        return dead >= set(self.overlay.others())

    def _ask(self, candidate: Candidate) -> None:
        overlay = self.overlay
        self.asked = candidate
        self._redialed = False
        self.line = overlay.neighbours.to(candidate.node) if candidate.node else self._seed_line(candidate)
        self._send_request()

    def _seed_line(self, candidate: Candidate) -> Connection:
        return self.overlay.neighbours.dial(candidate.address, NOBODY)

    def _send_request(self) -> None:
        overlay = self.overlay
        self.request += 1
        self.rounds += 1
        assert self.line is not None
        request = ParentRequest(self.request, overlay.topics.names(), self._break_degree, overlay.rank)
        overlay.wires.send(self.line, request)
        overlay.wires.set_timer(("request",), int(overlay.settings.request_ms * MS))

    def _result(self, result: str) -> None:
        if self.asked is not None:
            self._results[self.asked] = result
        self._next()

    def timed_out(self) -> None:
        """Timers: silence counts as a refusal."""
        line = self.line
        if self.asked is None or line is None:
            return
        if self.overlay.primary and line not in self.overlay.links():
            self.overlay.neighbours.close(line)  # It may be half dead; the next request dials anew.
            self.overlay.election.line_ended(line, gone=True)
        self._result("TIMEOUT")

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """O2.5: whoever was being asked is not there, or closed an idle connection just then."""
        if line != self.line or self.asked is None:
            return
        if gone or self._redialed:
            self._result("DEAD")
            return
        self._redialed = True
        self.line = self.overlay.neighbours.dial(self.asked.address, self.asked.node)
        self._send_request()

    # -- O10 --------------------------------------------------------------------------------------------------------

    def answered(self, line: Connection, response: ParentResponse) -> None:
        overlay = self.overlay
        if not overlay.seeking or line != self.line or response.request != self.request:
            if response.accepted and line != overlay.parent:
                overlay.wires.send(line, Bye(response.request))
        elif not response.accepted:
            self._refused(response)
        elif overlay.primary and response.term[0] < overlay.term[0]:
            # A root that a later one has replaced and that does not know it yet. It will, by its lease.
            overlay.wires.send(line, Bye(response.request))
            self._result("STALE")
        else:
            self._attach(line, response)

    def _refused(self, response: ParentResponse) -> None:
        overlay = self.overlay
        detached = response.reason == "DETACHED"
        if detached and response.top != overlay.node:
            self._tops[response.top] = response.rank
        if detached and self._is_patient_with(self.asked):
            self.asked = self.line = None
            self.hint = overlay.place.parent
            overlay.wires.cancel_timer(("request",))
            self.pause()
        else:
            self._result(response.reason)

    def _is_patient_with(self, candidate: Candidate | None) -> bool:
        """O1: a whole cluster may be starting, and then the configured tree is to be the first one."""
        overlay = self.overlay
        starting = overlay.term[0] == 0 and overlay.wires.now_ns < self.patient_until_ns
        return starting and candidate is not None and candidate.node == overlay.place.parent

    def _attach(self, line: Connection, response: ParentResponse) -> None:
        overlay = self.overlay
        peer = overlay.neighbours.peers[line]
        self._settled()
        overlay.parent, overlay.parent_name = line, NodeId(peer.name)
        self.accepted_request = response.request
        overlay.election.adopt(response.term)
        overlay.topics.attached()
        overlay.notices.tell_parent(line)
        overlay.joining.attached()
        self.note_end("child")

    def _settled(self) -> None:
        """No longer SEEKING."""
        overlay = self.overlay
        overlay.seeking = False
        overlay.election.abandon()
        self.asked = self.line = None
        self.insists_until_ns = 0
        self._queue = []
        self.hint = None
        overlay.wires.cancel_timer(("request",))
        overlay.wires.cancel_timer(("retry",))

    def settle_as_root(self) -> None:
        self._settled()
        self.accepted_request = 0

    def note_end(self, role: str) -> None:
        overlay = self.overlay
        info = {
            "parent": overlay.parent_name or "", "rounds": str(self.rounds), "role": role,
            "election_ms": f"{overlay.election.spent_ns / MS:.3f}", "term": f"{overlay.term[0]}:{overlay.term[1]}",
        }  # fmt: skip
        overlay.wires.note("repair_end" if self._repairing else "join", info)
        self._repairing = True

    # -- pauses and hints -------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No request under way (and, for O13.2, nobody better known)."""
        return self.overlay.seeking and self.asked is None and self.overlay.election.running is None

    def knows_better(self) -> bool:
        """O12.1. Where partitions are possible the better one may be unable to reach a majority."""
        if self.stubborn:
            return False
        overlay = self.overlay
        return any(
            better(rank, overlay.rank) and not overlay.believed_dead(node) for node, rank in sorted(self._tops.items())
        )

    def met(self, node: NodeId, rank: Rank) -> None:
        """Another seeker has shown itself."""
        self._tops[node] = rank

    def claims_soon(self) -> bool:
        """Whether this broker would be root itself: not while it starts, joins or leaves."""
        return self.overlay.may_claim and not self._insists and not self.overlay.recollection.forgetful

    def defer(self) -> None:
        """Let a better one try first."""
        self._deferrals += 1
        self.pause()

    @property
    def stubborn(self) -> bool:
        return self.overlay.primary and self._deferrals >= _DEFERRALS

    def pause(self) -> None:
        """Seek again after a while."""
        self.overlay.wires.set_timer(("retry",), self.overlay.draw_retry_ns())

    def resume(self) -> None:
        if self.idle:
            self.seek()

    def root_announced(self, root: NodeId) -> None:
        """O15."""
        if self.overlay.seeking:
            self.hint = root
            self.insists_until_ns = self.patient_until_ns = 0
            self.resume()

    # -- deliberate changes -----------------------------------------------------------------------------------------

    def broker_is_up(self, node: NodeId) -> None:
        """J1: go back to the configured parent, SEEKING: two that ask while attached could form a cycle."""
        overlay = self.overlay
        now = overlay.wires.now_ns
        if node != overlay.place.parent or overlay.parent is None or overlay.parent_name == node or overlay.leaving:
            return
        if overlay.child_link(node) is not None or now < self._may_move_ns:
            return
        self._may_move_ns = now + _MOVE_PAUSE_NS
        overlay.wires.send(overlay.parent, Bye(self.accepted_request))
        self.hint = node
        self.lose_parent("move")

    def handed_over(self, packet: Handover) -> None:
        """J3: the parent leaves for good."""
        overlay = self.overlay
        assert overlay.parent is not None
        overlay.wires.send(overlay.parent, Bye(self.accepted_request))
        self.hint = packet.hint or None
        self.lose_parent("handover")

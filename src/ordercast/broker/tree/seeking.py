"""Losing a parent and finding another one (BRK-O3 to BRK-O5, BRK-O10)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ordercast.broker.tree.candidates import in_order
from ordercast.broker.tree.claim import RootClaim
from ordercast.broker.tree.joining import BrokerJoining
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.notices import Notices
from ordercast.broker.tree.parenting import Parenting
from ordercast.broker.tree.promise_recovery import PromiseRecovery
from ordercast.broker.tree.rtt import RoundTrips
from ordercast.broker.tree.terms import Terms
from ordercast.broker.tree.tree_state import MS, NOBODY, TreePart, TreeState, better
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import Bye, Handover, ParentRequest, ParentResponse, Rank

_MOVE_PAUSE_NS = 60_000 * MS
"""BRK-J1: at most one move a minute."""
_DEFERRALS = 3
"""Where partitions are possible, so often a broker lets a better one try first: it may be unable to."""


class Candidate(NamedTuple):
    """Somebody to ask; a newcomer knows only addresses."""

    node: NodeId
    address: str


class Elections(Protocol):
    """Port to the election, for a search that finds no parent."""

    def start(self) -> None:
        """BRK-O12: claim to be root, unless a better one is known."""

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """BRK-O2.6: somebody who was asked to agree cannot be reached there."""


class Seeker(TreePart):
    """The state of a SEEKING broker's search."""

    constant = (
        *TreePart.constant, "terms", "recovery", "claim", "neighbours", "notices", "joining", "parenting",
        "round_trips", "election",
    )  # fmt: skip
    ordered = ("_results",)
    election: Elections

    def __init__(
        self, state: TreeState, terms: Terms, recovery: PromiseRecovery, claim: RootClaim, neighbours: Neighbours,
        notices: Notices, joining: BrokerJoining, parenting: Parenting, round_trips: RoundTrips,
    ) -> None:  # fmt: skip
        super().__init__(state)
        self.terms = terms
        self.recovery = recovery
        self.claim = claim
        self.neighbours = neighbours
        self.notices = notices
        self.joining = joining
        self.parenting = parenting
        self.round_trips = round_trips
        self.hint: NodeId | None = state.place.parent
        self.insists_until_ns = 0
        """BRK-O1: until then a starting broker asks nobody but its configured parent."""
        self.patient_until_ns = 0
        """Until then one that may have lived before waits for its configured parent if that is looking for its own."""
        self.asked: Candidate | None = None
        self.line: Connection | None = None
        self.request = state.life << 20
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

    def begin_life(self, patient_until_ns: int, *, insists: bool) -> None:
        """BRK-O1: how long this broker, which starts, waits for its configured parent."""
        self.patient_until_ns = patient_until_ns
        if insists:
            self.insists_until_ns = patient_until_ns

    def point_to(self, hint: NodeId | None) -> None:
        """Ask this broker first in the next search."""
        self.hint = hint

    # BRK-O3

    def lose_parent(self, why: str) -> None:
        """BRK-O3: the link to the parent is over."""
        lost, was_root = self.state.parent_name or NOBODY, self.state.parent_name == self.state.term[1]
        self.state.detach()
        self.begin(lost, why)
        self.topics.parent_lost()
        if not was_root or not self.state.may_claim or self.hint is not None:
            self.seek()
        elif self.state.primary:
            self._ask_once_more(lost)
        else:
            self.election.start()

    def _ask_once_more(self, root: NodeId) -> None:
        """With partitions perhaps only the connection broke: a claim would unsettle a root that lives."""
        self._break_degree = self._claims_next = True
        self._results = {}
        self._tops = {}
        self._queue = self._known([root])
        self._next()

    def begin(self, lost: NodeId, why: str) -> None:
        """From now on SEEKING, with a rank that stays."""
        self.state.seek()
        self.rounds = 0
        self._view_was_no_help = False
        self._deferrals = 0
        self._repairing = True
        self.claim.forget()
        self.parenting.detach()
        self.wires.note("repair_start", {"lost": lost, "why": why})

    # BRK-O4, BRK-O5

    def seek(self) -> None:
        """BRK-O4: draw up the list and begin with its first."""
        self.wires.cancel_timer(("retry",))
        self._results = {}
        self._tops = {}
        self._break_degree = self._claims_next = False
        self._queue = self._candidates()
        self._next()

    def _candidates(self) -> list[Candidate]:
        hint, self.hint = self.hint, None
        if not self.state.member:
            self._whole_directory = True
            seeds = self.state.place.seeds or tuple(self.state.directory[node] for node in self.state.others())
            return [Candidate(NOBODY, seed) for seed in seeds]
        if self._insists and self.state.place.parent is not None:
            return self._known([self.state.place.parent])
        views = in_order(self.state, self.round_trips.rtt_ms)
        self._whole_directory = self._view_was_no_help or all(self.state.believed_dead(node) for node in views)
        nodes = [*([hint] if hint else []), *views, *(self.state.others() if self._whole_directory else [])]
        return self._known(sorted(dict.fromkeys(nodes), key=self.state.believed_dead))

    def _known(self, nodes: list[NodeId]) -> list[Candidate]:
        """Own children are not asked; nor is anybody whose address is unknown."""
        children = set(self.state.children.values())
        return [
            Candidate(node, self.state.directory[node])
            for node in nodes if node in self.state.directory and node != self.state.node and node not in children
        ]  # fmt: skip

    @property
    def _insists(self) -> bool:
        return self.wires.now_ns < self.insists_until_ns

    def _next(self) -> None:
        """BRK-O5: ask the next candidate; when nobody is left, draw the conclusions."""
        self.asked = self.line = None
        while self._queue:
            candidate = self._queue.pop(0)
            if self._is_still_one(candidate):
                self._ask(candidate)
                return
        self.wires.cancel_timer(("request",))
        self._exhausted()

    def _is_still_one(self, candidate: Candidate) -> bool:
        """It may have become a child, or left the tree, since the list was drawn up."""
        known = not candidate.node or candidate.node in self.state.directory
        return known and self.state.child_link(candidate.node) is None

    def _exhausted(self) -> None:
        again = [candidate for candidate, result in self._results.items() if result in ("DEGREE", "TOPIC")]
        if again and not self._break_degree:
            self._break_degree = True
            self._queue = again
            self._next()
        elif self.state.leaving and not self.state.primary and self._nobody_is_there():
            self.joining.dismissed()
        elif self._insists or not self.state.may_claim:
            if self.state.leaving:
                self.joining.hand_over_children()  # One of them may claim; who leaves never does.
            self.pause()
        elif not self._whole_directory and not self._claims_next and "DETACHED" not in self._results.values():
            self._view_was_no_help = True
            self.seek()
        else:
            self.election.start()

    def _nobody_is_there(self) -> bool:
        dead = {candidate.node for candidate, result in self._results.items() if result == "DEAD"}
        return dead >= set(self.state.others())

    def _ask(self, candidate: Candidate) -> None:
        self.asked = candidate
        self._redialed = False
        self.line = self.neighbours.to(candidate.node) if candidate.node else self._seed_line(candidate)
        self._send_request()

    def _seed_line(self, candidate: Candidate) -> Connection:
        return self.neighbours.dial(candidate.address, NOBODY)

    def _send_request(self) -> None:
        self.request += 1
        self.rounds += 1
        assert self.line is not None
        request = ParentRequest(self.request, self.topics.names(), self._break_degree, self.state.rank)
        self.wires.send(self.line, request)
        self.wires.set_timer(("request",), int(self.settings.request_ms * MS))

    def _result(self, result: str) -> None:
        if self.asked is not None:
            self._results[self.asked] = result
        self._next()

    def timed_out(self) -> None:
        """Timers: silence counts as a refusal."""
        line = self.line
        if self.asked is None or line is None:
            return
        if self.state.primary and line not in self.state.links():
            self.neighbours.close(line)  # It may be half dead; the next request dials anew.
            self.election.line_ended(line, gone=True)
        self._result("TIMEOUT")

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """BRK-O2.5: whoever was being asked is not there, or closed an idle connection just then."""
        if line != self.line or self.asked is None:
            return
        if gone or self._redialed:
            self._result("DEAD")
            return
        self._redialed = True
        self.line = self.neighbours.dial(self.asked.address, self.asked.node)
        self._send_request()

    # BRK-O10

    def answered(self, line: Connection, response: ParentResponse) -> None:
        if not self.state.seeking or line != self.line or response.request != self.request:
            if response.accepted and line != self.state.parent:
                self.wires.send(line, Bye(response.request))
        elif not response.accepted:
            self._refused(response)
        elif self.state.primary and response.term[0] < self.state.term[0]:
            # A root that a later one has replaced and that does not know it yet. It will, by its lease.
            self.wires.send(line, Bye(response.request))
            self._result("STALE")
        else:
            self._attach(line, response)

    def _refused(self, response: ParentResponse) -> None:
        detached = response.reason == "DETACHED"
        if detached and response.top != self.state.node:
            self._tops[response.top] = response.rank
        if detached and self._is_patient_with(self.asked):
            self.asked = self.line = None
            self.hint = self.state.place.parent
            self.wires.cancel_timer(("request",))
            self.pause()
        else:
            self._result(response.reason)

    def _is_patient_with(self, candidate: Candidate | None) -> bool:
        """BRK-O1: a whole cluster may be starting, and then the configured tree is to be the first one."""
        starting = self.state.term[0] == 0 and self.wires.now_ns < self.patient_until_ns
        return starting and candidate is not None and candidate.node == self.state.place.parent

    def _attach(self, line: Connection, response: ParentResponse) -> None:
        peer = self.neighbours.peers[line]
        self._settled()
        self.state.attach(line, NodeId(peer.name), response.request)
        self.terms.adopt(response.term)
        self.topics.attached()
        self.notices.tell_parent(line)
        self.joining.attached()
        self.note_end("child")

    def _settled(self) -> None:
        """End the search and forget what belongs to it."""
        self.claim.abandon()
        self.asked = self.line = None
        self.insists_until_ns = 0
        self._queue = []
        self.hint = None
        self.wires.cancel_timer(("request",))
        self.wires.cancel_timer(("retry",))

    def settle_as_root(self) -> None:
        self._settled()
        self.state.reign()

    def step_down(self, why: str, hint: NodeId | None = None) -> None:
        """A root becomes SEEKING again, with its children."""
        self.state.abdicate()
        self.begin(self.state.node, why)
        self.joining.stepped_down()
        self.topics.stepped_down()
        self.hint = hint
        self.seek()

    def note_end(self, role: str) -> None:
        info = {
            "parent": self.state.parent_name or "", "rounds": str(self.rounds), "role": role,
            "election_ms": f"{self.claim.spent_ns / MS:.3f}", "term": f"{self.state.term[0]}:{self.state.term[1]}",
        }  # fmt: skip
        self.wires.note("repair_end" if self._repairing else "join", info)
        self._repairing = True

    # pauses and hints

    @property
    def idle(self) -> bool:
        """No request under way (and, for BRK-O13.2, nobody better known)."""
        return self.state.seeking and self.asked is None and self.claim.running is None

    def knows_better(self) -> bool:
        """BRK-O12.1. Where partitions are possible the better one may be unable to reach a majority."""
        return not self.stubborn and self.has_met_better()

    def has_met_better(self) -> bool:
        """Whether a better one, which is not believed dead, has shown itself in this round of the search."""
        return any(
            better(rank, self.state.rank) and not self.state.believed_dead(node)
            for node, rank in sorted(self._tops.items())
        )

    def met(self, node: NodeId, rank: Rank) -> None:
        """Another seeker has shown itself."""
        self._tops[node] = rank

    def claims_soon(self) -> bool:
        """Whether this broker would be root itself: not while it starts, joins or leaves."""
        return self.state.may_claim and not self._insists and not self.recovery.forgetful

    def defer(self) -> None:
        """Pause before the next attempt, so that a better claimant can try first."""
        self._deferrals += 1
        self.pause()

    @property
    def stubborn(self) -> bool:
        return self.state.primary and self._deferrals >= _DEFERRALS

    def pause(self) -> None:
        """Seek again after a while."""
        self.wires.set_timer(("retry",), self.state.draw_retry_ns())

    def resume(self) -> None:
        if self.idle:
            self.seek()

    def root_announced(self, root: NodeId) -> None:
        """BRK-O15: somebody says that it is root: it is asked first, and at once if nobody is being asked."""
        if self.state.seeking:
            self.hint = root
            self.insists_until_ns = self.patient_until_ns = 0
            self.resume()

    # deliberate changes

    def broker_is_up(self, node: NodeId) -> None:
        """BRK-J1: go back to the configured parent, SEEKING: two that ask while attached could form a cycle."""
        now = self.wires.now_ns
        if (
            node != self.state.place.parent
            or self.state.parent is None
            or self.state.parent_name == node
            or self.state.leaving
        ):
            return
        if self.state.child_link(node) is not None or now < self._may_move_ns:
            return
        self._may_move_ns = now + _MOVE_PAUSE_NS
        self.wires.send(self.state.parent, Bye(self.state.accepted_request))
        self.hint = node
        self.lose_parent("move")

    def handed_over(self, packet: Handover) -> None:
        """BRK-J3: the parent leaves for good."""
        assert self.state.parent is not None
        self.wires.send(self.state.parent, Bye(self.state.accepted_request))
        self.hint = packet.hint or None
        self.lose_parent("handover")

"""Electing a root (BRK-O12 to BRK-O15).

Without partitions the winner needs the word of every broker that lives; two winners would have needed each other's.
With them it needs more than half of the directory, and no broker gives its word twice for one term number.
"""

from __future__ import annotations

from ordercast.broker.tree.claim import RootClaim
from ordercast.broker.tree.joining import BrokerJoining
from ordercast.broker.tree.lease import RootLease
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.parenting import Parenting
from ordercast.broker.tree.promise_recovery import PromiseRecovery
from ordercast.broker.tree.seeking import Seeker
from ordercast.broker.tree.terms import Terms
from ordercast.broker.tree.tree_state import MS, TreePart, TreeState, better
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.tree_packets import RootAnnounce, RootElection, RootElectionReply


class Election(TreePart):
    """Elects a root: makes and withdraws own claims, answers those of others."""

    constant = (
        *TreePart.constant, "terms", "recovery", "claim", "neighbours", "joining", "lease", "parenting", "seeker"
    )  # fmt: skip

    def __init__(
        self, state: TreeState, terms: Terms, recovery: PromiseRecovery, claim: RootClaim, neighbours: Neighbours,
        joining: BrokerJoining, lease: RootLease, parenting: Parenting, seeker: Seeker,
    ) -> None:  # fmt: skip
        super().__init__(state)
        self.terms = terms
        self.recovery = recovery
        self.claim = claim
        self.neighbours = neighbours
        self.joining = joining
        self.lease = lease
        self.parenting = parenting
        self.seeker = seeker

    # BRK-O12

    def start(self) -> None:
        """BRK-O12: claim, unless a better one is known."""
        self.claim.abandon()
        if not self.state.may_claim or self.recovery.forgetful:
            self.seeker.pause()
            return
        if self.seeker.knows_better():
            self.seeker.defer()
            return
        self.wires.cancel_timer(("retry",))
        number = 1 + self.terms.highest
        self.terms.promise(number, self.state.rank, self.state.node)
        self.claim.make(number)
        for node in self.state.others():
            self._claim_to(node)
        self._check()

    def _claim_to(self, node: NodeId) -> None:
        assert self.claim.running is not None
        claim = RootElection(self.claim.running, self.state.rank, self.joining.known())
        line = self.neighbours.say(node, claim)
        if line is not None:
            self.claim.awaited[node] = line

    def _give_up(self, hint: NodeId | None, *, at_once: bool = False) -> None:
        self.claim.abandon()
        self.seeker.point_to(hint)
        if at_once:
            self.seeker.seek()
        else:
            self.seeker.pause()

    def timed_out(self) -> None:
        """Timers: with a majority the silent ones are just out of reach: a stopped process must not stop everybody."""
        if self.claim.running is None:
            return
        if self.state.primary:
            self._close_silent_lines()
        if self.state.primary and self.state.is_majority(self.claim.agreed):
            self.claim.wait_no_longer()
            self._check()
        else:
            self.claim.abandon()
            self.seeker.seek()

    def _close_silent_lines(self) -> None:
        """They may be half dead; the next claim dials anew."""
        for line in sorted(set(self.claim.awaited.values()) - set(self.state.links())):
            self.neighbours.close(line)
            self.parenting.line_ended(line)

    # BRK-O13

    def claimed(self, line: Connection, node: NodeId, packet: RootElection) -> None:
        """BRK-O13: somebody wants to be root."""
        self.joining.learn(packet.directory, but=[])
        if self.recovery.forgetful:
            self._reply(line, packet.number, "ABSTAIN")  # It may have promised something in its former life.
        elif self.state.is_root or self.lease.hears_root(node):
            self._reply(line, packet.number, "ROOT")
        elif self.state.seeking and self.seeker.claims_soon() and better(self.state.rank, packet.rank):
            self.terms.heard_of(packet.number)
            self._reply(line, packet.number, "BETTER")
            if self.seeker.idle and not self.seeker.has_met_better():
                self.start()
        elif packet.number <= self.state.term[0] or not self._may_promise(node, packet):
            self._reply(line, packet.number, "STALE")
            self._make_way(node, packet)
        else:
            self._agree(line, node, packet)

    def _make_way(self, node: NodeId, packet: RootElection) -> None:
        """F-ELE-4 where no promise can be replaced: two claims for every number would starve each other for ever."""
        if not self.state.primary or not self.state.seeking or not better(packet.rank, self.state.rank):
            return
        self.seeker.met(node, packet.rank)
        if self.claim.running is not None and not self.seeker.stubborn:
            self._defer_to(node)

    def _defer_to(self, node: NodeId) -> None:
        self.claim.abandon()
        self.seeker.point_to(node)
        self.seeker.defer()

    def _may_promise(self, node: NodeId, packet: RootElection) -> bool:
        """BRK-O13.3. With partitions two majorities could both complete if one promise could replace another."""
        if packet.number != self.terms.promised:
            return packet.number > self.terms.promised
        if self.terms.claimant == node:
            return True
        if self.state.primary or self.terms.promised_rank is None:
            return False
        return not better(self.terms.promised_rank, packet.rank)

    def _agree(self, line: Connection, node: NodeId, packet: RootElection) -> None:
        """BRK-O13.4: promise the term to the claimant, give up an own claim, and say what is known of members."""
        self.terms.promise(packet.number, packet.rank, node)
        if self.state.seeking:
            was_running = self.claim.running is not None
            self.claim.abandon()
            self.seeker.point_to(node)
            if was_running or self.seeker.idle:
                self.seeker.pause()
        self._reply(line, packet.number, "OK")

    def _reply(self, line: Connection, number: int, verdict: str) -> None:
        highest = self.terms.highest
        if verdict == "OK":
            reply = RootElectionReply(
                number, verdict, highest, self.state.term[0],
                self.topics.roster(), self.topics.fenced(), self.joining.known(), self.topics.closed(),
                self.lease.helped_ns() // MS, self.topics.absent(),
            )  # fmt: skip
        else:
            reply = RootElectionReply(number, verdict, highest)
        self.wires.send(line, reply)

    # BRK-O14

    def replied(self, node: NodeId, packet: RootElectionReply) -> None:
        """BRK-O14: only for the running election."""
        if self.claim.running is None or packet.number != self.claim.running or node not in self.claim.awaited:
            return
        if packet.verdict == "OK":
            self._agreed_by(node, packet)
        elif packet.verdict == "ROOT":
            self._give_up(node, at_once=self.claim.newly_points_to(node))
        elif packet.verdict == "BETTER":
            self._met_better(node)
        elif packet.verdict == "ABSTAIN":
            self._strike_off(node)
        else:
            self._outdated(packet.highest)

    def _outdated(self, highest: int) -> None:
        """BRK-O14: the next number is above theirs. Two who claim in step would go on for ever: pause the next time."""
        self.terms.learn_of(highest)
        if self.claim.newly_outdated():
            self.start()
        else:
            self._give_up(None)

    def _agreed_by(self, node: NodeId, packet: RootElectionReply) -> None:
        self.topics.merge_roster(packet.roster, packet.fenced, packet.closed)
        self.claim.agrees(node, remembers_a_term=packet.term_number > 0, helped_ns=packet.lease_ms * MS)
        if packet.absent is not None:
            self.claim.hears_of_absent(packet.term_number, packet.absent)
        for unknown in self.joining.learn(packet.directory, but=[]):
            self._claim_to(unknown)  # BRK-J2: whoever joined meanwhile has a say too.
        if self.state.may_claim:
            self._check()
        else:
            self._give_up(None)  # It learns that it was struck off.

    def _met_better(self, node: NodeId) -> None:
        if not self.seeker.stubborn:
            self._defer_to(node)
        else:
            self._strike_off(node)

    def _strike_off(self, node: NodeId) -> None:
        del self.claim.awaited[node]
        self._check()

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """BRK-O2.6: nobody there; or an idle connection was closed just then, and it is asked again."""
        nodes = [node for node, awaited in self.claim.awaited.items() if awaited == line]
        for node in nodes:
            if gone:
                del self.claim.awaited[node]
            else:
                self._claim_to(node)
        if nodes and self.claim.running is not None:
            self._check()

    def _check(self) -> None:
        """BRK-O14.5: become root once nobody is awaited, nothing better was promised and enough agree."""
        running = self.claim.running
        if running is None or self.claim.awaited or not self.terms.promised_to(self.state.node, running):
            return
        if self.state.primary and not self.state.is_majority(self.claim.agreed):
            self._give_up(None)
            return
        self._become_root(running)

    # BRK-O15, BRK-O16

    def _become_root(self, number: int) -> None:
        """BRK-O15: enter the term, tell the children and everybody else, and wait for the right to decide."""
        self.claim.abandon()
        self.seeker.settle_as_root()
        self.topics.learn_absent(self.claim.absent_of, self.claim.absent)
        self.state.enter((number, self.state.node))
        self.topics.became_root()
        self.terms.pass_on()
        self.joining.became_root()
        self.seeker.note_end("root")
        for node in self.state.others():
            self.neighbours.say(node, RootAnnounce(self.state.term))
        before, helped_ns = self.claim.somebody_before, self.claim.helped_ns
        self.lease.elected(self.claim.made_ns, somebody_before=before, helped_ns=helped_ns)

    def bootstrap(self) -> None:
        """BRK-O1: the configured root of a tree that has never run."""
        self.seeker.settle_as_root()
        self.terms.promise(1, self.state.rank, self.state.node)
        self.state.enter((1, self.state.node))
        self.topics.became_root()
        self.wires.note("join", {"parent": "", "role": "root", "term": f"1:{self.state.node}"})
        self.lease.bootstrapped()

    def announced(self, node: NodeId, packet: RootAnnounce) -> None:
        """BRK-O15. With partitions also an old root may hear of its successor."""
        if self.state.is_root and self.state.primary and packet.term[0] > self.state.term[0]:
            self.seeker.step_down("replaced", hint=node)
        elif packet.term[0] >= self.state.term[0]:
            self.seeker.root_announced(node)

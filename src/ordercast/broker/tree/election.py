"""Electing a root, and terms (O12 to O16).

Without partitions the winner needs the word of every broker that lives; two winners would have needed each other's.
With them it needs more than half of the directory, and no broker gives its word twice for one term number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.ports import Term
from ordercast.broker.tree.tree_state import MS, NOBODY, better
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.pubsub.overlay_packets import NewTerm, Rank, RootAnnounce, RootElection, RootElectionReply

if TYPE_CHECKING:
    from ordercast.broker.tree.tree import Overlay


class Election(State):
    """The promise that this broker has given, and the election that it runs."""

    constant: ClassVar[tuple[str, ...]] = ("overlay",)

    def __init__(self, overlay: Overlay, number: int) -> None:
        self.overlay = overlay
        self.promised = number
        self.promised_rank: Rank | None = None
        self.claimant: NodeId = NOBODY
        self.running: int | None = None
        """The term number that it claims."""
        self.spent_ns = 0
        """How long elections took in this repair, for the record."""
        self._claimed_ns = 0
        self._awaited: dict[NodeId, Connection] = {}
        self._agreed: set[NodeId] = set()
        self._somebody_before = False
        self._pointed_to: NodeId = NOBODY
        """Who last said that there is a root: asked at once, but not again and again without a pause."""

    # -- O12 --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """O12: claim, unless a better one is known."""
        overlay = self.overlay
        self.abandon()
        if not overlay.may_claim or overlay.recollection.forgetful:
            overlay.seeker.pause()
            return
        if overlay.seeker.knows_better():
            overlay.seeker.defer()
            return
        overlay.wires.cancel_timer(("retry",))
        number = 1 + max(overlay.term[0], self.promised)
        self._promise(number, overlay.rank, overlay.node)
        self.running = number
        self._claimed_ns = overlay.wires.now_ns
        self._agreed = {overlay.node}
        self._somebody_before = number > 1
        overlay.wires.set_timer(("election",), int(overlay.settings.request_ms * MS))
        self._awaited = {}
        for node in overlay.others():
            self._claim_to(node)
        self._check()

    def _claim_to(self, node: NodeId) -> None:
        assert self.running is not None
        claim = RootElection(self.running, self.overlay.rank, self.overlay.joining.all_changes())
        line = self.overlay.neighbours.say(node, claim)
        if line is not None:
            self._awaited[node] = line

    def forget(self) -> None:
        """A new search begins."""
        self.spent_ns = 0
        self._pointed_to = NOBODY

    def learn_of(self, number: int) -> None:
        """Somebody has promised or seen this number: there is, or was, a tree; nothing below it is claimed."""
        if number > 0:
            self.overlay.claims_from_ns = 0
        self.promised = max(self.promised, number)

    def _promise(self, number: int, rank: Rank | None, claimant: NodeId) -> None:
        if number > self.promised:
            self.overlay.ledger.term(number)
        self.promised, self.promised_rank, self.claimant = number, rank, claimant

    def abandon(self) -> None:
        if self.running is not None:
            self.spent_ns += self.overlay.wires.now_ns - self._claimed_ns
            self.running = None
            self._awaited = {}
            self.overlay.wires.cancel_timer(("election",))

    def _give_up(self, hint: NodeId | None, *, at_once: bool = False) -> None:
        self.abandon()
        seeker = self.overlay.seeker
        seeker.hint = hint
        if at_once:
            seeker.seek()
        else:
            seeker.pause()

    def timed_out(self) -> None:
        """Timers: with a majority the silent ones are just out of reach: a stopped process must not stop everybody."""
        if self.running is None:
            return
        if self.overlay.primary:
            self._close_silent_lines()
        if self.overlay.primary and self.overlay.is_majority(self._agreed):
            self._awaited = {}
            self._check()
        else:
            self.abandon()
            self.overlay.seeker.seek()

    def _close_silent_lines(self) -> None:
        """They may be half dead; the next claim dials anew."""
        for line in sorted(set(self._awaited.values()) - set(self.overlay.links())):
            self.overlay.neighbours.close(line)
            self.overlay.host.line_ended(line)

    # -- O13 --------------------------------------------------------------------------------------------------------

    def claimed(self, line: Connection, node: NodeId, packet: RootElection) -> None:
        """O13: somebody wants to be root."""
        overlay = self.overlay
        overlay.joining.learn(packet.changes, but=[])
        if overlay.recollection.forgetful:
            self._reply(line, packet.number, "ABSTAIN")  # It may have promised something in its former life.
        elif overlay.is_root or overlay.lease.hears_root(node):
            self._reply(line, packet.number, "ROOT")
        elif overlay.seeking and overlay.seeker.claims_soon() and better(overlay.rank, packet.rank):
            self._reply(line, packet.number, "BETTER")
            if overlay.seeker.idle and not overlay.seeker.knows_better():
                self.start()
        elif packet.number <= overlay.term[0] or not self._may_promise(node, packet):
            self._reply(line, packet.number, "STALE")
            self._make_way(node, packet)
        else:
            self._agree(line, node, packet)

    def _make_way(self, node: NodeId, packet: RootElection) -> None:
        """F-ELE-4 where no promise can be replaced: two claims for every number would starve each other for ever."""
        overlay = self.overlay
        if not overlay.primary or not overlay.seeking or not better(packet.rank, overlay.rank):
            return
        overlay.seeker.met(node, packet.rank)
        if self.running is not None and not overlay.seeker.stubborn:
            self._defer_to(node)

    def _defer_to(self, node: NodeId) -> None:
        self.abandon()
        self.overlay.seeker.hint = node
        self.overlay.seeker.defer()

    def _may_promise(self, node: NodeId, packet: RootElection) -> bool:
        """O13.3. With partitions two majorities could both complete if one promise could replace another."""
        if packet.number != self.promised:
            return packet.number > self.promised
        if self.claimant == node:
            return True
        if self.overlay.primary or self.promised_rank is None:
            return False
        return not better(self.promised_rank, packet.rank)

    def _agree(self, line: Connection, node: NodeId, packet: RootElection) -> None:
        """O13.4."""
        overlay = self.overlay
        self._promise(packet.number, packet.rank, node)
        if overlay.seeking:
            was_running = self.running is not None
            self.abandon()
            overlay.seeker.hint = node
            if was_running or overlay.seeker.idle:
                overlay.seeker.pause()
        self._reply(line, packet.number, "OK")

    def _reply(self, line: Connection, number: int, verdict: str) -> None:
        overlay = self.overlay
        highest = max(overlay.term[0], self.promised)
        if verdict == "OK":
            reply = RootElectionReply(
                number, verdict, highest, overlay.term[0],
                overlay.topics.roster(), overlay.topics.fenced(), overlay.joining.all_changes(),
            )  # fmt: skip
        else:
            reply = RootElectionReply(number, verdict, highest)
        overlay.wires.send(line, reply)

    # -- O14 --------------------------------------------------------------------------------------------------------

    def replied(self, node: NodeId, packet: RootElectionReply) -> None:
        """O14: only for the running election."""
        if self.running is None or packet.number != self.running or node not in self._awaited:
            return
        if packet.verdict == "OK":
            self._agreed_by(node, packet)
        elif packet.verdict == "ROOT":
            self._give_up(node, at_once=node != self._pointed_to)
            self._pointed_to = node
        elif packet.verdict == "BETTER":
            self._met_better(node)
        elif packet.verdict == "ABSTAIN":
            self._strike_off(node)
        else:
            self.learn_of(packet.highest)
            self.start()

    def _agreed_by(self, node: NodeId, packet: RootElectionReply) -> None:
        overlay = self.overlay
        overlay.topics.merge_roster(packet.roster, packet.fenced)
        self._agreed.add(node)
        del self._awaited[node]
        self._somebody_before = self._somebody_before or packet.term_number > 0
        for unknown in overlay.joining.learn(packet.changes, but=[]):
            self._claim_to(unknown)  # J2: whoever joined meanwhile has a say too.
        if overlay.may_claim:
            self._check()
        else:
            self._give_up(None)  # It learns that it was struck off.

    def _met_better(self, node: NodeId) -> None:
        if not self.overlay.seeker.stubborn:
            self._defer_to(node)
        else:
            self._strike_off(node)

    def _strike_off(self, node: NodeId) -> None:
        del self._awaited[node]
        self._check()

    def awaits(self, line: Connection) -> bool:
        return line in self._awaited.values()

    def line_ended(self, line: Connection, *, gone: bool) -> None:
        """O2.6: nobody there; or an idle connection was closed just then, and it is asked again."""
        nodes = [node for node, awaited in self._awaited.items() if awaited == line]
        for node in nodes:
            if gone:
                del self._awaited[node]
            else:
                self._claim_to(node)
        if nodes and self.running is not None:
            self._check()

    def _check(self) -> None:
        """O14.5."""
        overlay = self.overlay
        if self.running is None or self._awaited or (self.promised, self.claimant) != (self.running, overlay.node):
            return
        if overlay.primary and not overlay.is_majority(self._agreed):
            self._give_up(None)
            return
        self._become_root(self.running)

    # -- O15, O16 ---------------------------------------------------------------------------------------------------

    def _become_root(self, number: int) -> None:
        """O15."""
        overlay = self.overlay
        self.abandon()
        overlay.seeker.settle_as_root()
        overlay.is_root = True
        overlay.view = ()  # O17: nobody is above a root; what its last parent said is of another tree.
        overlay.term = (number, overlay.node)
        overlay.topics.became_root()
        self._pass_on_term()
        overlay.joining.became_root()
        overlay.seeker.note_end("root")
        for node in overlay.others():
            overlay.neighbours.say(node, RootAnnounce(overlay.term))
        overlay.lease.elected(self._claimed_ns, somebody_before=self._somebody_before)

    def bootstrap(self) -> None:
        """O1: the configured root of a tree that has never run."""
        overlay = self.overlay
        overlay.seeker.settle_as_root()
        overlay.is_root = True
        self._promise(1, overlay.rank, overlay.node)
        overlay.term = (1, overlay.node)
        overlay.topics.became_root()
        overlay.wires.note("join", {"parent": "", "role": "root", "term": f"1:{overlay.node}"})
        overlay.lease.bootstrapped()

    def adopt(self, term: Term) -> None:
        """O16."""
        overlay = self.overlay
        if term == overlay.term:
            return
        overlay.term = term
        overlay.claims_from_ns = 0
        if term[0] > self.promised:
            self._promise(term[0], None, term[1])
        self._pass_on_term()
        overlay.topics.term_adopted()
        overlay.joining.term_adopted()

    def _pass_on_term(self) -> None:
        for link in self.overlay.children:
            self.overlay.wires.send(link, NewTerm(self.overlay.term))

    def announced(self, node: NodeId, packet: RootAnnounce) -> None:
        """O15. With partitions also an old root may hear of its successor."""
        overlay = self.overlay
        if overlay.is_root and overlay.primary and packet.term[0] > overlay.term[0]:
            overlay.lease.step_down("replaced", hint=node)
        elif packet.term[0] >= overlay.term[0]:
            overlay.seeker.root_announced(node)

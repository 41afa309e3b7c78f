"""The primary component: a root decides only while more than half of the brokers stand behind it (BRK-PC1 to BRK-PC7).

The root's beats flow down the tree, the brokers' answers up. A broker that has promised a later term to somebody does
not answer. The lease runs from the time at which the newest beat was sent that a majority has answered, so it has ended
before `lease_ms` have passed since any later promise of that majority: a new root that waits `lease_ms` after its
election never decides at the same time as an old one.
"""

from __future__ import annotations

from collections.abc import Set

from ordercast.broker.ports import Term
from ordercast.broker.tree.events import TreeEvents
from ordercast.broker.tree.neighbours import Neighbours
from ordercast.broker.tree.promise_recovery import PromiseRecovery
from ordercast.broker.tree.terms import Terms
from ordercast.broker.tree.tree_state import MS, NO_TERM, TreePart, TreeState
from ordercast.core.ids import NodeId
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import Ping
from ordercast.pubsub.tree_packets import LeaseAck, NewTerm

_BEATS = 3
"""A lease lasts so many beats."""


class RootLease(TreePart):
    """The root's lease: beats, answers, and whether the root may decide. Idle unless partitions are possible."""

    constant = (*TreePart.constant, "terms", "recovery", "neighbours", "events", "active", "length_ns")

    def __init__(
        self, state: TreeState, terms: Terms, recovery: PromiseRecovery, neighbours: Neighbours, events: TreeEvents
    ) -> None:
        super().__init__(state)
        self.terms = terms
        self.recovery = recovery
        self.neighbours = neighbours
        self.events = events
        self.active = state.primary
        self.length_ns = int(state.settings.lease_ms * MS)
        self.longest_ns = self.length_ns + int(state.settings.request_ms * MS)
        """What a lease may grow to where a majority answers late: as long as the forgetful abstain (BRK-PC8)."""
        self._lent_ns = self.length_ns
        """What the next beat asks for."""
        self._helped_ns = 0
        self._helped_until_ns = 0
        """The longest lease that this broker may have helped to give, and until when it may last."""
        self.beat = 0
        self.until_ns = 0
        """A majority stands behind this root until then."""
        self._decides_from_ns = 0
        self._patience_ns = 0
        """Until then it stays root, though perhaps without deciding, while its majority finds its places."""
        self._sent: dict[int, tuple[int, int]] = {}
        """When a beat that is not confirmed was sent, and how long a lease it asked for."""
        self._confirmed = 0
        self._answered: dict[NodeId, int] = {}
        self._heard_ns: dict[Connection, int] = {}
        """When something last arrived on each link."""
        self._beat_ns = 0
        self._looked_ns = 0
        self._heard: tuple[Term, int] = (NO_TERM, 0)
        self._heard_lease_ms = 0
        self._to_answer: dict[tuple[Term, int], set[NodeId]] = {}

    def start(self) -> None:
        if self.active:
            self._arm()
            if self.terms.highest:  # What it did before it restarted is not on record.
                self._helps(self.longest_ns)

    def forget_all_but(self, nodes: Set[NodeId]) -> None:
        self._answered = {node: beat for node, beat in self._answered.items() if node in nodes}

    def _helps(self, lease_ns: int) -> None:
        now = self.wires.now_ns
        self._helped_ns = max(lease_ns, self.helped_ns())
        self._helped_until_ns = max(self._helped_until_ns, now + lease_ns)

    def helped_ns(self) -> int:
        """For whoever wants to be root: how long to wait on account of this broker, beyond what was configured."""
        return self._helped_ns if self.wires.now_ns < self._helped_until_ns else 0

    def _arm(self) -> None:
        self.wires.set_timer(("lease",), self.length_ns // _BEATS, background=True)

    # the root

    def bootstrapped(self) -> None:
        """Nobody came before the first root: nobody's lease has to be waited for. Its majority does: it may be late."""
        self._begin(int(self.settings.startup_grace_ms * MS), self.wires.now_ns)

    def elected(self, claimed_ns: int, *, somebody_before: bool, helped_ns: int) -> None:
        """The promises of its majority count like answers to a beat sent with the claim."""
        now = self.wires.now_ns
        # Without any earlier term in the memory of a majority there was no root, and so no lease.
        before_ns = max(self.length_ns, self.helped_ns(), min(helped_ns, self.longest_ns))
        decides_from_ns = now + before_ns if somebody_before else now
        patience_ns = before_ns + int(self.settings.request_ms * MS)
        self._begin(patience_ns, decides_from_ns, claimed_ns + self.length_ns)

    def _begin(self, patience_ns: int, decides_from_ns: int, until_ns: int = 0) -> None:
        if not self.active:
            self.state.may_decide(decides=True)
            self.topics.may_decide()
            return
        self.beat = self._confirmed = 0
        self._sent = {}
        self._answered = {}
        self._to_answer = {}
        self._patience_ns = self.wires.now_ns + patience_ns
        self._decides_from_ns = decides_from_ns
        self.until_ns = until_ns
        self._send_beat()
        self.refresh()

    def _send_beat(self) -> None:
        self.beat += 1
        self._sent[self.beat] = (self.wires.now_ns, self._lent_ns)
        self._answered[self.state.node] = self.beat
        packet = self._newest_beat()
        for child in self.state.children:
            self.wires.send(child, packet)
        self._confirm()

    def _newest_beat(self) -> NewTerm:
        return NewTerm(self.state.term, self.beat, self._lent_ns // MS if self._lent_ns > self.length_ns else 0)

    def _confirm(self) -> None:
        """The newest beat that more than half of the directory has answered."""
        beats = sorted((self._answered.get(node, 0) for node in self.state.directory), reverse=True)
        confirmed = beats[len(beats) // 2]
        if confirmed <= self._confirmed or confirmed not in self._sent:
            return
        self._confirmed = confirmed
        now, (sent_ns, lent_ns) = self.wires.now_ns, self._sent[confirmed]
        self.until_ns = max(self.until_ns, sent_ns + lent_ns)
        self._sent = {beat: sent for beat, sent in self._sent.items() if beat > confirmed}
        # A tree that was repaired may be deeper: a lease that is over when it is given is of no use.
        self._lent_ns = min(self.longest_ns, max(self.length_ns, _BEATS * (now - sent_ns)) // MS * MS)
        if now < self.until_ns:
            self._patience_ns = 0  # Its majority is there: from now on the lease alone counts.

    def answering(self) -> set[NodeId]:
        """At the root: who has answered one of the last beats; without partitions, whoever was not found dead."""
        if not self.active:
            return {node for node in self.state.directory if not self.state.believed_dead(node)}
        return {node for node, beat in self._answered.items() if beat > self.beat - 1 - _BEATS}

    def refresh(self) -> None:
        """Look at the clock before anything else: a process that was stopped may wake up with its lease run out."""
        if not self.active or not self.state.is_root:
            return
        now = self.wires.now_ns
        decides = self._decides_from_ns <= now < self.until_ns
        news = self.state.may_decide(decides=decides)
        if now >= max(self.until_ns, self._patience_ns):
            self.events.step_down("lease")
        elif news:
            self.topics.may_decide()
        elif not decides and now < self._decides_from_ns:
            self.wires.set_timer(("decide",), self._decides_from_ns - now)

    # everybody

    def timer(self) -> None:
        if self.state.is_root:
            self._send_beat()
            self.refresh()
        self._watch()
        self._arm()

    def _watch(self) -> None:
        """A process that is stopped, or a machine that vanished, closes nothing: silence must do."""
        now, last_look = self.wires.now_ns, self._looked_ns
        self._looked_ns = now
        links = self.state.links()
        stood_still = now - last_look > self.length_ns  # Then what others said meanwhile is still unread.
        heard = {link: now if stood_still else self._heard_ns.get(link, now) for link in links}
        self._heard_ns = heard
        if self.state.parent is not None:
            self.wires.send(self.state.parent, Ping(now))
        for link in links:
            patience_ns = self.length_ns if link == self.state.parent else 2 * self.length_ns
            if now - heard[link] > patience_ns:
                self.neighbours.close(link)
                self.events.line_ended(link, gone=True)

    def heard(self, link: Connection) -> None:
        if link in self._heard_ns:
            self._heard_ns[link] = self.wires.now_ns

    def hears_root(self, claimant: NodeId) -> bool:
        """It has it at first hand that there is a root: no claim is needed."""
        if not self.active or self.state.parent_name != self.state.term[1] or claimant == self.state.parent_name:
            return False
        return self._heard[0] == self.state.term and self.wires.now_ns - self._beat_ns < self.length_ns

    def greet(self, child: Connection) -> None:
        """A new child hears the newest beat at once: its answer may be the one that is missing."""
        if not self.active:
            return
        if self.state.is_root and self.beat:
            self.wires.send(child, self._newest_beat())
        elif not self.state.is_root and self._heard[0] == self.state.term:
            self.wires.send(child, NewTerm(*self._heard, self._heard_lease_ms))

    def new_term(self, line: Connection, packet: NewTerm) -> None:
        """BRK-O16: only from the parent. Answered only if nobody was promised a later term."""
        if line != self.state.parent:
            return
        self.terms.adopt(packet.term)
        if packet.beat == 0:
            return
        self._heard = (packet.term, packet.beat)
        self._heard_lease_ms = packet.lease_ms
        self._beat_ns = self.wires.now_ns
        for child in self.state.children:
            self.wires.send(child, packet)
        self.answer()

    def answer(self) -> None:
        """Stand behind the root of the newest beat, unless it may have promised somebody else to do so."""
        heard = self.state.parent is not None and self._heard[0] == self.state.term
        if heard and self.state.term[0] >= self.terms.promised and not self.recovery.forgetful:
            self._to_answer.setdefault(self._heard, set()).add(self.state.node)
            self._helps(min(self._heard_lease_ms * MS, self.longest_ns))

    def answers(self, line: Connection, packet: LeaseAck) -> None:
        if line not in self.state.children:
            return
        if self.state.is_root and packet.term == self.state.term:
            for node in packet.nodes:
                self._answered[node] = max(self._answered.get(node, 0), packet.beat)
            self._confirm()
            self.refresh()
        elif self.state.parent is not None:
            self._to_answer.setdefault((packet.term, packet.beat), set()).update(packet.nodes)

    def turn_end(self) -> None:
        """All answers of a turn in one packet per beat."""
        if self._to_answer:
            parent = self.state.parent
            if parent is not None:
                for (term, beat), nodes in sorted(self._to_answer.items()):
                    self.wires.send(parent, LeaseAck(term, beat, tuple(sorted(nodes))))
            self._to_answer = {}

"""Publications: admission and holding (BRK-P1 to BRK-P5), totals: prepare, coverage, commit (BRK-L1 to BRK-L6).

A lock blocks only new publications of this broker's own clients (F-TOT-1); a prepare never waits, from wherever it
comes (F-TOT-2, F-TOT-3); the root alone decides the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.state.log import MOST_IN_PACKET, packets_of
from ordercast.broker.topics.state.member import Coverage
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin
from ordercast.core.messages import Guarantee
from ordercast.core.process import Connection
from ordercast.pubsub.batches import PublisherRun, new_ones, run_of
from ordercast.pubsub.client_packets import Entries, Refused, Sealed
from ordercast.pubsub.extras import objection as extras_objection
from ordercast.pubsub.publications import Publication, PublicationId, void
from ordercast.pubsub.topic_packets import Prepare, TotalAck

_EVENTUAL, _FIFO, _CAUSAL, _TOTAL = Guarantee.EVENTUAL, Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL
_LONGEST_ID = 80
"""Of an id that a client made up its answer shows no more."""


class Outflow:
    """Admitted publications on their way out: runs of plain ones and of totals, each run one packet, in order."""

    def __init__(self, ordering: Ordering, node: TopicNode) -> None:
        self.ordering = ordering
        self.node = node
        self.plain: list[Publication] = []
        self.totals: list[Publication] = []

    def admit(self, entry: Publication) -> None:
        """BRK-P3: a total becomes pending, anything else received; what is neither new is dropped."""
        if entry.guarantee is _TOTAL:
            if self.plain:
                self.flush()
            if self.node.add_pending(entry):
                self.totals.append(entry)
        else:
            if self.totals:
                self.flush()
            if self.node.have.add(entry.origin, entry.number):
                self.plain.append(entry)

    def flush(self) -> None:
        for piece in packets_of(self.plain):
            self.ordering.spread(self.node, Entries(self.node.topic, piece), None)
        for piece in packets_of(self.totals):
            self.ordering.spread_prepare(self.node, Prepare(self.node.topic, piece), None)
        self.plain, self.totals = [], []


class Ordering(TopicsPart):
    """The rules for one publication after another; batches are the unit of work."""

    constant = (*TopicsPart.constant, "grants", "ledger", "seals", "max_payload_bytes", "session_scope")

    def __init__(self, state: TopicsState, grants: Grants) -> None:
        super().__init__(state)
        self.grants = grants
        self.ledger = state.ledger
        self.seals = state.seals
        self.max_payload_bytes = state.max_payload_bytes
        self.session_scope = state.settings.order_scope == "session"

    # BRK-P1 to BRK-P5

    def publish(self, node: TopicNode, client: AttachedClient, packet: Entries) -> None:
        """BRK-P1: from a local client. Without membership it is dropped: the client sends it again after Live."""
        member = node.members.get(client.origin)
        if member is None or member.leaving or member.away:
            return
        node.notice((client.origin,))
        self.state.touch(node)
        run = None if node.pending.entries or client.origin in node.hold else self._plain_run(node, client, packet)
        if run is not None:
            node.have.low[run.origin] = run.last
            self.wires.count("entries_admitted", len(packet.entries))
            self.spread(node, packet, None, run)
        else:
            self._publish_each(node, client, packet.entries)

    def _plain_run(self, node: TopicNode, client: AttachedClient, packet: Entries) -> PublisherRun | None:
        """The client's next publications, if nothing in the packet needs a look of its own."""
        origin, topic = client.origin, packet.topic
        if origin in node.have.extras or not packet.entries or not client.may_publish(topic):
            return None
        low, most = node.have.low.get(origin, 0), self.max_payload_bytes
        number, payload_bytes = low, 0
        for entry in packet.entries:
            number += 1
            guarantee, size = entry.guarantee, len(entry.payload)
            payload_bytes += size
            if entry.extras is not None:
                payload_bytes += entry.extras.weight
                if extras_objection(entry.extras):
                    return None
            if (
                entry.number != number
                or (guarantee is not _CAUSAL and guarantee is not _FIFO and guarantee is not _EVENTUAL)
                or entry.origin != origin
                or entry.topic != topic
                or len(entry.keys) != 1
                or size > most
            ):
                return None
        return PublisherRun(origin, low + 1, number, payload_bytes)

    def _publish_each(self, node: TopicNode, client: AttachedClient, entries: Sequence[Publication]) -> None:
        out = Outflow(self, node)
        following = node.extent(client.origin, held=True)[0] + 1
        for entry in entries:
            if entry.number > following:
                following = node.extent(client.origin, held=True)[0] + 1
            objection = self._objection(node, client, entry, following)
            if objection:
                self.wires.count("publications_refused")
                self.wires.send(client.connection, Refused(node.topic, entry.number, objection))
                if entry.origin != client.origin or entry.number != following or not client.may_publish(node.topic):
                    continue
                # BRK-V1: otherwise everything behind it would have to be refused too.
                entry = void(client.origin, following, node.topic)  # noqa: PLW2901
            if entry.number == following:
                following += 1
            pair = (entry.origin, entry.number)
            if node.known(pair) or node.hold.find(pair) is not None:
                continue
            if self.must_hold(node, entry):
                node.hold.add(entry)
                self.wires.count("publications_held")
            else:
                self.wires.count("entries_admitted")
                out.admit(entry)
        out.flush()

    def _objection(self, node: TopicNode, client: AttachedClient, entry: Publication, following: int) -> str:
        """Why the publication can never be admitted, in words; empty if it can."""
        if entry.origin != client.origin or entry.topic != node.topic:
            return f"it says {entry.id[:_LONGEST_ID]}, but {client.origin} publishes on {node.topic} here"
        if not client.may_publish(node.topic):
            return f"{client.name} has no right to publish on {node.topic}"
        if not entry.keys or len(set(entry.keys)) != len(entry.keys):
            return "its keys are missing or repeated"
        if entry.guarantee > _TOTAL:
            return f"the broker tree does not offer the guarantee {entry.guarantee.label}"
        if len(entry.payload) > self.max_payload_bytes:
            return f"its payload has {len(entry.payload)} bytes, and max_payload_bytes is {self.max_payload_bytes}"
        if entry.extras is not None and (wrong := extras_objection(entry.extras)):
            return wrong
        if entry.number < 1 or entry.number > following:
            return f"its number is {entry.number}, the next one is {following}"
        return ""

    def must_hold(self, node: TopicNode, entry: Publication) -> bool:
        """BRK-P2, for a new publication: one that it has to stay behind is held, or it is blocked itself."""
        return node.hold.behind(entry) or self.blocked(node, entry)

    def blocked(self, node: TopicNode, entry: Publication) -> bool:
        """BRK-P2. `session`: the publications of one client keep their order, whatever their keys and guarantees.

        Eventual ones too: somebody may deliver one, publish a causal one after it, and everything that the first
        client had published before happened before that. A total is blocked by nothing.
        """
        if entry.guarantee is _TOTAL:
            return False
        return self.locked(node, entry) or (self.session_scope and entry.origin in node.pending.numbers)

    def locked(self, node: TopicNode, entry: Publication) -> bool:
        """Whether a pending total carries one of its keys. A total is never blocked by that."""
        return any(key in node.pending.locks for key in entry.keys)

    def take(self, node: TopicNode, source: Connection, packet: Entries, *, link: bool) -> int:
        """BRK-P4: entries of a neighbour's log, or of a client's history; gives how many were new."""
        run = run_of(packet.entries)
        if link:
            self._sender_holds(node, source, packet.entries, run)
        passing = self.passing(node, packet.entries)
        in_a_row = run is not None and passing is packet.entries
        new = new_ones(node.have, passing, self.book.closed, in_a_row=in_a_row)
        if not new:
            return 0
        if len(new) != len(packet.entries):
            packet, run = Entries(packet.topic, tuple(new)), None
        if link:
            node.want_acks(source, _origins(new, run))
        if node.pending.entries:
            for entry in new:
                node.remove_pending((entry.origin, entry.number))
        self.spread(node, packet, source, run)
        if node.hold:
            node.hold.known((entry.origin, entry.number) for entry in new)
            self.release(node)
        return len(new)

    def _sender_holds(
        self, node: TopicNode, link: Connection, entries: Sequence[Publication], run: PublisherRun | None = None
    ) -> None:
        parts = node.holders.get(link)
        if parts:
            new_ones(parts[0], entries, self.book.closed, in_a_row=run is not None)

    def passing(self, _node: TopicNode, entries: tuple[Publication, ...]) -> tuple[Publication, ...]:
        """F-TOT-1: what another broker has admitted belongs before the totals that are pending here: all passes."""
        return entries

    def spread(
        self, node: TopicNode, packet: Entries, source: Connection | None, run: PublisherRun | None = None
    ) -> None:
        """BRK-P4.2 to BRK-P4.4: into the log, to all links and members but the source. The same object goes to all.

        `run`: what the entries are known to be, if they are one.
        """
        entries = packet.entries
        node.append(entries, run)
        self.ledger.entries(node.topic, entries)
        send = self.wires.send
        links = self.state.links(node)
        for link in links:
            if link != source:
                send(link, packet)
        if self.seals and node.receivers:
            sealed = Sealed(node.topic, entries=self.seals.of_entries(entries))
            for member in node.receivers:
                if member != source:
                    send(member, sealed)
        for member in node.receivers:
            if member != source:
                send(member, packet)
        node.notice(_origins(entries, run))
        count = self.wires.count
        count("entries_logged", len(entries))
        count("entries_delivered", len(entries) * len(node.receivers))
        count("entries_forwarded", len(entries) * len(links))
        self.state.touch(node)

    def release(self, node: TopicNode) -> None:
        """BRK-P5: a commit or a known id may free held publications, and those may free the ones behind them."""
        hold = node.hold
        hopeful = sorted(hold.hopeful)  # A sorted list is a heap.
        hold.hopeful.clear()
        out = Outflow(self, node)
        while hopeful:
            pair = heappop(hopeful)
            entry = hold.find(pair)
            if entry is None:
                continue
            known = node.known(pair)
            if not known and (not hold.first(entry) or self._stays_held(node, entry)):
                continue
            for following in hold.remove(entry):
                heappush(hopeful, following)
            if not known:
                self.wires.count("entries_admitted")
                out.admit(entry)
        out.flush()

    def _stays_held(self, node: TopicNode, entry: Publication) -> bool:
        """Whether something blocks it still; it is then looked at again when that goes."""
        if not self.blocked(node, entry):
            return False
        for key in entry.keys:
            if key in node.pending.locks:
                node.hold.wait_for(key, (entry.origin, entry.number))
                break
        return True

    # BRK-L1 to BRK-L6

    def prepare(self, node: TopicNode, link: Connection, packet: Prepare) -> None:
        """BRK-L1: take in totals to be prepared, from a link."""
        self._sender_holds(node, link, packet.entries)
        node.want_acks(link, {entry.origin for entry in packet.entries})
        closed = self.book.closed
        new = [entry for entry in packet.entries if entry.origin not in closed and node.add_pending(entry)]
        if new:
            if len(new) != len(packet.entries):
                packet = Prepare(node.topic, tuple(new))
            self.spread_prepare(node, packet, link)

    def spread_prepare(self, node: TopicNode, packet: Prepare, source: Connection | None) -> None:
        self.ledger.entries(node.topic, packet.entries, prepared=True)
        for link in self.state.links(node):
            if link != source:
                self.wires.send(link, packet)
        self.wires.count("totals_prepared", len(packet.entries))
        self.state.touch(node)

    def acknowledged(self, node: TopicNode, child: Connection, packet: TotalAck) -> None:
        """BRK-L5. Of a total that is committed already the commit is on its way on this very link."""
        if not self.state.counts(packet.term):
            return
        covered = frozenset(packet.covered)
        for pair in packet.ids:
            if pair in node.pending.entries:
                node.covered_by(child, pair, covered)
        self.state.touch(node)

    def evaluate(self, node: TopicNode) -> None:
        """BRK-L6: from the state alone, so that nothing depends on which packet was lost."""
        if self.tree.is_root:
            self._commit(node)
        elif node.up_live:
            self._report(node)

    def _report(self, node: TopicNode) -> None:
        """BRK-L3: the coverage of each total, once every child has reported it."""
        due = node.take_due()
        if not due:
            return
        local = node.local_coverage()
        groups: dict[Coverage, list[PublicationId]] = {}
        for pair in due:
            if not node.all_children_cover(pair):
                continue
            covered = node.coverage(pair, local)
            if node.sent.get(pair) != covered:
                node.sent[pair] = covered
                groups.setdefault(covered, []).append(pair)
        for covered, pairs in groups.items():
            members = tuple(sorted(covered))
            for start in range(0, len(pairs), MOST_IN_PACKET):
                ids = tuple(pairs[start : start + MOST_IN_PACKET])
                self.state.send_up(TotalAck(node.topic, self.tree.term, ids, members))

    def _commit(self, node: TopicNode) -> None:
        """BRK-L4: the totals that every live member is covered for leave in one packet, each client's in its order."""
        if not self.tree.decides:
            return
        due = node.take_due()
        local = node.local_coverage()
        verdicts: dict[Coverage, bool] = {}
        committed: list[Publication] = []
        for pair in due:  # Grows on the way.
            entry = node.pending.entries.get(pair)
            if entry is None or not node.pending.turns.first(entry):
                continue
            covered = node.coverage(pair, local)
            if covered not in verdicts:
                verdicts[covered] = self.covers_all(node, covered)
            if verdicts[covered]:
                due += node.remove_pending(pair)
                node.have.add(entry.origin, entry.number)
                committed.append(entry)
        if committed:
            self.wires.count("totals_committed", len(committed))
            for piece in packets_of(committed):
                self.spread(node, Entries(node.topic, piece), None)
            self.release(node)

    def covers_all(self, node: TopicNode, covered: Coverage) -> bool:
        """BRK-L4: every live member of the roster, wherever it is, in the epoch that counts."""
        return self.grants.all_of(node.topic, covered, in_advance=False)


def _origins(entries: Sequence[Publication], run: PublisherRun | None) -> set[Origin]:
    return {run.origin} if run is not None else {entry.origin for entry in entries}

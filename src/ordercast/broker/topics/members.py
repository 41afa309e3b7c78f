"""Members at their edge, and what the brokers between edge and root do for them.

Rules BRK-M1 to BRK-M3, BRK-M5 to BRK-M8 and BRK-M11.
"""

from __future__ import annotations

from ordercast.broker.roster_book import FOR_EVER, touched
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.clients import AttachedClient
from ordercast.broker.topics.copies import Copies
from ordercast.broker.topics.join_wave import JoinWaves
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.topic import Member, TopicNode, WaitingMember, packets_of
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import (
    FENCED,
    Denied,
    Entries,
    Flow,
    Granted,
    Left,
    Live,
    Resume,
    Sealed,
    Subscribe,
    TopicState,
    Unsubscribe,
)  # fmt: skip
from ordercast.pubsub.filters import check_topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector
from ordercast.pubsub.topic_packets import AttachDenied, AttachGranted, AttachRequest, MemberGone, MemberReport

_ASK = ("topics", "ask")
_ASKED_OFTEN = 3
"""The pauses between requests grow after so many."""
_LONGEST_PAUSE = 4
"""They double so often."""


class Members(TopicsPart):
    """The local members of every topic."""

    constant = (
        *TopicsPart.constant, "ordering", "stability", "copies", "orphans", "channels", "waves", "authority"
    )  # fmt: skip

    def __init__(
        self,
        state: TopicsState,
        ordering: Ordering,
        stability: StabilityVotes,
        copies: Copies,
        orphans: Orphans,
        channels: Channels,
        waves: JoinWaves,
        authority: Authority,
    ) -> None:
        super().__init__(state)
        self.ordering = ordering
        self.stability = stability
        self.copies = copies
        self.orphans = orphans
        self.channels = channels
        self.waves = waves
        self.authority = authority
        self.departing: dict[tuple[Topic, Origin], tuple[int, int]] = {}
        """Ends of memberships that the root has not confirmed: epoch, and when to stop asking."""
        self.asking = False
        self.waited_for: set[Topic] = set()
        """Topics in which somebody may be waiting."""

    def subscribe(self, client: AttachedClient, packet: Subscribe) -> None:
        """BRK-M1: what this broker has of the topic; the client answers with what it has."""
        if self._objects(client, packet.topic, receives=packet.receives):
            return
        node = self.nodes.get(packet.topic)
        have, base = ({}, {}) if node is None else (
            (node.have.summary(), node.base.copy()) if packet.receives else node.of_one(client.origin)
        )  # fmt: skip
        self.wires.send(client.connection, TopicState(packet.topic, have, base))

    def _objects(self, client: AttachedClient, topic: Topic, *, receives: bool) -> bool:
        """Whether the topic is refused to the client, which is told why; nobody waits for it then."""
        objection = self._objection(client, topic, receives=receives)
        if objection:
            self.wires.send(client.connection, Denied(topic, objection))
            self.waves.joined(client, topic)
        return bool(objection)

    def _objection(self, client: AttachedClient, topic: Topic, *, receives: bool) -> str:
        if self.book.fenced(client.origin):
            return FENCED
        try:
            check_topic(topic)
        except UsageError as error:
            return str(error)
        if receives and not client.may_subscribe(topic):
            return f"{client.name} has no right to subscribe to {topic}"
        if not receives and not client.may_publish(topic):
            return f"{client.name} has no right to publish on {topic}"
        return ""

    def resume(self, client: AttachedClient, packet: Resume) -> None:
        """BRK-M2: history bypasses locks, because it was delivered before. It may come in several pieces.

        What the client says it has counts for what it is sent; what others are to have of it must be sealed.
        """
        if self._objects(client, packet.topic, receives=packet.receives):
            return
        node = self.channels.node(packet.topic)
        waiting = node.waiting.get(client.origin)
        if waiting is None or waiting.connection != client.connection or waiting.receives != packet.receives:
            waiting = WaitingMember(client.connection, client.next_epoch(), receives=packet.receives)
            node.waiting[client.origin] = waiting
            self.waited_for.add(node.topic)
        waiting.have, waiting.base, waiting.heard_ns = packet.have, packet.base, self.wires.now_ns
        waiting.resumed = True
        base, entries = self._proven(node, client, packet)
        self.stability.merge_base(node, base, client.connection)
        if entries:
            self.ordering.take(node, client.connection, Entries(packet.topic, entries), link=False)
        self._ask_if_complete(node, client.origin, waiting)
        if packet.receives:
            self.waves.joined(client, packet.topic)
        self.state.look_again(node)

    def sealed(self, client: AttachedClient, packet: Sealed) -> None:
        """Proofs of what the Resume behind it says."""
        client.sealed = packet

    def _proven(
        self, node: TopicNode, client: AttachedClient, packet: Resume
    ) -> tuple[Vector, tuple[Publication, ...]]:  # fmt: skip
        """BRK-M12: the stable base and the history that a broker has sealed; all of it where there is no key."""
        seals = self.state.seals
        if not seals:
            return packet.base, packet.entries
        said, client.sealed = client.sealed, None
        if said is None or said.topic != packet.topic:
            said = Sealed(packet.topic)
        entries = seals.proven_entries(packet.entries, said.entries)
        if len(entries) != len(packet.entries):
            self.wires.count("history_unproven", len(packet.entries) - len(entries))
        news = any(number > node.base.get(origin, 0) for origin, number in packet.base.items())
        return seals.proven_base(packet.topic, packet.base, said.base) if news else {}, entries

    # BRK-M3

    def _ask_if_complete(self, node: TopicNode, member: Origin, waiting: WaitingMember) -> None:
        """The root is asked once everything that the client has delivered is here, and thus on its way up before."""
        if waiting.epoch < self.book.epoch(node.topic, member):
            self.denied(AttachDenied(node.topic, member, waiting.epoch, ()), outdated=True)
            return
        if waiting.resumed and not waiting.complete:
            mine = node.have
            silent = self.wires.now_ns - waiting.heard_ns >= self.settings.request_ms * 1e6
            waiting.complete = silent or _includes(mine, Received(waiting.have))
        if waiting.complete and self.wires.now_ns >= waiting.ask_ns:
            self._ask(node, member, waiting)
        self._keep_asking()

    def _ask(self, node: TopicNode, member: Origin, waiting: WaitingMember) -> None:
        request = AttachRequest(node.topic, member, waiting.epoch)
        waiting.asked += 1
        pauses = 1 << min(max(0, waiting.asked - _ASKED_OFTEN), _LONGEST_PAUSE)
        waiting.ask_ns = self.wires.now_ns + pauses * int(self.settings.retry_ms * 1e6)
        if not self.confirmation_needed():
            self.granted(AttachGranted(node.topic, self.tree.term, member, waiting.epoch, (), new=False))
        elif self.tree.is_root:
            self.authority.request(request)
        else:
            self.state.send_up(AttachRequest(node.topic, member, waiting.epoch, (self.tree.node,)))

    def confirmation_needed(self) -> bool:
        """F-TOT-8: only the root knows which totals the member may have been counted for elsewhere."""
        return True

    def _keep_asking(self) -> None:
        if not self.asking:
            self.asking = True
            self.wires.set_timer(_ASK, int(self.settings.retry_ms * 1e6))

    def ask_again(self, *, anew: bool) -> None:
        """BRK-M3: every `retry_ms` while somebody waits, more seldom after a while: an answer may just take its time.

        `anew`: the way to the root is another one, or it may decide now.
        """
        self.asking = False
        for topic in sorted(self.waited_for):
            node = self.nodes.get(topic)
            if node is None or not node.waiting:
                self.waited_for.discard(topic)
                continue
            for member in sorted(node.waiting):
                waiting = node.waiting.get(member)
                if waiting is not None:
                    if anew:
                        waiting.asked = waiting.ask_ns = 0
                    self._ask_if_complete(node, member, waiting)
        self.repeat_departures()

    def ask_soon(self, node: TopicNode, member: Origin, epoch: int) -> None:
        """This broker itself, on behalf of orphans, waits for a membership that only publishes."""
        waiting = node.waiting[member] = WaitingMember(None, epoch, receives=False)
        self.waited_for.add(node.topic)
        waiting.complete = True
        self._ask(node, member, waiting)
        self._keep_asking()
        self.state.look_again(node)

    def relay_request(self, packet: AttachRequest) -> None:
        """BRK-M4: not ROOT: pass it on. A broker that seeks drops it; it will be asked again."""
        if self.tree.is_root:
            self.authority.request(packet)
        else:
            self.state.send_up(AttachRequest(packet.topic, packet.member, packet.epoch, (*packet.path, self.tree.node)))

    # BRK-M5, BRK-M6

    def answer(self, path: tuple[NodeId, ...], packet: AttachGranted | AttachDenied) -> None:
        """BRK-M5: one step back along the path; at its end the edge acts on it."""
        if not path:
            if isinstance(packet, AttachGranted):
                self.granted(packet)
            else:
                self.denied(packet)
            return
        for child, name in self.tree.children.items():
            if name == path[-1]:
                self.wires.send(child, packet)
                return

    def relay_answer(self, sender: Connection, packet: AttachGranted | AttachDenied) -> None:
        if sender != self.tree.parent or packet.path[-1:] != (self.tree.node,):
            return
        shorter = packet.path[:-1]
        if isinstance(packet, AttachGranted):
            if tuple(packet.term) < tuple(self.tree.term):
                return  # BRK-PC5: of a root that has been succeeded.
            node = self.nodes.get(packet.topic)
            if shorter and (node is None or not self.relays_grants(node)):
                return
            self.answer(shorter, AttachGranted(
                packet.topic, packet.term, packet.member, packet.epoch, shorter, packet.new
            ))  # fmt: skip
        else:
            self.answer(shorter, AttachDenied(packet.topic, packet.member, packet.epoch, shorter))

    def relays_grants(self, node: TopicNode) -> bool:
        """BRK-M5: what the root had sent before the grant has arrived here, and so went down before it.

        Otherwise this broker has begun the topic anew meanwhile, and the edge would not know what it missed.
        """
        return node.up_live

    def granted(self, packet: AttachGranted) -> None:
        """BRK-M6. A grant that overtook the reset of the channel is ignored (F-TOT-14); it is asked for again."""
        node = self.nodes.get(packet.topic)
        waiting = node.waiting.get(packet.member) if node is not None else None
        if node is None or waiting is None or waiting.epoch != packet.epoch or not waiting.complete:
            return
        if not (self.tree.is_root or node.up_live):
            return
        del node.waiting[packet.member]
        before = node.members.get(packet.member)
        member = node.members[packet.member] = Member(waiting.connection, packet.epoch, receives=waiting.receives)
        if before is not None and before.connection == member.connection:
            member.vector = before.vector  # It reports only what is new to itself.
        node.members_changed()
        if member.connection is not None:
            base = node.base.copy() if waiting.receives else node.of_one(packet.member)[1]
            self._serve(node, member.connection, waiting, base, new=packet.new or not (waiting.have or waiting.base))
        self.copies.publisher_here(node, packet.member)
        self.state.vote_again(node)
        self.state.look_again(node)
        self.channels.ground(node)

    def _serve(
        self, node: TopicNode, connection: Connection, waiting: WaitingMember, base: Vector, *, new: bool
    ) -> None:
        """BRK-M6.3 to BRK-M6.5: Granted first, then what the client lacks, then Live."""
        send = self.wires.send
        seals = self.state.seals
        if seals and base:
            send(connection, Sealed(node.topic, seals.of_base(node.topic, base)))
        send(connection, Granted(node.topic, base, new, waiting.receives))
        if waiting.receives:
            for piece in packets_of(node.difference(waiting.have, waiting.base)):
                if seals:
                    send(connection, Sealed(node.topic, entries=seals.of_entries(piece)))
                send(connection, Entries(node.topic, piece))
        if not node.flow_open:
            send(connection, Flow(node.topic, open=False))
        send(connection, Live(node.topic))

    def denied(self, packet: AttachDenied, *, outdated: bool = False) -> None:
        """BRK-C9; or it is recorded with a later attach, and nobody is at the other end of this connection (BRK-M9)."""
        node = self.nodes.get(packet.topic)
        waiting = node.waiting.get(packet.member) if node is not None else None
        if node is None or waiting is None or waiting.epoch != packet.epoch:
            return
        del node.waiting[packet.member]
        if waiting.connection is not None:
            self._say_denied(waiting.connection, packet.topic, fenced=not outdated)
        else:
            self.orphans.denied(packet.topic)
        self.state.look_again(node)
        self.channels.denied(node)

    # BRK-M7

    def report(self, node: TopicNode) -> None:
        """BRK-M7, not root: when the channel is live and every child has reported in this term."""
        if not node.up_live or any(child not in node.member_reports for child in node.down):
            return
        present = node.present()
        if present != node.member_sent:
            node.member_sent = present
            self.state.send_up(MemberReport(node.topic, self.tree.term, tuple(sorted(present))))

    def reported(self, node: TopicNode, child: Connection, packet: MemberReport) -> None:
        if self.state.counts(packet.term):
            node.member_reports[child] = frozenset(packet.members)
            self.state.look_again(node)

    # BRK-M8, BRK-M11

    def unsubscribe(self, client: AttachedClient, packet: Unsubscribe) -> None:
        """BRK-M11: at once, or as soon as what the client has published and is held has been admitted."""
        node = self.nodes.get(packet.topic)
        waiting = node.waiting.pop(client.origin, None) if node is not None else None
        member = node.members.get(client.origin) if node is not None else None
        if node is not None and member is not None:
            member.leaving = True
            node.members_changed()
            self.state.vote_again(node)
            self.state.touch(node)
        else:
            if node is not None and waiting is not None:
                self.depart(packet.topic, client.origin, waiting.epoch)
                self.state.look_again(node)
                self.channels.ground(node)
            self.wires.send(client.connection, Left(packet.topic))

    def finish_leaving(self, node: TopicNode) -> None:
        for origin in sorted(node.members):
            member = node.members[origin]
            if member.leaving and origin not in node.hold:
                self._remove(node, origin)
                self.depart(node.topic, origin, member.epoch)
                if member.connection is not None:
                    self.wires.send(member.connection, Left(node.topic))

    def leave(self, node: TopicNode, origin: Origin) -> None:
        """End this broker's own membership: all orphans of the topic are published."""
        member = node.members.get(origin)
        if member is not None:
            member.leaving = True
            self.state.touch(node)

    def _remove(self, node: TopicNode, origin: Origin) -> None:
        del node.members[origin]
        node.members_changed()
        self.state.vote_again(node)
        self.state.look_again(node)
        self.channels.ground(node)

    def lost(self, client: AttachedClient, *, gone: bool) -> None:
        """BRK-M8: the client is absent from here. Where a broken connection means a dead process its session is over.

        An end on purpose takes leave of nothing: a client that wants to leave says Unsubscribe before.
        """
        last = 0
        for topic in sorted(self.nodes):
            node = self.nodes.get(topic)
            if node is None:
                continue
            waiting = node.waiting.get(client.origin)
            member = node.members.get(client.origin)
            if waiting is not None and waiting.connection == client.connection:
                last = max(last, waiting.epoch)
                del node.waiting[client.origin]
                self.state.look_again(node)
            if member is not None and member.connection == client.connection:
                last = max(last, member.epoch)
                self._absent(node, client.origin, member)
            self.channels.ground(node)
        if gone and last and self.settings.partitions == "excluded":
            self.depart(Topic(""), client.origin, last)

    def _absent(self, node: TopicNode, origin: Origin, member: Member) -> None:
        if member.leaving:
            member.connection = None  # It goes on leaving without its client.
            node.members_changed()
        else:
            self._remove(node, origin)

    def depart(self, topic: Topic, member: Origin, epoch: int) -> None:
        """Tell the root, until it is known that the membership (without a topic: the session) is over."""
        until = self.wires.now_ns + int(self.settings.member_timeout_ms * 1e6)
        self.departing[topic, member] = (epoch, until)
        self._tell_departure(topic, member)
        self._keep_asking()

    def repeat_departures(self) -> None:
        for topic, member in sorted(self.departing):
            self._tell_departure(topic, member)
        if self.departing:
            self._keep_asking()

    def _tell_departure(self, topic: Topic, member: Origin) -> None:
        epoch, until = self.departing.pop((topic, member), (0, 0))
        over = self.book.over(topic, member, epoch) if topic else self.book.fenced(member)
        if not over and self.wires.now_ns < until:
            self.departing[topic, member] = (epoch, until)
            self.relay_gone(MemberGone(topic, member, epoch))

    def relay_gone(self, packet: MemberGone) -> None:
        if self.tree.is_root:
            self.authority.member_gone(packet)
        else:
            self.state.send_up(packet)

    def ended(self, who: Origin, epoch: int) -> None:
        """A fence or a departure has become known: local members that it is about are members no more."""
        member, topic = touched(who)
        for name in [topic] if topic is not None else sorted(self.nodes):
            node = self.nodes.get(name)
            if node is None:
                continue
            waiting = node.waiting.get(member)
            if waiting is not None and waiting.epoch <= epoch:
                self.denied(AttachDenied(name, member, waiting.epoch, ()))
            confirmed = node.members.get(member)
            if confirmed is not None and confirmed.epoch <= epoch:
                self._remove(node, member)
                self._say_denied(confirmed.connection, name, fenced=epoch == FOR_EVER)
                if confirmed.connection is None and not confirmed.leaving:
                    self.orphans.denied(name)
            if topic is None:
                node.hold.drop(member)
            self.state.vote_again(node)
            self.state.look_again(node)

    def superseded(self, topic: Topic, member: Origin, epoch: int) -> None:
        """BRK-M9: it has asked for a later attach; unless that was here, the connection that is known here is dead."""
        node = self.nodes.get(topic)
        confirmed = node.members.get(member) if node is not None else None
        if node is None or confirmed is None or confirmed.epoch >= epoch:
            return
        waiting = node.waiting.get(member)
        if waiting is None or waiting.epoch < epoch:
            self._remove(node, member)

    def _say_denied(self, connection: Connection | None, topic: Topic, *, fenced: bool) -> None:
        if connection is not None and fenced:
            self.wires.send(connection, Denied(topic, FENCED))


def _includes(mine: Received, theirs: Received) -> bool:
    """Whether everything of `theirs` is in `mine`."""
    return all(number <= mine.low.get(origin, 0) for origin, number in theirs.low.items()) and all(
        (origin, number) in mine for origin, numbers in theirs.extras.items() for number in numbers
    )

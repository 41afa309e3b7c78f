"""Members at their edge: a client says what it has, the root is asked, the client is served.

Rules BRK-M1 to BRK-M3, BRK-M6 and BRK-M12.
"""

from __future__ import annotations

from typing import Protocol

from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.copies import Copies
from ordercast.broker.topics.membership.presence import Presence
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.sessions.tickets import Tickets
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.log import packets_of
from ordercast.broker.topics.state.member import WaitingMember
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.client_packets import (
    Denied,
    Entries,
    Flow,
    Granted,
    Live,
    Resume,
    Sealed,
    Subscribe,
    TopicState,
)  # fmt: skip
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.filters import is_following
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector
from ordercast.pubsub.topic_packets import AttachDenied, AttachGranted, AttachRequest, MemberGone

_ASK = ("topics", "ask")
_ASKED_OFTEN = 3
"""The pauses between requests grow after so many."""
_LONGEST_PAUSE = 4
"""They double so often."""


class Followers(Protocol):
    """Port to the clients that follow filters."""

    def confirmed(self, connection: Connection, name: Topic) -> None:
        """BRK-W1: the root has confirmed one as a member of the filter."""


class Members(TopicsPart):
    """The local members of every topic."""

    constant = (
        *TopicsPart.constant, "ordering", "stability", "copies", "orphans", "channels", "authority", "following",
        "presence", "tickets",
    )  # fmt: skip
    following: Followers

    def __init__(
        self,
        state: TopicsState,
        ordering: Ordering,
        stability: StabilityVotes,
        copies: Copies,
        orphans: Orphans,
        channels: Channels,
        authority: Authority,
        presence: Presence,
        tickets: Tickets,
    ) -> None:
        super().__init__(state)
        self.presence = presence
        self.tickets = tickets
        self.ordering = ordering
        self.stability = stability
        self.copies = copies
        self.orphans = orphans
        self.channels = channels
        self.authority = authority
        self.asking = False
        self.waited_for: set[Topic] = set()
        """Topics in which somebody may be waiting."""

    def subscribe(self, client: AttachedClient, packet: Subscribe) -> None:
        """BRK-M1: what this broker has of the topic; the client answers with what it has."""
        if not self.presence.refuses(client, packet.topic, receives=packet.receives):
            self.tickets.before_topic(client, receives=packet.receives)
            self._tell_state(client, packet.topic, receives=packet.receives)

    def _tell_state(self, client: AttachedClient, topic: Topic, *, receives: bool) -> None:
        node = self.nodes.get(topic)
        if node is None:
            state = TopicState(topic, {}, {})
        else:
            have, base = (node.have.summary(), node.base.copy()) if receives else node.of_one(client.origin)
            state = TopicState(topic, have, base, node.life)
        self.wires.send(client.connection, state)

    def resume(self, client: AttachedClient, packet: Resume) -> None:
        """BRK-M2: history bypasses locks, because it was delivered before. It may come in several pieces.

        What the client says it has counts for what it is sent; what others are to have of it must be sealed.
        """
        if self.presence.refuses(client, packet.topic, receives=packet.receives):
            return
        self.tickets.before_topic(client, receives=packet.receives)  # It may have changed its mind since Subscribe.
        node = self.channels.node(packet.topic)
        self.presence.came(client.origin, packet.topic, client.user)
        waiting = self._waiting(node, client, packet)
        if self.outdated(packet, node, waiting):
            return
        waiting.answered(packet.have, packet.base, self.wires.now_ns)
        base, entries = self._proven(node, client, packet)
        self.stability.merge_base(node, base, client.connection)
        if entries:
            self.ordering.take(node, client.connection, Entries(packet.topic, entries), link=False)
        self._ask_if_complete(node, client.origin, waiting)
        self.state.look_again(node)

    def _waiting(self, node: TopicNode, client: AttachedClient, packet: Resume) -> WaitingMember:
        waiting = node.waiting.get(client.origin)
        if waiting is None or waiting.connection != client.connection or waiting.receives != packet.receives:
            waiting = WaitingMember(client.connection, client.next_epoch(), receives=packet.receives)
            node.waiting[client.origin] = waiting
            self.waited_for.add(node.topic)
            if packet.life not in (0, node.life):
                waiting.begin_with(node.life)
                self._tell_state(client, packet.topic, receives=packet.receives)
        return waiting

    def outdated(self, packet: Resume, node: TopicNode, waiting: WaitingMember) -> bool:
        """BRK-M2: whether this broker has begun the topic anew since the client was told what it has.

        The client left out what was stable here then: later publications would stand before it in the log. It has been
        told of the new log. What was sent to a broker without a log is complete for any.
        """
        return packet.life not in (waiting.life, node.life)

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
        if waiting.epoch < self.book.epoch(node.topic, member) or waiting.is_given_up(self.wires.now_ns):
            self.denied(AttachDenied(node.topic, member, waiting.epoch, ()), outdated=True)
            return
        if waiting.resumed and not waiting.complete:
            mine = node.have
            silent = not waiting.away and self.wires.now_ns - waiting.heard_ns >= self.settings.request_ms * 1e6
            waiting.complete = silent or _includes(mine, Received(waiting.have), self.book.closed)
        if waiting.complete and self.wires.now_ns >= waiting.ask_ns:
            self._ask(node, member, waiting)
        self.keep_asking()

    def _ask(self, node: TopicNode, member: Origin, waiting: WaitingMember) -> None:
        request = AttachRequest(node.topic, member, waiting.epoch)
        waiting.asked += 1
        waiting.may_be_recorded = True
        pauses = 1 << min(max(0, waiting.asked - _ASKED_OFTEN), _LONGEST_PAUSE)
        waiting.ask_ns = self.wires.now_ns + pauses * int(self.settings.retry_ms * 1e6)
        if waiting.away:  # It may be a newcomer, and the root may not have heard that it is gone.
            self.tell_gone(MemberGone(node.topic, member, waiting.epoch, unheard=True))
        if not self.confirmation_needed():
            self.granted(AttachGranted(node.topic, self.tree.term, member, waiting.epoch, (), new=False))
        elif self.tree.is_root:
            self.authority.request(request)
        else:
            self.state.send_up(AttachRequest(node.topic, member, waiting.epoch, (self.tree.node,)))

    def tell_gone(self, packet: MemberGone) -> None:
        """BRK-M8: passed on from broker to broker, to the root."""
        if self.tree.is_root:
            self.authority.member_gone(packet)
        else:
            self.state.send_up(packet)

    def confirmation_needed(self) -> bool:
        """F-TOT-8: only the root knows which totals the member may have been counted for elsewhere."""
        return True

    def keep_asking(self) -> None:
        """Somebody waits for an answer of the root: `ask_again` follows after a while."""
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

    def ask_soon(self, node: TopicNode, member: Origin, epoch: int, connection: Connection | None = None) -> None:
        """Somebody without a history waits for a membership: who follows a filter, or this broker for its orphans."""
        waiting = node.waiting[member] = WaitingMember(connection, epoch, receives=False)
        self.presence.came(member, node.topic, self.state.clients[connection].user if connection is not None else "")
        self.waited_for.add(node.topic)
        waiting.complete = True
        self._ask(node, member, waiting)
        self.keep_asking()
        self.state.look_again(node)

    def granted(self, packet: AttachGranted) -> None:
        """BRK-M6. A grant that overtook the reset of the channel is ignored (F-TOT-14); it is asked for again."""
        node = self.nodes.get(packet.topic)
        waiting = node.waiting.get(packet.member) if node is not None else None
        if node is None or waiting is None or waiting.epoch != packet.epoch or not waiting.complete:
            return
        if not (self.tree.is_root or node.up_live):
            return
        member = node.admit(packet.member, packet.epoch)
        if member.connection is not None:
            self.state.clients[member.connection].settle()
        if is_following(node.topic) and member.connection is not None:
            self.following.confirmed(member.connection, node.topic)
        elif member.connection is not None:
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
        send(connection, Granted(node.topic, base, new, waiting.receives, node.topic in self.stability.kept.aged))
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
        node.stop_waiting(packet.member)
        if waiting.connection is not None:
            if not outdated:
                self.wires.send(waiting.connection, Denied(packet.topic, self.book.why_over(packet.member)))
        elif not waiting.away:
            self.orphans.denied(packet.topic)
        self.state.look_again(node)
        self.channels.denied(node)


def _includes(mine: Received, theirs: Received, closed: ClosedSessions) -> bool:
    """Whether everything of `theirs` is in `mine`, or of a closed session."""
    return all(number <= mine.low.get(origin, 0) or origin in closed for origin, number in theirs.low.items()) and all(
        (origin, number) in mine or origin in closed for origin, numbers in theirs.extras.items() for number in numbers
    )

"""Ends memberships: by leaving, a lost connection, a fence, or a later attach elsewhere (BRK-M8, BRK-M11).

Who has only lost its connection stays a member, and this broker answers for it (BRK-M14).
"""

from __future__ import annotations

from ordercast.broker.roster_book import FOR_EVER, touched
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.membership.members import Members
from ordercast.broker.topics.membership.presence import Presence
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.member import Member, WaitingMember
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import Denied, Left, Unsubscribe
from ordercast.pubsub.topic_packets import AttachDenied, MemberGone


class Leaving(TopicsPart):
    """Ends memberships at this broker, and tells the root until it is known there."""

    constant = (*TopicsPart.constant, "presence", "orphans", "channels", "members")

    def __init__(
        self, state: TopicsState, presence: Presence, orphans: Orphans, channels: Channels, members: Members
    ) -> None:
        super().__init__(state)
        self.presence = presence
        self.orphans = orphans
        self.channels = channels
        self.members = members
        self.departing: dict[tuple[Topic, Origin], tuple[MemberGone, int]] = {}
        """Ends of memberships that the root has not confirmed, and when to stop telling it."""

    def unsubscribe(self, client: AttachedClient, packet: Unsubscribe) -> None:
        """BRK-M11: at once, or as soon as what the client has published and is held has been admitted."""
        node = self.nodes.get(packet.topic)
        waiting = node.stop_waiting(client.origin) if node is not None else None
        member = node.members.get(client.origin) if node is not None else None
        if node is not None and member is not None:
            member.begin_to_leave(client.connection)
            node.members_changed()
            self.state.vote_again(node)
            self.state.look_again(node)
        else:
            self.presence.went(client.origin, packet.topic)
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
                if origin not in node.waiting:  # Whoever asks again while it leaves takes part all the same.
                    self.presence.went(origin, node.topic)
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
        node.dismiss(origin)
        self.state.vote_again(node)
        self.state.look_again(node)
        self.channels.ground(node)

    def lost(self, client: AttachedClient, *, gone: bool) -> None:
        """BRK-M8: the client is absent from here. Where a broken connection means a dead process its session is over.

        An end on purpose takes leave of nothing: a client that wants to leave says Unsubscribe before.
        """
        last = 0
        dead = gone and self.settings.partitions == "excluded"
        for topic in self.presence.of(client.origin):
            node = self.nodes.get(topic)
            if node is None:
                continue
            waiting = node.waiting.get(client.origin)
            member = node.members.get(client.origin)
            if waiting is not None and waiting.connection == client.connection:
                last = max(last, waiting.epoch)
                self._unheard(node, client, waiting, dead=dead)
            if member is not None and member.connection == client.connection:
                last = max(last, member.epoch)
                self._absent(node, client, member, dead=dead)
            self.channels.ground(node)
        if not any(other.origin == client.origin for other in self.state.clients_named(client.name)):
            self.presence.forget(client.origin)
        if dead and last:
            self.depart(Topic(""), client.origin, last)

    def _unheard(self, node: TopicNode, client: AttachedClient, waiting: WaitingMember, *, dead: bool) -> None:
        """BRK-M8: the client went before it heard that it is a member.

        The root says whether it was a newcomer, whose membership ends. For anybody else this broker goes on asking:
        the root may have recorded it in this attach, and then nobody else can answer for it (BRK-M14).
        """
        if waiting.may_be_recorded and not dead and self.answers_for_the_absent():
            until_ns = self.wires.now_ns + int(self.settings.member_timeout_ms * 1e6)
            waiting.step_away(receives=waiting.receives or client.follows(node.topic), until_ns=until_ns)
        else:
            node.stop_waiting(client.origin)
        self.state.look_again(node)
        if not dead:
            self.members.tell_gone(MemberGone(node.topic, client.origin, waiting.epoch, unheard=True))

    def _absent(self, node: TopicNode, client: AttachedClient, member: Member, *, dead: bool) -> None:
        if member.leaving:
            member.connection = None  # It goes on leaving without its client.
            node.members_changed()
        elif self.answers_for_the_absent() and not dead:
            self.wires.count("members_away")
            member.step_away(receives=member.receives or client.follows(node.topic))
            node.members_changed()
            self.state.look_again(node)
        else:
            self._remove(node, client.origin)

    def answers_for_the_absent(self) -> bool:
        """BRK-M14: nobody needs to wait for a client that is gone as long as this broker is there.

        All that it was given came from this broker's log, and it publishes nothing before the root has granted it a
        later attach.
        """
        return self.settings.absent_member == "cover"

    def depart(self, topic: Topic, member: Origin, epoch: int, *, on_purpose: bool = False) -> None:
        """Tell the root, until it is known that the membership (without a topic: the session) is over.

        Whoever is absent ends by that after a while; a session that has left all its topics only by its word (BRK-F2).
        """
        until = FOR_EVER if on_purpose else self.wires.now_ns + int(self.settings.member_timeout_ms * 1e6)
        self.departing[topic, member] = (MemberGone(topic, member, epoch, on_purpose), until)
        self._tell_departure(topic, member)
        self.members.keep_asking()

    def repeat_departures(self) -> None:
        for topic, member in sorted(self.departing):
            self._tell_departure(topic, member)
        if self.departing:
            self.members.keep_asking()

    def _tell_departure(self, topic: Topic, member: Origin) -> None:
        packet, until = self.departing[topic, member]
        over = self.book.over(topic, member, packet.epoch) if topic else self.book.fenced(member)
        if over or self.wires.now_ns >= until:
            del self.departing[topic, member]
        else:
            self.members.tell_gone(packet)

    def ended(self, who: Origin, epoch: int) -> None:
        """A fence or a departure has become known: local members that it is about are members no more."""
        member, topic = touched(who)
        names = [topic] if topic is not None else sorted({*self.book.recorded_in(member), *self.presence.of(member)})
        if topic is None:
            self.presence.forget(member)
        for name in names:
            node = self.nodes.get(name)
            if node is None:
                continue
            waiting = node.waiting.get(member)
            if waiting is not None and waiting.epoch <= epoch:
                self.members.denied(AttachDenied(name, member, waiting.epoch, ()))
            confirmed = node.members.get(member)
            if confirmed is not None and confirmed.epoch <= epoch:
                self._remove(node, member)
                if confirmed.connection is not None and epoch >= FOR_EVER:
                    self.wires.send(confirmed.connection, Denied(name, self.book.why_over(member)))
                if confirmed.connection is None and not (confirmed.leaving or confirmed.away):
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

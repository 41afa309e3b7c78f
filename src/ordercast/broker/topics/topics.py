"""The topics half of a broker: channels, order, members, stability and safety of everything that is published.

Packets are handled one after the other; acknowledgements, reports, commits and votes follow from the state and are
sent when the turn ends, so that whatever became possible together leaves together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, ClassVar

from ordercast.broker.packet_checks import check
from ordercast.broker.place import BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.ports import Fenced, Roster, TreePort
from ordercast.broker.topics.absence import Absence
from ordercast.broker.topics.adoption import Adoption
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.budgets import Budgets
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.clients import AttachedClient
from ordercast.broker.topics.copies import Copies
from ordercast.broker.topics.explain import explain
from ordercast.broker.topics.gaps import Gaps
from ordercast.broker.topics.grants import Grants
from ordercast.broker.topics.join_wave import JoinWaves
from ordercast.broker.topics.members import Members
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.roster_news import RosterNews
from ordercast.broker.topics.stability import StabilityVotes
from ordercast.broker.topics.topic import TopicNode
from ordercast.broker.topics.topics_state import TopicsState
from ordercast.broker.topics.watching import Watching
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, Wires
from ordercast.pubsub import client_packets as c
from ordercast.pubsub import topic_packets as t
from ordercast.pubsub.settings import BrokerSettings

Handler = Callable[[Connection, Any], None]


class Topics(TopicsState):
    """The topics half. Implements `TopicsPort`; its parts are class attributes, so that a test can replace one.

    A part knows those that it is given, which were made before it; what a later one has to do it asks for by a port.
    """

    constant = (*TopicsState.constant, "_of_clients", "_of_links")
    grants_type: ClassVar[type[Grants]] = Grants
    ordering_type: ClassVar[type[Ordering]] = Ordering
    gaps_type: ClassVar[type[Gaps]] = Gaps
    stability_type: ClassVar[type[StabilityVotes]] = StabilityVotes
    copies_type: ClassVar[type[Copies]] = Copies
    orphans_type: ClassVar[type[Orphans]] = Orphans
    channels_type: ClassVar[type[Channels]] = Channels
    waves_type: ClassVar[type[JoinWaves]] = JoinWaves
    authority_type: ClassVar[type[Authority]] = Authority
    members_type: ClassVar[type[Members]] = Members

    def __init__(
        self,
        settings: BrokerSettings,
        wires: Wires,
        tree: TreePort,
        ledger: BrokerLedger,
        saved: SavedBroker | None = None,
        place: BrokerPlace | None = None,
    ) -> None:
        super().__init__(settings, wires, tree, ledger, saved, place)
        self.last_parent: Connection | None = None
        self.grants = self.grants_type(self)
        self.ordering = self.ordering_type(self, self.grants)
        self.gaps = self.gaps_type(self, self.ordering)
        self.stability = self.stability_type(self, self.ordering, self.grants, self.gaps)
        self.copies = self.copies_type(self)
        self.orphans = self.orphans_type(self, saved)
        self.channels = self.channels_type(self, self.stability, self.copies, self.orphans)
        self.watching = Watching(self)
        self.news = RosterNews(self, self.grants, self.watching, self.orphans)
        self.waves = self.waves_type(self, self.news, self.watching)
        self.absence = Absence(self)
        self.authority = self.waves.root = self.authority_type(
            self, self.grants, self.news, self.waves, self.absence
        )  # fmt: skip
        self.members = self.authority.members = self.news.members = self.members_type(
            self, self.ordering, self.stability, self.copies, self.orphans, self.channels, self.waves, self.authority
        )
        self.budgets = Budgets(self, self.members)
        self.adoption = Adoption(self, self.orphans, self.ordering, self.channels, self.members)
        self._of_clients = self._client_handlers()
        self._of_links = self._link_handlers()

    # The tree around this broker

    def attached(self) -> None:
        self.last_parent = self.tree.parent
        self.send_up(self.news.everything())
        self.copies.neighbours_changed()
        self.channels.open_all()
        self.members.repeat_departures()
        self.members.ask_again(anew=True)

    def parent_lost(self) -> None:
        parent, self.last_parent = self.last_parent, None
        self.waves.abandon()
        self.authority.clear()
        if parent is not None:
            self.copies.lost(parent)
        self.channels.parent_lost(parent)
        self.orphans.parent_lost()

    def stepped_down(self) -> None:
        self.parent_lost()

    def child_added(self, child: Connection) -> None:
        self.wires.send(child, self.news.everything())
        self.absence.child_added(child)
        self.copies.neighbours_changed()

    def child_lost(self, child: Connection) -> None:
        self.channels.child_lost(child)
        self.waves.child_lost(child)
        self.copies.lost(child)

    def term_adopted(self) -> None:
        for topic in sorted(self.nodes):
            self.nodes[topic].clear_reports()
            self.touch(self.nodes[topic])
            self.vote_again(self.nodes[topic])

    def became_root(self) -> None:
        self.last_parent = None
        self.authority.clear()
        self.term_adopted()
        self.copies.neighbours_changed()
        self.channels.became_root()
        self.members.repeat_departures()
        self.may_decide()

    def may_decide(self) -> None:
        if self.tree.decides:
            self.authority.may_decide()
            self.members.ask_again(anew=True)
            self.copies.neighbours_changed()
            for topic in sorted(self.nodes):
                self.vote_again(self.nodes[topic])

    def handed_up(self) -> bool:
        kept = self.orphans.closing or self.orphans.waiting
        return not kept and all(node.up_live for node in self.nodes.values())

    def names(self) -> tuple[Topic, ...]:
        return tuple(sorted(self.nodes))

    def has(self, topic: Topic) -> bool:
        return topic in self.nodes

    def roster(self) -> Roster:
        return self.book.roster()

    def fenced(self) -> Fenced:
        return self.book.fences()

    def merge_roster(self, roster: Roster, fenced: Fenced) -> None:
        self.news.learn(roster, fenced)

    # Its own clients

    def client_attached(self, client: Connection, peer: Peer, attach_no: int) -> None:
        """BRK-M1: an older connection of the same session counts no more."""
        known = AttachedClient(client, peer, attach_no)
        for older in self.clients_in_order():
            if older.origin == known.origin and older.connection != client:
                self._connection_over(older, gone=False)
        self.clients[client] = known

    def client_lost(self, client: Connection, *, gone: bool) -> None:
        known = self.clients.get(client)
        if known is not None:
            self._connection_over(known, gone=gone)

    def _connection_over(self, client: AttachedClient, *, gone: bool) -> None:
        del self.clients[client.connection]
        self.watching.lost(client)
        self.waves.watcher_done(client.connection)
        self.members.lost(client, gone=gone)

    # What happens

    def receive(self, sender: Connection, packet: Packet) -> None:
        client = self.clients.get(sender)
        handler = (self._of_links if client is None else self._of_clients).get(type(packet))
        if handler is None:
            raise PeerError(client.origin if client else f"link {sender}", f"must not send {type(packet).__name__}")
        if client is None and sender != self.tree.parent and sender not in self.tree.children:
            return  # Of a link that has ended.
        if client is None:
            check(self.tree.children.get(sender) or self.tree.parent_name or "", packet)
        handler(sender, packet)

    def timer(self, name: tuple[object, ...]) -> None:
        match name[1:]:
            case ("ask",):
                self.members.ask_again(anew=False)
            case ("stability",):
                self.stability.cooled()
            case ("absent",):
                self.authority.absence_checked()
            case ("slow",):
                self.budgets.look_at_members()
            case ("tell_absent",):
                self.absence.tell()
            case ("wave", int(update_id)):
                self.waves.patience_over(update_id)
            case _:
                raise InvariantError(f"no timer of the topics is called {name}")

    def turn_end(self) -> None:
        """Do, at the end of a turn, whatever became possible in it."""
        told: set[Topic] = set()
        while True:
            if self.orphans.waiting or self.orphans.followers:
                self.adoption.turn_end()
            if not self.dirty:
                break
            dirty, self.dirty = sorted(self.dirty), set()
            for topic in dirty:
                node = self.nodes.get(topic)
                if node is not None:
                    told.add(topic)
                    self._evaluate(node)
        self.news.write_down()
        self.absence.turn_end()
        self.copies.tell_reach()
        self.stability.turn_end()
        for topic in sorted(told | self.dirty):
            node = self.nodes.get(topic)
            if node is not None:
                self.copies.tell(node)
                self.budgets.look(node)
        self.budgets.turn_end()

    def _evaluate(self, node: TopicNode) -> None:
        """BRK-L6, BRK-M7, BRK-M11: whoever leaves goes, totals are reported or committed, members are called."""
        everything = node.recheck_all
        self.members.finish_leaving(node)
        if node.topic not in self.nodes:
            return
        self.ordering.evaluate(node)
        if everything:
            self.copies.enlist(node)
            if self.tree.is_root:
                self.authority.roll_call(node)
            else:
                self.members.report(node)
        if self.tree.is_root and not node.receivers and all(vote.vector is None for vote in node.votes.values()):
            self.vote_again(node)

    # Dispatch

    def _client_handlers(self) -> dict[type[Packet], Handler]:
        def with_client(act: Callable[[AttachedClient, Any], None]) -> Handler:
            return lambda sender, packet: act(self.clients[sender], packet)

        members = self.members
        return {
            c.Subscribe: with_client(members.subscribe),
            c.Resume: with_client(members.resume),
            c.Sealed: with_client(members.sealed),
            c.Unsubscribe: with_client(members.unsubscribe),
            c.Entries: self._published,
            c.StableReport: with_client(self.stability.reported),
            c.Watch: with_client(self.watching.watch),
            c.Unwatch: with_client(self.waves.unwatch),
        }

    def _published(self, sender: Connection, packet: c.Entries) -> None:
        node = self.nodes.get(packet.topic)
        if node is not None:
            if not node.flow_open:
                self.budgets.check(node, self.clients[sender])
            self.ordering.publish(node, self.clients[sender], packet)

    def _entries(self, sender: Connection, packet: c.Entries) -> None:
        node = self.nodes.get(packet.topic)
        if node is not None and self.channels.accepts(node, sender):
            self.channels.received(self.ordering.take(node, sender, packet, link=True))

    def _link_handlers(self) -> dict[type[Packet], Handler]:
        def on_channel(act: Callable[[TopicNode, Connection, Any], None], *, down_only: bool = False) -> Handler:
            def handle(sender: Connection, packet: Any) -> None:
                node = self.nodes.get(packet.topic)
                if node is not None and self.channels.accepts(node, sender) and not (
                    down_only and sender not in node.down
                ):  # fmt: skip
                    act(node, sender, packet)

            return handle

        def from_child(act: Callable[[Any], None]) -> Handler:
            return lambda sender, packet: act(packet) if sender in self.tree.children else None

        def from_parent(act: Callable[[Any], None]) -> Handler:
            return lambda sender, packet: act(packet) if sender == self.tree.parent else None

        channels, members = self.channels, self.members
        return {
            c.Entries: self._entries,
            t.OpenTopic: channels.child_opens,
            t.TopicBuffer: channels.parent_answers,
            t.Prepare: on_channel(self.ordering.prepare),
            t.SyncEnd: channels.sync_ended,
            t.TopicClose: channels.child_closes,
            t.TopicClosed: channels.closed_by_parent,
            t.Grounded: channels.child_grounded,
            t.TopicReset: channels.parent_resets,
            t.TotalAck: on_channel(self.ordering.acknowledged, down_only=True),
            t.MemberReport: on_channel(members.reported, down_only=True),
            t.AttachRequest: from_child(members.relay_request),
            t.AttachGranted: members.relay_answer,
            t.AttachDenied: members.relay_answer,
            t.MemberGone: from_child(members.relay_gone),
            t.RosterUpdate: from_parent(self.waves.begin),
            t.RosterAck: self.waves.acknowledged,
            t.RosterSync: lambda sender, packet: self.news.learn(packet.roster, packet.fenced, sender),
            t.Absent: from_parent(self.absence.told),
            t.StableVote: on_channel(self.stability.voted, down_only=True),
            t.BaseUpdate: on_channel(self.stability.base_told),
            t.Held: on_channel(self.copies.told),
            t.HeldAsk: on_channel(self.copies.asked),
            t.Reach: self.copies.reached,
            t.Keep: from_parent(channels.keep),
        }

    # For people and tests

    def totals(self) -> dict[str, int]:
        """What all topics hold together."""
        nodes = self.nodes.values()
        return {
            "topics": len(nodes), "log": sum(len(node.log) for node in nodes),
            "pending": sum(len(node.pend) for node in nodes), "held": sum(len(node.hold) for node in nodes),
            "bytes": self.weight,
        }  # fmt: skip

    def status(self, most: int) -> dict[str, Any]:
        """What the admin page shows of the `most` topics with the most publications under way."""
        busiest = heapq.nsmallest(most, self.nodes.items(), key=lambda item: (-_load(item[1]), item[0]))
        return {
            topic: {
                "log": len(node.log), "pending": len(node.pend), "held": len(node.hold),
                "members": sorted(node.members), "waiting": sorted(node.waiting),
                "roster": sorted(self.book.live(topic)), "children": len(node.down), "keeper": bool(node.keeper),
                "channel": "root" if self.tree.is_root else "live" if node.up_live else "syncing",
                "orphans": len(self.orphans.waiting.get(topic, ())), "flow_open": node.flow_open,
            }
            for topic, node in sorted(busiest)
        }  # fmt: skip

    def explain(self, message_id: str) -> dict[str, Any]:
        """Where a publication is at this broker."""
        return explain(self, self.orphans, message_id)

    def check_invariants(self) -> None:
        """BRK-I2, BRK-I4, BRK-I6; no entry leaves a log above the base. Looks only at what has changed."""
        for topic, node in self.nodes.items():
            node.check()
            for origin, member in node.members.items():
                if member.connection is not None and member.connection not in self.clients:
                    raise InvariantError(f"{origin} is a member of {topic} without a connection")


def _load(node: TopicNode) -> int:
    return len(node.log) + len(node.pend) + len(node.hold)

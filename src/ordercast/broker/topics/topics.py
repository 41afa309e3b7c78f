"""The topics half of a broker: channels, order, members, stability and safety of everything that is published.

Packets are handled one after the other; acknowledgements, reports, commits and votes follow from the state and are
sent when the turn ends, so that whatever became possible together leaves together.
"""

from __future__ import annotations

import heapq
from typing import Any

from ordercast.broker.archive.ports import SegmentFiles
from ordercast.broker.packet_checks import check
from ordercast.broker.place import BrokerLedger, BrokerPlace, SavedBroker
from ordercast.broker.ports import Ages, Fenced, Roster, TreePort
from ordercast.broker.topics.dispatch import client_handlers, link_handlers
from ordercast.broker.topics.explain import explain
from ordercast.broker.topics.parts import TopicsParts
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import Origin, Topic, plain_origin
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, Wires
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.filters import is_following
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.settings import BrokerSettings
from ordercast.pubsub.topic_packets import RosterSync


class Topics(TopicsParts):
    """The topics half. Implements `TopicsPort`."""

    constant = (*TopicsParts.constant, "_of_clients", "_of_links")

    def __init__(
        self, settings: BrokerSettings, wires: Wires, tree: TreePort, ledger: BrokerLedger,
        saved: SavedBroker | None = None, place: BrokerPlace | None = None, files: SegmentFiles | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, wires, tree, ledger, saved, place, files)
        self.last_parent: Connection | None = None
        self._of_clients = client_handlers(self)
        self._of_links = link_handlers(self)

    # The tree around this broker

    def started(self) -> None:
        """The process begins."""
        self.archive.start()
        if not self.tree.member:
            self.kept.distrust_all()

    def left_behind(self) -> None:
        self.kept.distrust_all()

    def attached(self) -> None:
        self.last_parent = self.tree.parent
        self.folding.placed()
        self.send_up(self.news.everything())
        if self.tree.parent is not None:
            self.archive.linked(self.tree.parent)
        self.copies.neighbours_changed()
        self.channels.open_all()
        self.leaving.repeat_departures()
        self._ask_again(anew=True)

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
        self.archive.linked(child)
        self.absence.child_added(child)
        self.copies.neighbours_changed()

    def child_lost(self, child: Connection) -> None:
        self.channels.child_lost(child)
        self.waves.child_lost(child)
        self.folding.child_lost(child)
        self.copies.lost(child)

    def term_adopted(self) -> None:
        for topic in sorted(self.nodes):
            self.nodes[topic].clear_reports()
            self.look_later(self.nodes[topic])
            self.vote_again(self.nodes[topic])

    def became_root(self) -> None:
        self.last_parent = None
        self.folding.placed()
        self.authority.clear()
        self.term_adopted()
        self.copies.neighbours_changed()
        self.channels.became_root()
        self.leaving.repeat_departures()
        self.may_decide()

    def may_decide(self) -> None:
        if self.tree.decides:
            self.authority.may_decide()
            self.folding.wanted()
            self._ask_again(anew=True)
            self.copies.neighbours_changed()
            for topic in sorted(self.nodes):
                self.vote_again(self.nodes[topic])

    def _ask_again(self, *, anew: bool) -> None:
        self.members.ask_again(anew=anew)
        self.leaving.repeat_departures()

    def answered(self, link: Connection, asked: int) -> None:
        self.portions.answered(link, asked)

    def handed_up(self) -> bool:
        kept = self.orphans.closing or self.orphans.waiting
        return not kept and all(node.up_live for node in self.nodes.values())

    def names(self) -> tuple[Topic, ...]:
        return tuple(sorted(topic for topic in self.nodes if not is_following(topic)))

    def has(self, topic: Topic) -> bool:
        return topic in self.nodes

    def roster(self) -> Roster:
        return self.book.roster()

    def fenced(self) -> Fenced:
        return self.book.fences()

    def closed(self) -> Closed:
        return self.book.closed.summary()

    def absent(self) -> Ages | None:
        return self.absence.known()

    def learn_absent(self, number: int, since: Ages) -> None:
        self.absence.learn(number, since)

    def merge_roster(self, roster: Roster, fenced: Fenced, closed: Closed | None = None) -> None:
        self.learn(RosterSync(roster, fenced, closed or {}), None)

    # Its own clients

    def client_attached(
        self, client: Connection, peer: Peer, attach_no: int, ticket: str = "", seal: bytes = b""
    ) -> None:
        """BRK-M1: an older connection of the same session counts no more."""
        known = AttachedClient(client, peer, attach_no, ticket)
        if ticket and not known.wants_ticket:
            self.tickets.believe(known, seal)
        for older in self.clients_named(known.name):
            if plain_origin(older.origin) == plain_origin(known.origin) and older.connection != client:
                self._connection_over(older, gone=False)
        self.attach(known)

    def client_lost(self, client: Connection, *, gone: bool) -> None:
        known = self.clients.get(client)
        if known is not None:
            self._connection_over(known, gone=gone)

    def _connection_over(self, client: AttachedClient, *, gone: bool) -> None:
        self.detach(client)
        self.watching.lost(client)
        self.cuts.lost(client)
        self.looking.lost(client)
        self.leaving.lost(client, gone=gone)
        self.endings.lost(client)

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
                self._ask_again(anew=False)
            case ("stability",):
                self.stability.cooled()
            case ("absent",):
                self.authority.absence_checked()
            case ("fold",):
                self.folding.due()
            case ("slow",):
                self.budgets.look_at_members()
            case ("portion",):
                self.portions.rested()
            case ("tell_absent",):
                self.absence.tell()
            case ("archive",):
                self.archive.tick()
                self.repair.look()
            case ("serve",) | ("adopt",) | ("watch",):
                pass  # The end of the turn serves the next reader, adopts the next orphans, answers the next filters.
            case ("repair",):
                self.repair.timer()
            case _:
                raise InvariantError(f"no timer of the topics is called {name}")

    def turn_end(self) -> None:
        """Do, at the end of a turn, whatever became possible in it."""
        self.endings.turn_end()
        told: set[Topic] = set()
        self.adoption.begin_turn()
        while True:
            self.portions.take()
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
        self.watching.turn_end()
        self.looking.turn_end()
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
        self.serving.turn_end()
        self.folding.turn_end()

    def _evaluate(self, node: TopicNode) -> None:
        """BRK-L6, BRK-M7, BRK-M11: whoever leaves goes, totals are reported or committed, members are called."""
        everything = node.recheck_all
        self.leaving.finish_leaving(node)
        if node.topic not in self.nodes:
            return
        self.ordering.evaluate(node)
        if everything:
            self.copies.enlist(node)
            if self.tree.is_root:
                self.authority.roll_call(node)
            else:
                self.relaying.report(node)
        if self.tree.is_root and (self._nobody_receives(node) or self.gaps.are_in(node)):
            self.vote_again(node)

    def _nobody_receives(self, node: TopicNode) -> bool:
        return not node.receivers and all(vote.vector is None for vote in node.votes.values())

    # For people and tests

    def totals(self) -> dict[str, int]:
        """Sums over all topics."""
        nodes = [self.nodes[topic] for topic in self.weights]  # Others hold nothing.
        return {
            "topics": sum(not is_following(topic) for topic in self.nodes), "log": sum(len(node.log) for node in nodes),
            "pending": sum(len(node.pending.entries) for node in nodes), "held": sum(len(node.hold) for node in nodes),
            "bytes": self.weight,
        }  # fmt: skip

    def status(self, most: int) -> dict[str, Any]:
        """Rows of the admin page for the `most` topics with the most publications under way."""
        busiest = heapq.nsmallest(most, self.weights, key=lambda topic: (-_load(self.nodes[topic]), topic))
        if len(busiest) < most:
            idle = (topic for topic in self.nodes if topic not in self.weights and not is_following(topic))
            busiest += heapq.nsmallest(most - len(busiest), idle)
        return {
            topic: {
                "log": len(node.log), "pending": len(node.pending.entries), "held": len(node.hold),
                "members": sorted(node.members), "waiting": sorted(node.waiting),
                "away": sorted(origin for origin, member in node.members.items() if member.away),
                "roster": sorted(self.book.live(topic)), "children": len(node.down), "keeper": bool(node.keeper),
                "channel": "root" if self.tree.is_root else "live" if node.up_live else "syncing",
                "orphans": len(self.orphans.waiting.get(topic, ())), "flow_open": node.flow_open,
            }
            for topic, node in [(topic, self.nodes[topic]) for topic in sorted(busiest)]
        }  # fmt: skip

    def keep(self, rule: KeepRule) -> str:
        """ARC-1: an operator's rule; why it cannot be, or nothing."""
        if self.settings.order_scope != "session":
            return "keep: needs order_scope = 'session'; with 'key' there is no order that all copies could keep"
        self.archive.order(rule)
        return ""

    def kept_status(self) -> list[dict[str, Any]]:
        """Rows of the admin page for the topics that this broker keeps."""
        return [archive.status() for topic in self.kept.topics() if (archive := self.kept.find(topic)) is not None]

    def blockers(self, topic: str) -> list[str]:
        """Members that the oldest pending total of the topic waits for, as far as this broker knows."""
        node = self.nodes.get(Topic(topic))
        if node is None or not node.pending.entries:
            return []
        oldest = next(iter(node.pending.entries.values()))
        told = self.explain(oldest.id)
        return [*told.get("missing", ()), *told.get("silent_children", ())]

    def receivers(self, topic: Topic) -> frozenset[Origin]:
        """Members of the topic that receive, or may: of those elsewhere a broker knows no more than that they are."""
        node = self.nodes.get(topic)
        here = node.members if node is not None else {}
        return frozenset(who for who in self.book.live(topic) if who not in here or here[who].receives)

    def anybody_receives(self, topic: Topic) -> bool:
        """Whether somebody may receive the topic, or follows a filter that takes it in."""
        return bool(self.receivers(topic)) or bool(self.book.followers(topic))

    def explain(self, message_id: str) -> dict[str, Any]:
        """The place of a publication at this broker, in words."""
        return explain(self, self.orphans, message_id)

    def check_invariants(self) -> None:
        """BRK-I2, BRK-I4, BRK-I6; no entry leaves a log above the base. Looks only at what has changed."""
        for topic, node in self.nodes.items():
            node.check()
            for origin, member in node.members.items():
                if member.connection is not None and member.connection not in self.clients:
                    raise InvariantError(f"{origin} is a member of {topic} without a connection")


def _load(node: TopicNode) -> int:
    return len(node.log) + len(node.pending.entries) + len(node.hold)

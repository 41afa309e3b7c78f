"""One node of LoCaMu: its parts, and what each event means to them.

Spec: docs/protocols/locamu.md. To read on: `neighbourhood` (where messages go), `streams`, `links` (headers),
`ordering` (what is processed when), `store`, `rounds`, `held` and `resend` (repair), then `membership`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Self

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.core.state import State
from ordercast.overlay.extended import Routes, TreePlace
from ordercast.protocols.locamu.canonical_state import canonical
from ordercast.protocols.locamu.forwarding import Forwarding
from ordercast.protocols.locamu.held import NEED, HeldCopies
from ordercast.protocols.locamu.links import LinkEnds
from ordercast.protocols.locamu.membership.announcements import Announcements
from ordercast.protocols.locamu.membership.entrance import KNOCK, LEAVING, OUTSIDE, Entrance
from ordercast.protocols.locamu.membership.groups import Groups
from ordercast.protocols.locamu.membership.notices import Depart, Farewell, Knock, Welcome, only
from ordercast.protocols.locamu.membership.owner import Owner
from ordercast.protocols.locamu.membership.tables import Tables
from ordercast.protocols.locamu.membership.views import ViewsOfTree
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.ordering import CausalOrdering
from ordercast.protocols.locamu.packets import Ack, Alias, Data, read_names
from ordercast.protocols.locamu.parts import acquaint
from ordercast.protocols.locamu.processed import Processed
from ordercast.protocols.locamu.resend import PUSH, Resend
from ordercast.protocols.locamu.rounds import TICK, Rounds
from ordercast.protocols.locamu.rules import CORRECTED, LocamuOptions, Rules, radii
from ordercast.protocols.locamu.sizes import Tally
from ordercast.protocols.locamu.store import MessageStore
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.waiting import WaitingCopies
from ordercast.protocols.shared.fixed_group import refuse_newcomer

_LEAST_COLUMN = 2
"""A forwarder and a prefix."""


class Locamu(Machine):
    """One node. Its parts know each other by the names that they have here."""

    constant: ClassVar[tuple[str, ...]] = ("place", "options", "rules", "delta")
    durable: ClassVar[tuple[str, ...]] = (
        "streams", "processed", "waiting", "store", "links", "rounds", "held", "tables", "owner", "announcements",
        "groups", "views", "entrance",
    )  # fmt: skip
    parts: ClassVar[tuple[str, ...]] = (*durable, "here", "forwarding", "resend", "ordering")

    rules: Rules = CORRECTED

    def __init__(self, place: Place, options: LocamuOptions) -> None:
        if not isinstance(place, TreePlace) or place.routes is None:
            raise UsageError(f"{place.node}: locamu runs on a tree, and this runtime does not say which")
        refuse_newcomer("locamu", place)
        self.place = place
        self.options = options
        self.delta = options.delta and self.rules.whole
        routes = place.routes
        self.tables = Tables(routes)
        self.owner = Owner()
        self.announcements = Announcements()
        self.groups = Groups()
        self.views = ViewsOfTree()
        self.entrance = Entrance(place, _nanoseconds(options.ack_ms))
        # Who does not know its own place yet has one somewhere.
        self._stand_on(routes if place.parent is None else routes.with_leaf(place.node, routes.nodes[0]))

    def _stand_on(self, routes: Routes) -> None:
        """Begin on a tree, with nothing of what was."""
        options, rules = self.options, self.rules
        self.here = Neighbourhood(self.place.node, routes, radii(options.f, options.profile), rules)
        self.streams = Streams()
        self.processed = Processed()
        self.processed.watch(*self.here.numbering())
        self.waiting = WaitingCopies()
        self.store = MessageStore(rules)
        self.links = LinkEnds(delta=self.delta)
        self.rounds = Rounds(rules, _nanoseconds(options.ack_ms))
        self.held = HeldCopies(_nanoseconds(options.need_ms))
        self.forwarding = Forwarding(rules, tally=options.tally)
        self.resend = Resend(rules, _nanoseconds(options.push_ms))
        self.ordering = CausalOrdering(rules, check=options.check, newcomer=self.place.parent is not None)
        self._acquaint()

    def _acquaint(self) -> None:
        acquaint(self._parts())

    def copy(self) -> Self:
        """An independent copy, whose parts know each other and nobody else."""
        clone = super().copy()
        clone._acquaint()
        return clone

    def frozen(self) -> Hashable:
        """The state without this node's names for streams, which make no difference unless others know them."""
        if self.delta:
            return super().frozen()
        return canonical(self._parts(), self.here, self.streams, self.store, self.held, self.rounds)

    def _parts(self) -> dict[str, State]:
        return {name: getattr(self, name) for name in self.parts}

    def restore(self, saved: dict[str, Any]) -> None:
        self.tables.restore(saved["tables"])
        if saved["entrance"]["status"] != OUTSIDE:
            self._stand_on(self.tables.around())
        super().restore(saved)

    @property
    def tally(self) -> Tally | None:
        """The cost of this node's headers by the source's model."""
        return self.forwarding.tally

    # What the application asks for

    def on_publish(self, message: Message, out: Outbox) -> None:
        if self.entrance.may_publish(message):
            self._publish(message, out)

    def _publish(self, message: Message, out: Outbox) -> None:
        """LCM-M1, LCM-P5: a publication is complete at once."""
        self.ordering.publish(message, out)
        out.complete(message.id)
        self._finish(out)

    def on_subscribe(self, topic: Topic, out: Outbox) -> None:
        self.entrance.wish(topic, joins=True)
        self._finish(out)

    def on_unsubscribe(self, topic: Topic, out: Outbox) -> None:
        self.entrance.wish(topic, joins=False)
        self._finish(out)

    def on_join(self, out: Outbox) -> None:
        self.entrance.join(out)

    def on_leave(self, out: Outbox) -> None:
        if self.entrance.leave():
            for topic in self.groups.topics():
                self.groups.want(topic, joins=False)
                self._finish(out)
            self._finish(out)

    # What arrives

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Data):
            if self.entrance.hears(peer):
                self._on_data(self.here.linked_rank(peer), packet, out)
        elif isinstance(packet, Ack):
            if self.entrance.hears(peer):
                self._on_ack(self.here.linked_rank(peer), packet, out)
        elif isinstance(packet, Alias):
            if self.entrance.hears(peer):
                self._on_alias(self.here.linked_rank(peer), packet, out)
        elif isinstance(packet, Knock | Welcome | Farewell):
            self._on_handshake(peer, packet, out)
        else:
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def _on_data(self, peer: int, packet: Data, out: Outbox) -> None:
        session = packet.session
        if not session:
            self.ordering.on_whole(peer, packet, out)
            self._finish(out)
            return
        take_in = self.ordering.on_next if session > 0 else self.ordering.on_next_of_burst
        link = self.links.incoming_from(peer, session)
        if link is None:
            return
        if packet.number == link.next and not link.held:
            take_in(peer, link, packet, out)
            self._finish(out)
            return
        for readable in self.links.in_turn(peer, link, packet):
            take_in(peer, link, readable, out)
            self._finish(out)
        if link.held:
            self.held.look_soon(out)

    def _on_alias(self, peer: int, packet: Alias, out: Outbox) -> None:
        try:
            messages = read_names(packet.names)
        except ValueError:
            raise PeerError(self.here.routes.nodes[peer], "sent names that make no sense") from None
        self.ordering.on_names(messages, out)
        self._finish(out)

    def _on_ack(self, peer: int, ack: Ack, out: Outbox) -> None:
        """LCM-R2, LCM-D1, LCM-D2: take in what a peer has, give it what it lacks, and answer."""
        forwarders = {column[0] for column in ack.columns if len(column) >= _LEAST_COLUMN}
        if len(forwarders) < len(ack.columns):
            raise PeerError(self.here.routes.nodes[peer], "sent an acknowledgement that makes no sense")
        if ack.reset:
            if ack.ask:  # It has recovered.
                self.links.close(peer)
            else:
                self.links.give_up(peer)
            self.store.forget_sent(peer)
        columns = [column for column in ack.columns if column[0] in self.here.distance]
        if self.waiting.acknowledge(peer, columns) and self.store.entries:
            self.rounds.stir(out)
        if ack.floors:
            self.rounds.adopt(peer, ack)
        self.resend.serve(peer, ack, out)
        if ack.ask:
            self.rounds.acknowledge(peer, out, need=self.held.needs(peer), reply=ack.ask)

    def _on_handshake(self, peer: NodeId, packet: Knock | Welcome | Farewell, out: Outbox) -> None:
        if isinstance(packet, Knock):
            self.entrance.on_knock(peer, packet, out)
            self._finish(out)
        elif not self.entrance.awaits(packet, peer):
            return
        elif isinstance(packet, Welcome):
            self._begin(packet, out)
        else:
            self.entrance.end(out)
            for timer in (TICK, NEED, PUSH):
                out.cancel_timer(timer)

    def _begin(self, welcome: Welcome, out: Outbox) -> None:
        """LCM-V4, LCM-V5: part of the tree from now on; what was sent here meanwhile is asked for."""
        if not self.entrance.makes_sense(welcome):
            raise PeerError(self.entrance.parent(), "sent a welcome that makes no sense")
        self.tables.take_over(welcome)
        self._stand_on(self.tables.around())
        self.views.inherit(welcome.past)
        self.entrance.begin(out)
        self.views.meet_strangers()
        self._ask_around(out)
        wishes, postponed, hurried = self.entrance.waited()
        for topic, joins in wishes:
            self.groups.want(topic, joins=joins)
            self._finish(out)
        for message in postponed:
            self._publish(message, out)
        if hurried:
            self.on_leave(out)

    # Other events

    def on_recover(self, out: Outbox) -> None:
        if self.entrance.is_there():
            self._ask_around(out)
        if self.entrance.knocking:
            self.entrance.knock(out)

    def _ask_around(self, out: Outbox) -> None:
        """LCM-R6: say what is here and ask for what is not."""
        self.store.forget_all_sent()
        for peer in self.here.linked:
            near = self.here.distance[peer] == 1
            self.rounds.acknowledge(peer, out, need=near, ask=self.rounds.round, reset=True)
        self.rounds.stir(out)
        if self.held.copies:
            self.held.look_soon(out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        if name == KNOCK:
            self.entrance.knock(out)
        elif not self.entrance.is_there():
            return
        elif name == TICK:
            self.rounds.tick(out)
            if self.groups.outdated:
                self.groups.discard()
            self._finish(out)
        elif name == NEED:
            self.held.ask(out)
        elif name == PUSH:
            self.resend.push_on(out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        if not self._is_linked(peer):
            self.views.suspect(peer)
            return
        rank = self.here.linked_rank(peer)
        self.store.doubt(rank)
        self._detector_changed(self.here.suspect([rank]), out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.views.trust(peer)
        if self._is_linked(peer):
            rank = self.here.linked_rank(peer)
            self.links.close(rank)
            self.rounds.acknowledge(rank, out, need=bool(self.held.copies), ask=self.rounds.round)
            self._detector_changed(self.here.trust(rank), out)

    def _is_linked(self, peer: NodeId) -> bool:
        return self.entrance.is_there() and self.here.is_linked(peer)

    def _detector_changed(self, active: list[int], out: Outbox) -> None:
        """LCM-R3: nodes that have become active get what they lack, and for suspected ones others take over."""
        for peer in dict.fromkeys([*active, *self.resend.takers()]):
            self.resend.attend_to(peer, out)
        self.rounds.stir(out)
        if self.held.copies:
            self.held.look_afresh()
            self.held.look_soon(out)

    def _finish(self, out: Outbox) -> None:
        """At the end of an event: publish what is to be told, note that there is news, and go if it is time."""
        if self.views.owed or self.announcements.unsent:
            self._tell(out)
        if self.ordering.news:
            self.ordering.note_news(out)
        if self.entrance.status == LEAVING and self.entrance.may_go():
            self.announcements.tell(only(self.here.routes.nodes[0]), Depart())
            self._tell(out)
            self.ordering.note_news(out)
            self.entrance.depart(out)

    def _tell(self, out: Outbox) -> None:
        self.views.pay()
        while self.announcements.unsent:
            message, content = self.announcements.next()
            self.views.announce(content)
            self.ordering.publish(message, out)


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)

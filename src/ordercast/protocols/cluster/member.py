"""One process as a member of one cluster: gossip beneath, order above, an entry if it makes updates. CLU-2."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from ordercast.core.chance import mix, salt
from ordercast.core.errors import PeerError
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer
from ordercast.core.state import State
from ordercast.protocols.cluster.coordinating import CATCH_UP, LEASE, Coordinating
from ordercast.protocols.cluster.delivery import AGAIN, RECOVER, TERMINATE, Delivery
from ordercast.protocols.cluster.directory import Directory
from ordercast.protocols.cluster.events import ABSENT, ENTRY_BITS, ENTRY_MASK, MAX_SEQ, SEQ_BITS, Event, can_be
from ordercast.protocols.cluster.joining import JOIN, Joining
from ordercast.protocols.cluster.packets import Recover, Recovered, Snapshot, Update
from ordercast.protocols.cluster.ports import Ports
from ordercast.protocols.cluster.resyncing import RESYNC, Resyncing
from ordercast.protocols.cluster.total import TOTAL
from ordercast.protocols.gossip.members import GossipView
from ordercast.protocols.gossip.rumours import Rumours

ROUND = "round"


class ClusterMember(State):
    """Composed of parts, each of which can be tested alone; this one passes things from one to the next."""

    constant: ClassVar[tuple[str, ...]] = ("ports", "wires", "options", "lingering")
    durable: ClassVar[tuple[str, ...]] = ("delivery", "coordinating")

    def __init__(self, ports: Ports) -> None:
        place, options = ports.place, ports.options
        self.ports = ports
        self.wires = ports.wires
        self.options = ports.options
        self.rumours: Rumours[Event] = Rumours(options.rumour_limits(), salt(place.salt, "rumours", ports.cluster))
        self.members = GossipView(
            place.me.address, place.me.life, place.contacts, options.view_limits(),
            salt(place.salt, "members", ports.cluster),
        )  # fmt: skip
        self.directory = Directory()
        self.delivery = Delivery(ports, self.members, self.directory)
        self.coordinating = Coordinating(ports, self.delivery, self.rumours)
        self.joining = Joining(ports, self.delivery, self.coordinating)
        self.resyncing = Resyncing(ports, self.delivery)
        self.left = False
        self.round_due_ns = 0
        self.quiet_rounds = 0
        self.idle = True
        """Nothing has happened for so long that a run may end before the next round."""
        self.largest_payload = 0
        self.lingering = (options.terminate_ns + options.recover_ns) // options.round_ns + 2
        """Rounds of silence after which no loss can be noticed any more."""

    def start(self, *, keeps_order: bool) -> None:
        """CLU-2: begin; whoever was not there from the start asks where the cluster stands."""
        if not keeps_order:
            self._end_order()
        elif not self.ports.place.genesis:
            self.joining.begin()
        self._plan_round(mix(self.ports.place.salt, 1) % self.options.round_ns)

    def recover(self) -> None:
        """With the clock of its last life it knows where the cluster stood; what it missed since is asked for."""
        self.joining.note_membership()
        if not self.delivery.keeps_order:
            self._note_order("no")
        self._plan_round(mix(self.ports.place.salt, 1) % self.options.round_ns)
        self.coordinating.go_on()

    def keep_order(self, *, ordered: bool) -> None:
        """CLU-5.2, CLU-5.3: from now on in order, or as updates come."""
        if ordered and not self.delivery.keeps_order:
            self._note_order("yes")
            self.delivery.begin_order()
            self.joining.begin()
        elif not ordered and self.delivery.keeps_order:
            self.coordinating.give_back("it observes without order")
            self.joining.give_up()
            self._end_order()

    def _end_order(self) -> None:
        """CLU-5.3. A trace says so before the first update that comes out of order."""
        self.joining.note_membership()
        self._note_order("no")
        self.delivery.end_order()

    def _note_order(self, ordered: str) -> None:
        self.wires.note("subscribe", {"topic": self.ports.cluster, "ordered": ordered})

    def leave(self) -> None:
        """CLU-5.5: give the entry back, tell some others, and be silent."""
        self.left = True
        self.coordinating.give_back("it leaves")
        self.joining.give_up()
        self.resyncing.give_up()
        self.members.gone[self.ports.address] = self.members.incarnation
        self._tell()
        self.ports.cancel_timer(ROUND, 0)

    # Rounds

    def _round(self) -> None:
        """CLU-2.2: everything is a round older, and what is young enough is told to some others."""
        self.rumours.next_round()
        self.members.next_round()
        self.delivery.look_at_digests()
        self._tell()
        self.quiet_rounds += 1
        self._plan_round(self.options.round_ns)

    def _tell(self) -> None:
        ports, members = self.ports, self.members
        events, ages = self._chosen()
        told = () if self.left else members.told()
        packet = Update(ports.cluster, events, ages, told, members.told_gone(), self._digest())
        ports.wires.cast_all(members.draw(ports.options.fanout), packet)

    def _chosen(self) -> tuple[tuple[Event, ...], bytes]:
        """As many as fit: a packet with long updates carries fewer of them."""
        events, ages = self.rumours.chosen()
        most = self.options.packet_bytes
        if events and len(events) * (self.largest_payload + self.delivery.bytes_of(events[0])) > most:
            size = 0
            for i, event in enumerate(events):
                size += self.delivery.bytes_of(event)
                if i and size > most:
                    return events[:i], ages[:i]
        return events, ages

    def _digest(self) -> tuple[int, ...]:
        """CLU-4.5: how far this process is, every few rounds."""
        every, delivery = self.options.digest_every, self.delivery
        if not every or self.rumours.round % every or not (delivery.keeps_order and delivery.knows_start):
            return ()
        return tuple(delivery.ordering.clock)

    def _plan_round(self, delay_ns: int) -> None:
        # As long as something goes round, or its loss could still be noticed, a run has not come to rest.
        self.idle = not self.rumours.births and self.quiet_rounds > self.lingering
        self.round_due_ns = self.wires.now_ns + delay_ns
        self.ports.set_timer(ROUND, 0, delay_ns, background=self.idle)

    def wake(self) -> None:
        """Something goes round again: the next round counts."""
        self.quiet_rounds = 0
        if self.idle and not self.left:
            self._plan_round(max(0, self.round_due_ns - self.wires.now_ns))

    # What comes

    def receive(self, peer: Peer, packet: Packet) -> None:
        """A packet that another member cast."""
        match packet:
            case Update():
                self.hear(packet, peer.name)
            case Recover(_, ranges):
                self.delivery.answer(peer.address, ranges, peer.name)
            case Recovered(_, events):
                self._hear_recovered(events, peer.name)
            case _:
                self.coordinating.hear_manager(peer.address, packet)

    def hear(self, packet: Update, sender: str) -> None:
        """CLU-2.3: members and updates of a packet; what is new goes on, and is delivered when its past is."""
        events, ages = packet.events, packet.ages
        if len(events) > self.options.events or len(events) != len(ages):
            raise PeerError(sender, f"tells {len(events)} updates with {len(ages)} ages")
        self.members.hear(packet.members, sender)
        if packet.gone:
            self.members.hear_gone(packet.gone, sender)
        if events:
            new = self.rumours.hear(events, ages)
            if new:
                self._take(new, sender)
        if packet.digest:
            self.delivery.hear_digest(packet.digest, sender)

    def _take(self, new: list[Event], sender: str) -> None:
        self.wake()
        cluster, entries, makers = self.ports.cluster, self.options.entries, self.directory.makers
        refused, longest = [], self.largest_payload
        for event in new:
            key, vector, message = event.key, event.vector, event.message
            entry, value = key & ENTRY_MASK, key >> ENTRY_BITS
            # What `_is_sound` says, without a call: nearly every update is a later one of a maker that is known.
            if not (
                makers.get(value >> SEQ_BITS << ENTRY_BITS | entry) == event.creator
                and len(vector) == entries
                and vector[entry] == value
                and event.prev == ABSENT
                and value & MAX_SEQ > 1
                and message.topic == cluster
                and len(message.payload) <= longest
            ) and not self._is_sound(event):
                refused.append(event)
        if refused:
            new = [event for event in new if event not in refused]
        self.delivery.receive(new, self.rumours.births)
        for event in refused:
            self.rumours.disown(event.key)
        if self.coordinating.catching_up:
            self.coordinating.go_on()
        self._blame(sender, len(refused))

    def _is_sound(self, event: Event) -> bool:
        """CLU-8: what cannot be is not believed, and of two makers of an epoch only one."""
        if not can_be(event, self.ports.cluster, self.options.entries):
            return False
        if not self.directory.agrees(event):
            self.wires.count("updates_of_two_makers")
            return False
        size = len(event.message.payload)
        if size > self.largest_payload:
            self.largest_payload = size
        return True

    def _blame(self, sender: str, refused: int) -> None:
        """CLU-8: after everything else in the packet was taken: the others' updates are not to blame."""
        if refused:
            raise PeerError(sender, f"passes on {refused} updates that cannot be")

    def _hear_recovered(self, events: tuple[Event, ...], sender: str) -> None:
        """CLU-3.4: not passed on: gossip is over for it."""
        self.wake()
        refused = 0
        for event in events:
            if self._is_sound(event):
                self.rumours.remember(event.key)
                self.delivery.recovered(event, self.rumours.round)
            else:
                refused += 1
        self.coordinating.go_on()
        self._blame(sender, refused)

    def on_timer(self, kind: str, of: Hashable) -> None:
        if kind == ROUND:
            self._round()
        elif kind in (TERMINATE, RECOVER, AGAIN):
            assert isinstance(of, int)
            self.delivery.on_timer(kind, of)
        elif kind in (LEASE, CATCH_UP):
            self.coordinating.on_timer(kind)
        elif kind == TOTAL:
            self.delivery.release_total()
        elif kind == JOIN:
            self.joining.time_out()
        elif kind == RESYNC:
            self.resyncing.time_out()
        if self.coordinating.catching_up:
            self.coordinating.go_on()

    def hear_snapshot(self, connection: Connection, snapshot: Snapshot, sender: str) -> None:
        """CLU-5.1, CLU-5.6: the answer of a member that was asked where it stands."""
        self.joining.check(snapshot, sender)
        if connection in self.resyncing.asked:
            self.resyncing.hear(connection, snapshot)
            self.coordinating.go_on()
        else:
            self.joining.hear(connection, snapshot, sender)

    def closed(self, connection: Connection) -> None:
        self.joining.closed(connection)
        self.resyncing.closed(connection)

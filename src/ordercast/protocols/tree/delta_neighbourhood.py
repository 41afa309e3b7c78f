"""Delta-Neighbourhood: FIFO multicast on a tree, one message of each publisher in flight, acknowledged end to end.

The baseline that waits where LoCaMu pipelines. Spec: docs/protocols/delta-neighbourhood.md (DNB-N1 to DNB-N7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Annotated, Any, ClassVar

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.tree.delta_neighbourhood_state import (
    SKIPPED,
    Data,
    Done,
    Entries,
    Entry,
    Met,
    Progress,
    extended_list,
)
from ordercast.protocols.tree.sizes import HeaderTally, entry_bytes
from ordercast.protocols.tree.tree_node import NOBODY, Ms, refuse_change, routes_of

NAME = "delta-neighbourhood"
RESEND = "resend"
PATIENCE = 50
"""After so many periods without any news a node goes on sending, but no longer keeps a run from its rest."""


class DeltaNeighbourhoodOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of Delta-Neighbourhood."""

    f: Annotated[int, msgspec.Meta(ge=0, le=8)] = 1
    """Nodes that may be skipped among every 2f + 1 on a way."""
    waits: bool = False
    """Whether a message is complete only once members that were skipped have it, too (DNB-N7). Publishers then stand
    still while a member is down, and in return nobody misses anything."""
    retransmit_ms: Ms = 200.0
    """How often what is not acknowledged is sent again."""
    tally: bool = False
    """Whether a node counts what its headers would cost by the source's model (attribute `tally` of the machine)."""


class DeltaNeighbourhood(Machine):
    """One node."""

    constant: ClassVar[tuple[str, ...]] = (
        "routes", "me", "f", "window", "waits", "resend_ns", "distance", "way", "linked", "ways",
    )  # fmt: skip
    durable: ClassVar[tuple[str, ...]] = ("value", "met", "progress", "queue", "current")

    def __init__(self, place: Place, options: DeltaNeighbourhoodOptions) -> None:
        self.routes = routes_of(place, NAME)
        self.me = self.routes.rank[place.node]
        self.f = options.f
        self.window = 2 * options.f + 1
        self.waits = options.waits
        self.resend_ns = round(options.retransmit_ms * 1_000_000)
        ball = self.routes.ball(self.me, self.window)
        self.distance = {node: distance for node, (distance, _) in ball.items()}
        self.way = {node: way for node, (_, way) in ball.items()}
        nodes, reach = self.routes.nodes, options.f + 1
        self.linked = {nodes[node]: node for node, distance in self.distance.items() if 0 < distance <= reach}
        self.ways: dict[tuple[int, Topic], tuple[int, ...]] = {}
        self.value = 0
        """How many messages this node has met; each gets the next value."""
        self.met = {node: Met() for node in self.distance}
        self.progress: dict[int, Progress] = {}
        """By the value that this node gave the message."""
        self.queue: deque[Message] = deque()
        self.current = 0
        """The own message in flight, by its value; 0: none."""
        self.suspected: set[int] = set()
        self.armed = False
        self.quiet_periods = 0
        self.tally: HeaderTally | None = HeaderTally() if options.tally else None

    # Publishing

    def on_publish(self, message: Message, out: Outbox) -> None:
        """DNB-N1: one at a time."""
        if message.dst:
            raise UsageError(f"{message.id}: {NAME} multicasts to groups, not to destinations of a message's own")
        self.routes.check_topic(message.topic)
        self.queue.append(message)
        self._publish_next(out)

    def _publish_next(self, out: Outbox) -> None:
        while self.queue and not self.current:
            self.current = self.value + 1
            self._take_over(self.queue.popleft(), (), NOBODY, 0, out)

    # Receiving

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        rank = self._rank(peer)
        if isinstance(packet, Data):
            self._on_data(rank, packet, out)
        elif isinstance(packet, Done):
            self._on_done(rank, packet, out)
        else:
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def _on_data(self, peer: int, packet: Data, out: Outbox) -> None:
        """DNB-N2, DNB-N4: a message met for the first time, or another copy of one."""
        self._check(peer, packet)
        entries = packet.entries
        asked = entries[-self.distance[peer]][1]
        known = self._is_known(entries)
        self._meet(entries)
        if not known:
            self._take_over(packet.message, entries, peer, asked, out)
            return
        progress = self._progress_of(entries)
        if progress is None:
            out.send(self.routes.nodes[peer], Done(asked, self._low()))
            return
        progress.askers[peer] = asked
        if progress.merge(entries) and progress.blocked:
            self._send_on(progress, out)

    def _check(self, peer: int, packet: Data) -> None:
        """A list that says who is where on the way, the sender where it is."""
        entries, message, distance = packet.entries, packet.message, self.distance
        hop, left = distance[peer], len(entries)
        sound = hop <= left <= self.window and bool(entries[-hop]) and entries[-hop][0] == peer
        for entry in entries:
            if entry and (len(entry) != 3 or distance.get(entry[0]) != left or left < hop):
                sound = False
            left -= 1
        possible = not message.dst and self.routes.knows(message.topic) and NodeId(message.origin) in self.routes.rank
        if not (sound and possible):
            raise PeerError(self.routes.nodes[peer], f"sent {message.id} with a list that makes no sense")

    def _is_known(self, entries: Entries) -> bool:
        """DNB-N4: whether this node has met the message under any of its values."""
        for node, value, _ in filter(None, entries):
            met = self.met[node]
            if value < met.low or value in met.values:
                return True
        return False

    def _progress_of(self, entries: Entries) -> Progress | None:
        """The message in progress that one of the values belongs to; None: it is complete here."""
        pairs = {entry[:2] for entry in entries if entry}
        found = (one for one in self.progress.values() if any(entry[:2] in pairs for entry in one.entries if entry))
        return next(found, None)

    def _meet(self, entries: Entries) -> None:
        """DNB-N4, DNB-N6: remember the values, and what the nodes say is over."""
        for node, value, low in filter(None, entries):
            self.met[node].meet(value, low)

    def _take_over(self, message: Message, entries: Entries, came: int, asked: int, out: Outbox) -> None:
        """DNB-N2: give the message a value, deliver it, send it on."""
        if self.quiet_periods:
            self._stir(out)
        self.value += 1
        if self.routes.is_member(self.me, message.topic):
            out.deliver(message)
        direction = NOBODY if came == NOBODY else self.way[came]
        if came != NOBODY and not self.suspected and not self._ways(direction, message.topic):
            out.send(self.routes.nodes[came], Done(asked, self._low()))  # DNB-N5: there is nobody behind this node.
            return
        progress = self.progress[self.value] = Progress(message, self.value, direction, entries)
        if came != NOBODY:
            progress.askers[came] = asked
        self._send_on(progress, out)

    # Sending

    def _send_on(self, progress: Progress, out: Outbox) -> None:
        """DNB-N2, DNB-N3: to the first node in every direction that is not suspected, as far as that is safe."""
        targets, progress.blocked = self._targets(progress)
        fresh = sorted(targets - progress.awaited)
        progress.awaited = targets
        if fresh:
            self._send(progress, fresh, out)
            progress.due = False
        if not targets and not progress.blocked:
            self._complete(progress, out)

    def _targets(self, progress: Progress) -> tuple[set[int], bool]:
        """DNB-N3: whom to send to, and whether some member is out of reach."""
        if self.suspected:
            return self._targets_beyond_suspects(progress)
        targets = set(self._ways(progress.came, progress.message.topic))
        targets -= progress.done
        if targets and not self._is_safe(progress, 1):
            return set(), True
        return targets, False

    def _ways(self, came: int, topic: Topic) -> tuple[int, ...]:
        """The neighbours that lead to members, but for the one in whose direction the publisher is."""
        ways = self.ways.get((came, topic))
        if ways is None:
            near = self.routes.near[self.me]
            ways = tuple(node for node in near if node != came and self.routes.leads(self.me, node, topic))
            self.ways[came, topic] = ways
        return ways

    def _targets_beyond_suspects(self, progress: Progress) -> tuple[set[int], bool]:
        topic, blocked = progress.message.topic, False
        targets: set[int] = set()
        rim = [(self.me, progress.came)]
        for hop in range(1, self.f + 2):
            outer = []
            for here, before in rim:
                for node in self.routes.near[here]:
                    if node == before or node in progress.done or not self.routes.leads(here, node, topic):
                        continue
                    if node not in self.suspected:
                        if self._is_safe(progress, hop):
                            targets.add(node)
                        else:
                            blocked = True
                        continue
                    blocked |= self.waits and self.routes.is_member(node, topic)
                    outer.append((node, here))
            rim = outer
        beyond = any(
            other != before and other not in progress.done and self.routes.leads(node, other, topic)
            for node, before in rim
            for other in self.routes.near[node]
        )
        return targets, blocked or beyond

    def _is_safe(self, progress: Progress, hop: int) -> bool:
        """DNB-N3: at most f of the last 2f + 1 nodes are skipped."""
        skipped = progress.entries[max(0, len(progress.entries) + hop - self.window) :].count(SKIPPED)
        return skipped + hop - 1 <= self.f

    def _send(self, progress: Progress, peers: list[int], out: Outbox) -> None:
        """DNB-N2: one packet for all who are equally far away."""
        own: Entry = (self.me, progress.value, self._low())
        hop, packet = 0, None
        for peer in peers:
            if packet is None or self.distance[peer] != hop:
                hop = self.distance[peer]
                packet = Data(progress.message, extended_list(progress.entries, own, hop, self.window))
            if self.tally is not None:
                self.tally.add(entry_bytes(len(packet.entries)))
            out.send(self.routes.nodes[peer], packet)
        if not self.armed:
            self._arm(out)

    def _low(self) -> int:
        """DNB-N6: all values below are of messages that are complete here."""
        return next(iter(self.progress), self.value + 1)

    # Completion

    def _on_done(self, peer: int, packet: Done, out: Outbox) -> None:
        """DNB-N5: everybody behind that target has the message."""
        self.met[peer].raise_low(packet.low)
        progress = self.progress.get(packet.value)
        if progress is not None:
            if self.quiet_periods:
                self._stir(out)
            progress.done.add(peer)
            progress.awaited.discard(peer)
            if not progress.awaited:
                self._go_on(progress, out)

    def _go_on(self, progress: Progress, out: Outbox) -> None:
        """DNB-N3, DNB-N5: nothing is awaited any more."""
        if self.suspected or progress.blocked:
            self._send_on(progress, out)
        else:
            self._complete(progress, out)
        if self.queue:
            self._publish_next(out)

    def _complete(self, progress: Progress, out: Outbox) -> None:
        """DNB-N5: tell whoever asked; the publisher goes on to its next message."""
        del self.progress[progress.value]
        low = self._low()
        for peer, asked in sorted(progress.askers.items()):
            out.send(self.routes.nodes[peer], Done(asked, low))
        if progress.value == self.current:
            self.current = 0
            out.complete(progress.message.id)

    # Time, suspicion and restarts

    def _stir(self, out: Outbox) -> None:
        """Something happened: what comes of it is worth waiting for."""
        gave_up, self.quiet_periods = self.quiet_periods > PATIENCE, 0
        if gave_up and self.armed:
            self.armed = False
            self._arm(out)

    def _arm(self, out: Outbox) -> None:
        if not self.armed:
            self.armed = True
            out.set_timer(RESEND, self.resend_ns, background=self.quiet_periods > PATIENCE)

    def on_timer(self, _name: Hashable, out: Outbox) -> None:
        """DNB-N5: send again what was not acknowledged for a whole period; it keeps its value."""
        self.armed = False
        self.quiet_periods += 1
        for progress in list(self.progress.values()):
            if progress.due and progress.awaited:
                self._send(progress, sorted(progress.awaited), out)
            progress.due = True
            if progress.awaited:
                self._arm(out)

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.suspected.add(self._rank(peer))
        self._look_again(out)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.suspected.discard(self._rank(peer))
        self._look_again(out)

    def _look_again(self, out: Outbox) -> None:
        """DNB-N3: suspicions changed, so what is in progress may have other targets."""
        self._stir(out)
        for progress in list(self.progress.values()):
            self._send_on(progress, out)
        self._publish_next(out)

    def on_recover(self, out: Outbox) -> None:
        """DNB-N5: back with its state: nobody is suspected, and all that is in progress is sent again."""
        for progress in list(self.progress.values()):
            progress.awaited.clear()
        self._look_again(out)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        raise refuse_change(NAME, topic)

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        raise refuse_change(NAME, topic)

    def _rank(self, peer: NodeId) -> int:
        rank = self.linked.get(peer)
        if rank is None:
            raise PeerError(peer, "is not a neighbour")
        return rank


def reach(options: Any) -> int:
    """Links span f + 1 hops."""
    return int(options.f) + 1


DELTA_NEIGHBOURHOOD = ProtocolInfo(
    name=NAME,
    summary="FIFO multicast to groups on a tree: a publisher has one message in flight, acknowledged by everyone",
    source=(
        "Kazemzadeh and Jacobsen, Partition-tolerant distributed publish/subscribe systems, SRDS 2011; as "
        "in V. Santos, Localized Reliable Causal Multicast, MSc thesis, Instituto Superior Tecnico, 2019; corrected"
    ),
    guarantee=Guarantee.FIFO,
    overlay="a tree; links go to every node within f + 1 hops of it, and may lose, double and reorder packets",
    faults=(
        "crashes and recoveries with state that nobody suspects; where one is suspected, a node that is skipped may "
        "miss messages or get them late, the others keep order and go on while at most f nodes of every path of "
        "2f + 1 are suspected; waits = true: nobody misses anything, and publishers wait for members that are down; "
        "no restart without state"
    ),
    metadata="16 + o + t + 4*(2*f + 1)",
    genuine=False,
    build=DeltaNeighbourhood,
    packets=(Data, Done),
    options=DeltaNeighbourhoodOptions,
    reach=reach,
)

"""A node over TCP: a machine, its channels, its timers, its journal, and the application's end of it all.

With a log of its inputs a node survives the death of its process. Then nothing leaves before the inputs that caused it
are written: packets and the journal wait for the end of the turn anyway, and what the application is to hear does, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.net.nodes.backpressure import Room
from ordercast.net.nodes.batches import handle_batch
from ordercast.net.nodes.confirmations import Completed, Confirmations, disappoint, receives
from ordercast.net.nodes.durable_inputs import Memory
from ordercast.net.nodes.handshake import NetPlace
from ordercast.net.nodes.journal_writer import Record
from ordercast.net.nodes.replay import BY_THE_HOST, Told
from ordercast.net.nodes.state_log import StateLog
from ordercast.net.nodes.transport import Address, Transport
from ordercast.net.settings import NetSettings
from ordercast.net.timers import Timers
from ordercast.protocols.shared.links import Numbered
from ordercast.trace.journal import Journal
from ordercast.trace.schema import INFO_STATE, STATE_KEPT, STATE_LOST

__all__ = ["Completed", "Delivered", "Host", "NetPlace"]

Delivered = Callable[["Host", Message], None]


class Host:
    """Runs one machine over TCP and is its outbox.

    A handler runs to its end before the next begins: what a delivery callback publishes waits for the machine.
    """

    def __init__(
        self,
        place: Place,
        protocol: ProtocolInfo,
        options: Any,
        net: NetPlace,
        *,
        settings: NetSettings | None = None,
        journal: Journal | None = None,
        log: StateLog | None = None,
        told: Told | None = None,
    ) -> None:
        """With a `log` that has a past, the node goes on from there; `told` says how much of it had come out."""
        self.node = place.node
        self.place = place
        self.protocol = protocol
        self.settings = settings or NetSettings()
        self.steps = 0
        """Inputs handled so far: two equal readings with nothing outstanding in between mean rest."""
        self.failure: OSError | None = None
        """Why the node could not write down what happens. It has stopped then, and nothing of that turn has left."""
        self.delivery_watchers: list[Delivered] = []
        self._codec = protocol.codec()
        self._origin = origin_of(place.node, place.incarnation)
        self._memory = memory = Memory(log, told, self._codec, notes_membership=protocol.notes_membership)
        self.machine: Machine = memory.machine(lambda: protocol.build(place, options), self._origin)
        self.published, self.delivered = memory.published, memory.delivered
        self._unheard: list[Message | str] = [*memory.unheard]
        """Deliveries and completions (ids) that wait for the log."""
        self.handed_over = self.delivered - len(self._unheard)
        """Deliveries that the application has heard of, in all lives: the local index of the one it hears of now."""
        self._record = Record(place.node, journal, self._codec, net.epoch_ns)
        self.transport = Transport(net.identity(place.node), place.neighbours, self._codec, self.settings, self)
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._busy = False
        self.timers = Timers(lambda name: self._input(self._time_out, name))
        self._confirmations = Confirmations()
        self._room = Room()
        self._encoded: tuple[Packet, bytes] = (Packet(), b"")
        self._stopped = False

    # Life

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        """Open the door; the address that neighbours can dial. Nothing reaches the machine before `start`."""
        self._busy = True
        self._memory.on_life()
        return await self.transport.start(host, port)

    def start(self, addresses: Mapping[NodeId, Address]) -> None:
        """Begin this life, and dial the neighbours whose addresses are given; the others dial this node."""
        # Whoever dialed early may have sent something already; the machine hears of its own start first.
        self._inbox.appendleft((self._go_on if self._memory.recovered else self._begin, ()))
        self._busy = False
        self._handle_inputs()
        for peer, address in addresses.items():
            self.transport.dial(peer, address)

    async def close(self) -> None:
        """Stop: tell the peers, answer who still waits, leave nothing behind."""
        self._stopped = True
        self.timers.stop()
        await self.transport.close()
        if not self._busy:
            self._speak()
        self._confirmations.give_up(f"{self.node} was stopped before the message was confirmed")
        self._room.open_for_good()
        self._record.close()
        self._memory.close()

    # The application's end

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        guarantee: Guarantee | None = None,
        keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (),
    ) -> Message:
        """Publish when there is room, and return the message once it is confirmed (see `submit`)."""
        await self.room()
        return await self.submit(topic, payload, guarantee=guarantee, keys=keys, dst=dst)

    async def room(self) -> None:
        """Wait until no neighbour's buffer is full: a full overlay slows its publishers down, it never drops."""
        await self._room.wait()
        if self._stopped:
            raise ConnectionError(f"{self.node} is stopped")

    def submit(
        self,
        topic: str,
        payload: bytes,
        *,
        guarantee: Guarantee | None = None,
        keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (),
        told: Callable[[Message], None] | None = None,
    ) -> Completed:
        """Publish now, room or not. `told` hears the numbered message before the machine, which may still refuse it.

        The future is done when the machine says that the request is answered or, for protocols that never say so, when
        this node itself has delivered the message or is not among its receivers.
        """
        future: Completed = asyncio.get_running_loop().create_future()
        most = self.settings.max_payload_bytes
        if len(payload) > most:
            raise UsageError(f"a payload of {len(payload)} bytes is over the limit of {most}")
        if self._stopped:
            disappoint(future, f"{self.node} is stopped")
            return future
        content = (Topic(topic), payload, self.protocol.guarantee if guarantee is None else guarantee, keys, dst)
        self._input(self._publish, content, told, future)
        return future

    def subscribe(self, topic: str) -> None:
        self._input(self._subscribe, Topic(topic))

    def unsubscribe(self, topic: str) -> None:
        self._input(self._unsubscribe, Topic(topic))

    def join(self) -> None:
        """Enter the overlay: the node was planned, and is not part of it yet."""
        self._input(self._join)

    def leave(self) -> None:
        self._input(self._leave)

    # Effects: what the machine asks for

    def send(self, peer: NodeId, packet: Packet) -> None:
        last, body = self._encoded
        if packet is not last:
            body = self._codec.encode(packet)
            self._encoded = packet, body  # A machine relays one packet to many neighbours.
        # What the protocol resends while the channel still has it would only add to the queue.
        key = (packet.session, packet.number) if isinstance(packet, Numbered) else None
        if self.transport.send(peer, body, key) and self._record.packets:
            self._record.send(peer, packet, len(body))

    def deliver(self, message: Message) -> None:
        self.delivered += 1
        self._memory.events += 1
        self._record.deliver(message)
        if self._memory.durable:
            self._unheard.append(message)
        else:
            self._hand_over(message)

    def complete(self, message_id: str) -> None:
        if self._memory.durable:
            self._unheard.append(message_id)
        else:
            self._confirmations.confirm(message_id)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.timers.set(name, delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self.timers.cancel(name)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        assert kind not in BY_THE_HOST
        self._memory.events += 1
        self._record_event(kind, info)

    # What the transport reports

    def before_write(self) -> bool:
        if not self._write_down():
            return False
        if not self._busy:
            if self._memory.oversized:
                asyncio.get_running_loop().call_soon(self._input, self._renew)
            if self._unheard:
                asyncio.get_running_loop().call_soon(self._speak)
        return True

    def on_packets(self, peer: NodeId, packets: list[Packet]) -> None:
        self._input(self._receive, peer, packets)

    def on_silence(self, peer: NodeId) -> None:
        self._record_event("suspect", {"peer": peer})
        self._input(self._suspect, peer)

    def on_voice(self, peer: NodeId) -> None:
        self._input(self._trust, peer)

    def on_pressure(self, peer: NodeId, *, full: bool) -> None:
        self._room.change(peer, full=full)

    # Inside

    def _begin(self) -> None:
        if self.place.incarnation:
            self._record_event("recover", {INFO_STATE: STATE_LOST})
        self.machine.on_start(self)

    def _go_on(self) -> None:
        """A life with the state of the one before. What had happened but not come out by then is recorded now."""
        self._record_event("recover", {INFO_STATE: STATE_KEPT})
        self._record.catch_up(self._memory.untold)
        self.machine.on_recover(self)

    def _write_down(self) -> bool:
        """First what happened, then what came of it. If that fails, nothing may leave the node any more."""
        if self.failure is None:
            try:
                self._memory.flush()
                self._record.flush()
            except OSError as error:
                self._fail(error)
        return self.failure is None

    def _fail(self, error: OSError) -> None:
        """What the disk has is unknown: stop at once, and tell whoever is responsible for the loop."""
        self.failure = error
        self._stopped = True
        self.timers.stop()
        self.transport.abandon(f"the node cannot go on: {error}")
        self._unheard.clear()
        self._record.rewind()  # It must not know of what the log does not have.
        self._record.close()
        self._confirmations.give_up(f"{self.node} was stopped: {error}")
        self._room.open_for_good()
        context = {"message": f"{self.node} cannot write down what happens", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _renew(self) -> None:
        """Where the log has grown large: go on as if the node had crashed and come back, without anybody noticing."""
        if not self._memory.oversized or not self._write_down():
            return
        unheard = tuple(item for item in self._unheard if isinstance(item, Message))
        try:
            fresh = self._memory.renewed(self.machine, self.published, self.delivered, unheard)
        except OSError as error:
            self._fail(error)
            return
        if fresh is None:
            return
        self.timers.stop()
        self.machine = fresh
        self.machine.on_recover(self)
        for peer in self.transport.suspected():
            self._suspect(peer)

    def _speak(self) -> None:
        """What the application may hear now, in the order in which it came about."""
        if not self._write_down():  # Since this was planned, more may have happened.
            return
        unheard, self._unheard = self._unheard, []
        for item in unheard:
            if isinstance(item, Message):
                self._hand_over(item)
            else:
                self._confirmations.confirm(item)

    def _hand_over(self, message: Message) -> None:
        self.handed_over += 1
        for watch in self.delivery_watchers:
            watch(self, message)
        if message.origin == self._origin and message.guarantee is not Guarantee.ATOMIC:
            self._confirmations.confirm(message.id)

    def _input(self, action: Callable[..., None], *args: Any) -> None:
        self._inbox.append((action, args))
        if not self._busy and not self._stopped:
            self._handle_inputs()

    def _handle_inputs(self) -> None:
        self._busy = True
        try:
            while self._inbox and not self._stopped:
                self.steps += 1
                action, args = self._inbox.popleft()
                action(*args)
        finally:
            self._busy = False
            self.transport.plan_flush()

    def _receive(self, peer: NodeId, packets: list[Packet]) -> None:
        self._memory.on_receive(peer, packets)
        self._record.receive(peer, packets)
        for error in handle_batch(self.machine, peer, packets, self):
            culprit = NodeId(error.peer)
            self.transport.ban(culprit if culprit in self.transport.channels else peer, error.reason)

    def _time_out(self, name: Hashable) -> None:
        self._memory.on_timer(name)
        self.machine.on_timer(name, self)

    def _suspect(self, peer: NodeId) -> None:
        self._memory.on_suspect(peer)
        self.machine.on_suspect(peer, self)

    def _trust(self, peer: NodeId) -> None:
        self._memory.on_trust(peer)
        self.machine.on_trust(peer, self)

    def _publish(self, content: tuple[Any, ...], told: Callable[[Message], None] | None, future: Completed) -> None:
        message = Message(self._origin, self.published + 1, *content)
        mark = self._record.mark()
        self._record.publish(message)
        self._memory.on_publish(content)
        self._memory.events += 1
        if told is not None:
            told(message)
        self._confirmations.expect(message, future)
        try:
            self.machine.on_publish(message, self)
        except UsageError as error:
            self._undo(mark, self._memory.events - 1)
            self._confirmations.refuse(message.id, error)
            return
        self.published += 1
        if message.guarantee is not Guarantee.ATOMIC and not receives(self.place, message):
            self.complete(message.id)

    def _subscribe(self, topic: Topic) -> None:
        self._memory.on_subscribe(topic)
        mark, events = self._record.mark(), self._memory.events
        if not self.protocol.notes_membership:
            self.note("subscribe", {"topic": topic})
        try:
            self.machine.on_subscribe(topic, self)
        except UsageError:
            self._undo(mark, events)
            raise

    def _undo(self, mark: int, events: int) -> None:
        """What was refused never happened."""
        self._memory.events = events
        self._record.rewind(mark)

    def _unsubscribe(self, topic: Topic) -> None:
        self._memory.on_unsubscribe(topic)
        self.machine.on_unsubscribe(topic, self)
        if not self.protocol.notes_membership:
            self.note("unsubscribe", {"topic": topic})

    def _join(self) -> None:
        self._memory.on_join()
        self.machine.on_join(self)

    def _leave(self) -> None:
        self._memory.on_leave()
        self.machine.on_leave(self)

    def _record_event(self, kind: str, info: Mapping[str, str]) -> None:
        self._record.event(kind, info)
        self.transport.plan_flush()

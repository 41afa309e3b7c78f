"""A node over TCP: a protocol machine with fixed neighbours on the host of all processes, and its application's end.

With a log of its inputs a node survives the death of its process. Then nothing leaves before the inputs that caused it
are written: packets and the journal wait for the end of the turn anyway, and what the application is to hear does, too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.core.wire import Codec
from ordercast.net.confirmations import Completed, Confirmations, disappoint, receives
from ordercast.net.host import ProcessHost
from ordercast.net.nodes.backpressure import Backpressure
from ordercast.net.nodes.batches import handle_batch
from ordercast.net.nodes.channel import ChannelAck, ChannelResume
from ordercast.net.nodes.durable_inputs import DurableInputs
from ordercast.net.nodes.neighbours import Address, Chore, NeighbourChannels
from ordercast.net.nodes.replay import BY_THE_HOST, ToldEvents
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.nodes.state_log import StateLog
from ordercast.net.timers import Timers
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import NODE, Credentials, join_address, split_address
from ordercast.protocols.shared.links import Numbered
from ordercast.trace.journal import Journal
from ordercast.trace.schema import INFO_STATE, STATE_KEPT, STATE_LOST

__all__ = ["Completed", "Delivered", "NodeHost", "NodePlace"]

Delivered = Callable[["NodeHost", Message], None]


class NodePlace(msgspec.Struct, frozen=True):
    """A node's place among processes, beside its place on the overlay."""

    cluster: str
    token: bytes
    """The secret that the nodes of the cluster share."""
    life: int = 0
    """How often this node's process was started before."""
    epoch_ns: int = 0
    """The reading of the monotonic clock that the journal counts from."""
    since: int | None = None
    """The first life that this one remembers; None: no former one."""

    def credentials(self) -> Credentials:
        return Credentials(cluster=self.cluster, peer_token=self.token.hex())


class NodeHost:
    """Runs one machine over TCP and is its outbox.

    A handler runs to its end before the next begins: what a delivery callback publishes waits for the machine.
    """

    def __init__(
        self,
        place: Place,
        protocol: ProtocolInfo,
        options: Any,
        net: NodePlace,
        *,
        settings: NodeSettings | None = None,
        journal: Journal | None = None,
        log: StateLog | None = None,
        told: ToldEvents | None = None,
    ) -> None:
        """With a `log` that has a past, the node goes on from there; `told` says how much of it had come out."""
        self.node = place.node
        self.place = place
        self.protocol = protocol
        self.settings = settings or NodeSettings()
        self.steps = 0
        """Inputs of the machine so far: two equal readings with nothing outstanding in between mean rest."""
        self.delivery_watchers: list[Delivered] = []
        self._origin = origin_of(place.node, place.incarnation)
        self._durable_inputs = inputs = DurableInputs(
            log, told, protocol.codec(), notes_membership=protocol.notes_membership
        )
        self.machine: Machine = inputs.machine(lambda: protocol.build(place, options), self._origin)
        self.published, self.delivered = inputs.published, inputs.delivered
        self._unheard: list[Message | str] = [*inputs.unheard]
        """Deliveries and completions (ids) that wait for the log, or for the application to be told."""
        self._written = 0
        """So many of them the log has."""
        self._speaks_soon = False
        self.handed_over = self.delivered - len(self._unheard)
        """Deliveries that the application has heard of, in all lives: the local index of the one it hears of now."""
        self._confirmations = Confirmations()
        self._backpressure = Backpressure()
        self._stopped = False
        self._door: socket.socket | None = None
        me = Peer(NODE, place.node, net.life)
        since = net.life if net.since is None else net.since
        self.neighbours = NeighbourChannels(me, since, place.neighbours, self.settings, self)
        self._host = ProcessHost(
            me, lambda _: self.neighbours, Codec((*protocol.packets, ChannelResume, ChannelAck)),
            msgspec.structs.replace(self.settings, silence_ms=self.settings.suspect_ms),
            credentials=net.credentials(), journal=journal, epoch_ns=net.epoch_ns, passes_on=False,
            ledger=_InputLedger(inputs, self) if inputs.durable else None,
        )  # fmt: skip
        self._host.on_failure = self._fail
        self._host.on_beat = self.neighbours.on_beat
        self._journal = self._host.journal
        self.neighbours.host = self._host

    # Life

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        """Open the door; the address that neighbours can dial. They are answered after `start`."""
        self._door = listening(join_address(host, port))
        self._durable_inputs.on_life()
        return self.address

    async def start(self, addresses: Mapping[NodeId, Address]) -> None:
        """Begin this life, and dial the neighbours whose addresses are given; the others dial this node."""
        await self._host.start(self._door)
        for peer, address in addresses.items():
            self.neighbours.dial(peer, address)

    async def close(self) -> None:
        """Stop: tell the peers, answer who still waits, leave nothing behind."""
        self._stopped = True
        await self._host.stop("the node stops")
        self._speak()
        self._confirmations.give_up(f"{self.node} was stopped before the message was confirmed")
        self._backpressure.open_for_good()
        self._durable_inputs.close()
        if self._door is not None:
            self._door.close()

    @property
    def address(self) -> Address:
        """The address at which neighbours can dial this node, once it listens."""
        assert self._door is not None
        return split_address(address_of(self._door))

    @property
    def failure(self) -> BaseException | None:
        """Why the node could not go on: a disk that fails it, or a bug. Nothing of that turn has left."""
        return self._host.failure

    @property
    def timers(self) -> Timers:
        return self._host.timers

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
        await self.wait_for_room()
        return await self.submit(topic, payload, guarantee=guarantee, keys=keys, dst=dst)

    async def wait_for_room(self) -> None:
        """Wait until no neighbour's buffer is full: a full overlay slows its publishers down, it never drops."""
        await self._backpressure.wait()
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
        self._host.input(self._publish, content, told, future)
        return future

    def subscribe(self, topic: str) -> None:
        self._ask(self._subscribe, Topic(topic))

    def unsubscribe(self, topic: str) -> None:
        self._ask(self._unsubscribe, Topic(topic))

    def join(self) -> None:
        """Enter the overlay: the node was planned, and is not part of it yet."""
        self._ask(self._join)

    def leave(self) -> None:
        self._ask(self._leave)

    def _ask(self, action: Callable[..., None], *args: Any) -> None:
        """An input of the application: what the machine refuses is raised, unless the machine is busy."""
        if self._host.busy:
            self._host.input(action, *args)
        elif not self._stopped:
            self._host.turn(action, *args)

    # Effects: what the machine asks for

    def send(self, peer: NodeId, packet: Packet) -> None:
        # What the protocol resends while the channel still has it would only add to the queue.
        key = (packet.session, packet.number) if isinstance(packet, Numbered) else None
        if self.neighbours.send(peer, packet, key) and self._journal.packets:
            self._journal.packet("send", self._host.now_ns, peer, packet, len(self._host.frame_of(packet)))

    def deliver(self, message: Message) -> None:
        self.delivered += 1
        self._durable_inputs.events += 1
        self._journal.deliver(self._host.now_ns, message)
        if self._durable_inputs.durable:
            self._unheard.append(message)
        else:
            self._hand_over(message)

    def complete(self, message_id: str) -> None:
        if self._durable_inputs.durable:
            self._unheard.append(message_id)
        else:
            self._confirmations.confirm(message_id)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._host.timers.set(name, delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self._host.timers.cancel(name)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        assert kind not in BY_THE_HOST
        self._durable_inputs.events += 1
        self._record_event(kind, info)

    # What the neighbours' channels report

    def on_start(self) -> None:
        self.steps += 1
        if self._durable_inputs.recovered:
            self._go_on()
        else:
            self._begin()

    def on_packets(self, peer: NodeId, packets: Sequence[Packet]) -> None:
        self.steps += 1
        self._durable_inputs.on_receive(peer, packets)
        if self._journal.packets:
            for packet in packets:
                self._journal.packet("receive", self._host.now_ns, peer, packet, len(self._host.frame_of(packet)))
        for error in handle_batch(self.machine, peer, packets, self):
            culprit = NodeId(error.peer)
            self.neighbours.ban(culprit if culprit in self.neighbours.channels else peer, error.reason)

    def on_silence(self, peer: NodeId) -> None:
        self.steps += 1
        self._record_event("suspect", {"peer": peer})
        self._suspect(peer)

    def on_voice(self, peer: NodeId) -> None:
        self.steps += 1
        self._durable_inputs.on_trust(peer)
        self.machine.on_trust(peer, self)

    def on_timer(self, name: Hashable) -> None:
        self.steps += 1
        self._durable_inputs.on_timer(name)
        self.machine.on_timer(name, self)

    def on_pressure(self, peer: NodeId, *, full: bool) -> None:
        self._backpressure.change(peer, full=full)

    # The end of a turn

    def wrote_down(self) -> None:
        """The log has everything up to now: the application may hear of it, outside of any input."""
        loop = asyncio.get_running_loop()
        if self._durable_inputs.oversized:
            loop.call_soon(self._host.input, self._renew)
        self._written = len(self._unheard)
        if self._unheard and not self._speaks_soon:
            self._speaks_soon = True
            loop.call_soon(self._speak)

    def _fail(self, error: BaseException) -> None:
        """Tell whoever is responsible for the loop: the disk's content is unknown, or the state is half changed."""
        self._stopped = True
        self._unheard.clear()
        self._confirmations.give_up(f"{self.node} was stopped: {error}")
        self._backpressure.open_for_good()
        context = {"message": f"{self.node} cannot go on", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    # Inside

    def _begin(self) -> None:
        if self.place.incarnation:
            self._record_event("recover", {INFO_STATE: STATE_LOST})
        self.machine.on_start(self)

    def _go_on(self) -> None:
        """A life with the state of the one before. What had happened but not come out by then is recorded now."""
        self._record_event("recover", {INFO_STATE: STATE_KEPT})
        for event in self._durable_inputs.untold:
            event.record(self._journal, self._host.now_ns)
        self.machine.on_recover(self)

    def _renew(self) -> None:
        """Shorten a large log: go on as if the node had crashed and come back, without anybody noticing."""
        if not self._durable_inputs.oversized or self.failure is not None:
            return
        self._host.make_durable()
        unheard = tuple(item for item in self._unheard if isinstance(item, Message))
        fresh = self._durable_inputs.renewed(self.machine, self.published, self.delivered, unheard)
        if fresh is None:
            return
        for name in self.timers.names():
            if not isinstance(name, Chore):
                self.timers.cancel(name)
        self.machine = fresh
        self.machine.on_recover(self)
        for peer in self.neighbours.suspected():
            self._suspect(peer)

    def _speak(self) -> None:
        """Tell the application what it may hear now, in the order in which it came about."""
        if not self._stopped:
            self._host.make_durable()  # Since this was planned, more may have happened.
        self._speaks_soon = False
        heard, self._unheard = self._unheard[: self._written], self._unheard[self._written :]
        self._written = 0
        for item in heard:
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

    def _suspect(self, peer: NodeId) -> None:
        self._durable_inputs.on_suspect(peer)
        self.machine.on_suspect(peer, self)

    def _publish(self, content: tuple[Any, ...], told: Callable[[Message], None] | None, future: Completed) -> None:
        self.steps += 1
        message = Message(self._origin, self.published + 1, *content)
        mark = self._journal.mark()
        self._journal.publish(self._host.now_ns, message)
        self._durable_inputs.on_publish(content)
        self._durable_inputs.events += 1
        if told is not None:
            told(message)
        self._confirmations.expect(message, future)
        try:
            self.machine.on_publish(message, self)
        except UsageError as error:
            self._undo(mark, self._durable_inputs.events - 1)
            self._confirmations.refuse(message.id, error)
            return
        self.published += 1
        if message.guarantee is not Guarantee.ATOMIC and not receives(self.place, message):
            self.complete(message.id)

    def _subscribe(self, topic: Topic) -> None:
        self.steps += 1
        self._durable_inputs.on_subscribe(topic)
        mark, events = self._journal.mark(), self._durable_inputs.events
        if not self.protocol.notes_membership:
            self.note("subscribe", {"topic": topic})
        try:
            self.machine.on_subscribe(topic, self)
        except UsageError:
            self._undo(mark, events)
            raise

    def _undo(self, mark: int, events: int) -> None:
        """Take back what was recorded of a publication or subscription that the machine refused."""
        self._durable_inputs.events = events
        self._journal.rewind(mark)

    def _unsubscribe(self, topic: Topic) -> None:
        self.steps += 1
        self._durable_inputs.on_unsubscribe(topic)
        self.machine.on_unsubscribe(topic, self)
        if not self.protocol.notes_membership:
            self.note("unsubscribe", {"topic": topic})

    def _join(self) -> None:
        self.steps += 1
        self._durable_inputs.on_join()
        self.machine.on_join(self)

    def _leave(self) -> None:
        self.steps += 1
        self._durable_inputs.on_leave()
        self.machine.on_leave(self)

    def _record_event(self, kind: str, info: Mapping[str, str]) -> None:
        self._journal.event(kind, self._host.now_ns, info)


class _InputLedger:
    """The log of a node's inputs, as the host makes it durable at the end of a turn."""

    def __init__(self, inputs: DurableInputs, node: NodeHost) -> None:
        self._durable_inputs = inputs
        self._node = node

    def flush(self) -> None:
        self._durable_inputs.flush()
        self._node.wrote_down()

    def close(self) -> None:
        self._durable_inputs.close()

    def abandon(self) -> None:
        """The files are let go of when the node is closed; a log that has failed writes nothing more."""

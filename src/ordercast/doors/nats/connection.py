"""One client of NATS at the door: what it says becomes publications and subscriptions of a client of the broker.

Operations take effect in the order in which they come. While a SUB waits to be confirmed by the tree, what follows it
waits; so a client that has subscribed gets what it publishes itself after that, and a PONG says that every SUB before
its PING is confirmed and every PUB before it is `safe`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import Protocol, cast

from ordercast.api.bridge import ConnectionEvent
from ordercast.api.client import Client
from ordercast.api.errors import OutboxFull, PublishRefused, SubscribeDenied
from ordercast.core.errors import PeerError, UsageError
from ordercast.doors.nats import wire
from ordercast.doors.nats.naming import Questions
from ordercast.doors.nats.publishing import NatsPublisher
from ordercast.doors.nats.queues import QueueGroups
from ordercast.doors.nats.subscription import NatsSubscription
from ordercast.net.wire.descriptors import takes_the_last
from ordercast.net.wire.settings import WireSettings, seconds

_SAFE_S = 30.0
"""A PING that waits longer for what was published before it is not answered, and says why."""
_WRITE_BUFFER_BYTES = 1 << 18
_MUCH_WAITS = 512
"""Operations, each PUB one, that may wait before no more are read."""
_TURN = 64
"""Operations, each run of PUBs one, that are worked off before all others at this broker have their turn."""


class Door(Protocol):
    """Port to the listener that a connection came through."""

    settings: WireSettings
    publisher: NatsPublisher
    spares_headers: bool
    queues: QueueGroups

    def came(self, connection: NatsConnection) -> bool:
        """A connection exists; whether it may go on."""

    def hello(self) -> bytes:
        """The INFO line that a door sends first."""

    async def admit(self, connection: NatsConnection, said: wire.Connect) -> Client:
        """A client of the broker with the credentials that were given; a NatsError if they are wrong."""

    def anybody_receives(self, topic: str) -> bool:
        """Whether somebody has subscribed to the topic, as far as this broker knows."""

    def went(self, connection: NatsConnection, reason: str, *, complaint: bool) -> None:
        """The connection is over."""


class NatsConnection(asyncio.Protocol):
    """One connection, from INFO to its end. A fault of it ends it and nothing else."""

    def __init__(self, door: Door) -> None:
        self.said = wire.Connect()
        self.questions = Questions()
        self.spares_headers = door.spares_headers
        self.queues = door.queues
        self.client: Client | None = None
        self.host = ""
        self.number = 0
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = wire.NatsReader(door.settings.max_payload_bytes)
        self._waiting: deque[wire.Operation] = deque()
        """Operations behind one that takes its time."""
        self._working: asyncio.Task[None] | None = None
        self._subscriptions: dict[str, NatsSubscription] = {}
        self._writable = asyncio.Event()
        """Set unless the client does not read what it is told."""
        self._writable.set()
        self._pings_out = 0
        self._held_back = False
        """Nothing is read at the moment."""
        self._ended = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        first = self._transport is None
        self._transport = cast("asyncio.Transport", transport)
        if first:  # The second time it is the same connection under TLS.
            remote = transport.get_extra_info("peername")
            self.host = str(remote[0]) if remote else ""
            self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
            self._transport.write(self._door.hello())
            if takes_the_last(transport.get_extra_info("socket")):
                self.refuse("Maximum Connections Exceeded", "too many connections (open files)")
            elif not self._door.came(self):
                self.refuse("Maximum Connections Exceeded", "too many connections (connections)")

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._pings_out = 0
        try:
            operations = self._reader.feed(data)
            self._take(operations)
        except PeerError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        self.end("closed by the other end")
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.end(f"lost: {error}" if error is not None else "closed by the other end")
        if not self.closed.done():
            self.closed.set_result(None)

    # Operations

    def _take(self, operations: list[wire.Operation]) -> None:
        """Do what can be done at once; the rest waits its turn."""
        for at, operation in enumerate(operations):
            busy = self._working is not None or at >= _TURN or not self._writable.is_set()
            if busy or not self._at_once(operation):
                self._waiting.extend(operations[at:])
                self._work()
                self._hold_back()
                return

    def _at_once(self, operation: wire.Operation) -> bool:
        """Do it if that takes no waiting; whether it is done."""
        if isinstance(operation, wire.Pubs):
            return self.client is not None and self._publish_run(self.client, operation)
        if isinstance(operation, wire.Pub):
            return self.client is not None and self._publish(self.client, operation)
        return isinstance(operation, wire.NatsPong)

    def _publish_run(self, client: Client, run: wire.Pubs) -> bool:
        """Publish what there is room for; whether that was all. What is left is left in the run."""
        try:
            done = self._door.publisher.publish_run(client, run)
        except UsageError as error:  # It is about the subject, or the topic's default: so about all of them.
            done = len(run.payloads)
            self._write(wire.error(f"Invalid Subject: {error}") * done)
        else:
            if self.said.verbose:
                self._write(wire.OK * done)
        if done < len(run.payloads):
            del run.payloads[:done]
            return False
        return True

    def _publish(self, client: Client, pub: wire.Pub) -> bool:
        """Publish; False: there is no room at the moment."""
        try:
            request = self._door.publisher.publish(client, pub)
        except OutboxFull:
            return False
        except UsageError as error:
            self._write(wire.error(f"Invalid Subject: {error}"))
            return True
        if pub.reply:
            self.questions.asked(request, pub.reply)
            if self.said.no_responders and not self._door.anybody_receives(pub.subject):
                self._no_responders(pub.reply)
        self._confirm()
        return True

    def _no_responders(self, reply: str) -> None:
        """Tell the one who asked, at its own reply subject, that nobody is there to answer."""
        block = wire.header_block((), status="503")
        for subscription in self._subscriptions.values():
            if subscription.takes(reply):
                self._write(wire.message(reply, subscription.sid, "", block, b""))

    def _confirm(self) -> None:
        if self.said.verbose:
            self._write(wire.OK)

    def _work(self) -> None:
        if self._working is None and not self._ended:
            self._working = self._loop.create_task(self._work_off())

    async def _work_off(self) -> None:
        """Do what waits, one after the other, a few at a time, and none while the client does not read the answers."""
        done = 0
        try:
            while self._waiting:
                done += 1
                if done % _TURN == 0:
                    await asyncio.sleep(0)
                await self._until_writable()
                operation = self._waiting.popleft()
                if not self._at_once(operation):
                    await self._slowly(operation)
        except PeerError as error:
            self._refuse(error)
        except ConnectionAbortedError:
            pass  # It was cut off, and told why.
        except (ConnectionError, TimeoutError) as error:
            self._say_and_end("Connection to the brokers lost", str(error))
        finally:
            self._working = None
            self._read_on()

    def _hold_back(self) -> None:
        """Read no more while much waits."""
        waiting = sum([len(one.payloads) if isinstance(one, wire.Pubs) else 1 for one in self._waiting])
        if waiting > _MUCH_WAITS and not self._held_back and self._transport is not None:
            self._held_back = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._held_back and self._transport is not None and not self._transport.is_closing():
            self._held_back = False
            self._transport.resume_reading()

    async def _slowly(self, operation: wire.Operation) -> None:
        if isinstance(operation, wire.Connect):
            await self._connect(operation)
            return
        client = self.client
        if client is None:
            if isinstance(operation, wire.NatsPing):  # Clients may ask before they introduce themselves.
                self._write(wire.PONG)
                return
            raise wire.NatsError("Authorization Violation", "speaks before it introduced itself")
        if isinstance(operation, wire.Pubs | wire.Pub):
            await client.drain(_SAFE_S)
            while not self._at_once(operation):
                await client.drain(_SAFE_S)
        elif isinstance(operation, wire.Sub):
            await self._subscribe(client, operation)
        elif isinstance(operation, wire.Unsub):
            self._unsubscribe(operation)
        else:
            with suppress(PublishRefused):  # It has been told already.
                await client.flush(timeout=_SAFE_S)
            self._write(wire.PONG)

    async def _connect(self, said: wire.Connect) -> None:
        if self.client is not None:
            raise wire.NatsError("Unknown Protocol Operation", "introduces itself twice")
        self.client = await self._door.admit(self, said)
        self.said = said
        self.client.on_event(self._heard)
        self._confirm()

    def _heard(self, event: ConnectionEvent) -> None:
        if event.kind == "refused":
            self._write(wire.error(f"Permissions Violation for Publish: {event.detail}"))
        elif event.kind == "session_lost":
            self._say_and_end("Session Lost", event.detail)

    async def _subscribe(self, client: Client, sub: wire.Sub) -> None:
        if sub.sid in self._subscriptions:
            return  # As servers of NATS do: the number is taken.
        subscription = NatsSubscription(sub, client, self._door.publisher, self)
        try:
            await subscription.begin()
        except UsageError as error:
            self._write(wire.error(f"Invalid Subject: {error}"))
        except SubscribeDenied:
            self._write(wire.error(f'Permissions Violation for Subscription to "{sub.subject}"'))
        else:
            self._subscriptions[sub.sid] = subscription
            self._confirm()

    def _unsubscribe(self, unsub: wire.Unsub) -> None:
        subscription = self._subscriptions.get(unsub.sid)
        if subscription is not None:
            subscription.stop_after(unsub.after)
        self._confirm()

    # For its subscriptions

    def sharers(self, subject: str, queue: str) -> list[str]:
        """The subscriptions of this client in one queue group."""
        return [sid for sid, one in self._subscriptions.items() if (one.subject, one.queue) == (subject, queue)]

    def finished(self, sid: str) -> None:
        """A subscription has ended."""
        self._subscriptions.pop(sid, None)

    async def send(self, data: bytes) -> None:
        """Write, and wait while the client does not read; one that never does is cut off (ConnectionAbortedError)."""
        self._write(data)
        await self._until_writable()

    async def _until_writable(self) -> None:
        if self._writable.is_set():
            return
        settings = self._door.settings
        try:
            async with asyncio.timeout(seconds(settings.slow_consumer_ms)):
                await self._writable.wait()
        except TimeoutError:
            self._say_and_end("Slow Consumer", f"reads nothing for {settings.slow_consumer_ms:g} ms")
            raise ConnectionAbortedError("cut off") from None

    def secure(self, context: ssl.SSLContext) -> None:
        """Go on under TLS: the client begins it when it has read INFO."""
        assert self._transport is not None
        self._transport.pause_reading()
        self._working = self._loop.create_task(self._start_tls(context))

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        assert self._transport is not None
        patience = seconds(self._door.settings.handshake_ms)
        try:
            secured = await self._loop.start_tls(
                self._transport, self, context, server_side=True, ssl_handshake_timeout=patience
            )
        except (OSError, TimeoutError) as error:  # SSLError is an OSError.
            self.end(f"no TLS: {error or 'no answer'}", complaint=True)
            return
        finally:
            self._working = None
        if secured is not None:
            self._transport = secured
            self._work()

    # Ends

    def beat(self, most: int) -> None:
        """Ask whether the client is there; end it if it has left `most` such questions unanswered."""
        if self._pings_out >= most:
            self._say_and_end("Stale Connection", f"{most} PINGs were not answered")
            return
        self._pings_out += 1
        self._write(wire.PING)

    def refuse(self, says: str, detail: str) -> None:
        self._say_and_end(says, detail)

    def _refuse(self, error: PeerError) -> None:
        says = error.says if isinstance(error, wire.NatsError) else "Invalid Protocol"
        self._say_and_end(says, error.reason)

    def _say_and_end(self, says: str, detail: str) -> None:
        self._write(wire.error(says))
        self.end(detail, complaint=True)

    def end(self, reason: str, *, complaint: bool = False) -> None:
        """Close it, and end what it had at the broker. Comes to effect once."""
        if self._ended:
            return
        self._ended = True
        self._waiting.clear()
        if self._working is not None and self._working is not asyncio.current_task():
            self._working.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription.stop_reading()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(seconds(self._door.settings.farewell_ms), self._transport.abort)
        elif not self.closed.done():
            self.closed.set_result(None)
        self._door.went(self, reason, complaint=complaint)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

"""Publishing, for asyncio programs: what a client does with a message before its machine has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

from ordercast.api.bridge import Bridge
from ordercast.api.client_journal import told_of
from ordercast.api.errors import OutboxFull
from ordercast.api.lifetime import Lifetime
from ordercast.api.options import KNOWN_LEVELS, extras_of, keys_of, level_of, packed
from ordercast.api.outbox import HARD_LIMIT, LARGE_BYTES, OutboxRoom
from ordercast.api.waiting import check_ack, within
from ordercast.client.machine import ClientMachine
from ordercast.client.membership import NO_KEY
from ordercast.client.ports import EDGE, SAFE
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.net.host import ProcessHost
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.filters import check_topic

_KEYS_KNOWN = 10_000


class PublishingClient:
    """The publishing half of a `Client`. All that is published in one turn of the loop leaves together at its end.

    A client is one, and does not only have one: a call less for every message.
    """

    def __init__(self, host: ProcessHost, machine: ClientMachine, bridge: Bridge, outbox: OutboxRoom) -> None:
        self._host = host
        self._machine = machine
        self._bridge = bridge
        self._life = Lifetime(host, machine, bridge)
        self._outbox = outbox
        self._gate = asyncio.Lock()
        """Who waits for room to publish; one after the other, or all would find the same room."""
        self._max_payload = host.settings.max_payload_bytes
        self._plain_bytes = min(LARGE_BYTES, self._max_payload)
        """Nobody looks at a payload that is no longer than this."""
        self._prefixes: dict[str, str] = {}
        """Per topic published on, the beginning of its message ids."""
        self._named: dict[str, tuple[str, ...]] = {}
        """Keys that were used lately, each as publications carry it."""
        self._flushing = False
        """Something was published, and the end of the turn will send it."""
        self._wall_ns = 0
        """The wall clock, looked at once a turn."""
        self._budget = 0
        """How many more may be published in this turn."""
        self._pause_below = outbox.most * (HARD_LIMIT - 1)
        """With a larger budget left the outbox is not full."""
        self._loop = asyncio.get_running_loop()

    @property
    def unsettled(self) -> int:
        """Publications that this client still answers for: not echoed, or not stable."""
        return self._outbox.count

    async def publish(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", ack: str = SAFE, timeout: float | None = None,
        headers: Mapping[bytes, bytes] | None = None, expires_after: float | None = None, dedup: str = "",
        extras: Extras | None = None,
    ) -> str:  # fmt: skip
        """Publish and wait until the message has come as far as `ack` says; its id.

        `edge`: the edge broker has it. `safe`: it survives as many broker crashes as the tree is set up to survive.
        `delivered`: the application of every subscriber has taken it.

        Args:
            topic: where to.
            payload: what; any bytes.
            key: one key item.
            keys: several key items.
            guarantee: `eventual`, `fifo`, `causal` or `total`.
            ack: how far to wait.
            timeout: seconds to wait; the message may still come that far later.
            headers: names and values beside the payload, at most 4096 bytes together.
            expires_after: seconds after which no subscriber is handed it any more. It keeps its place in the order.
            dedup: an idempotence id: of several messages of the topic with the same id, published within an hour, each
                subscriber is handed one.
            extras: the last three, prepared.
        """
        check_ack(ack)
        if (self._budget <= self._pause_below or self._outbox.heavy) and self._outbox.is_full():
            await self._wait_for_room()
        message_id = self.publish_soon(
            topic, payload, key=key, keys=keys, guarantee=guarantee, headers=headers, expires_after=expires_after,
            dedup=dedup, extras=extras,
        )  # fmt: skip
        number = self._machine.topics[topic].counter  # type: ignore[index]
        done = self._bridge.waiting_of(topic).wait(ack, number)  # type: ignore[arg-type]
        if done is not None:
            if timeout is None:
                await done
            else:
                await within(done, timeout, lambda: f"{message_id} is not {ack}{self._pause(topic)}")
        return message_id

    def _pause(self, topic: str) -> str:
        """Whether the brokers hold the topic up, for a message of an error."""
        if self._machine.topics[topic].open:  # type: ignore[index]
            return ""
        limits = "buffer_soft_limit, buffer_soft_bytes or memory_soft_bytes"
        return f", because brokers told the topic's publishers to wait ({limits}),"

    def publish_soon(
        self, topic: str, payload: bytes, *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", headers: Mapping[bytes, bytes] | None = None,
        expires_after: float | None = None, dedup: str = "", extras: Extras | None = None,
    ) -> str:  # fmt: skip
        """Publish without waiting; the id of the message. `drain` now and then, and `flush` in the end."""
        level = KNOWN_LEVELS.get(guarantee)
        prefix = self._prefixes.get(topic)
        if level is None or prefix is None or not self._flushing or payload.__class__ is not bytes:
            level, prefix = self._begin(topic, payload, guarantee)
        if len(payload) > self._plain_bytes:
            self._weigh(len(payload))
        if key is None and not keys:
            named: tuple[str, ...] = NO_KEY
        elif not keys and key.__class__ is str:
            named = self._named.get(key) or self._name(key)
        else:
            named = keys_of(key, keys)
        if headers is not None or expires_after is not None or dedup:
            extras = extras_of(headers, expires_after, dedup, self._wall_ns, extras)
        budget = self._budget = self._budget - 1
        if budget < 0:
            raise OutboxFull(f"outbox: {self.unsettled} publications wait for the broker tree; await client.drain()")
        number = self._machine.publish(topic, payload, named, level, self._wall_ns, extras)  # type: ignore[arg-type]
        if self._bridge.journal is not None:
            self._record(Topic(topic), number)
        return f"{prefix}{number}"

    def publish_run(
        self, topic: str, payloads: Sequence[bytes], *, keys: Sequence[str] = (), guarantee: str | Guarantee = "causal"
    ) -> int:
        """Publish as many of the payloads, from the first on, as the outbox has room for; how many that were.

        The same as `publish_soon` for each of them, several times as fast.
        """
        if max(map(len, payloads), default=0) > self._plain_bytes:
            return self._publish_each(topic, payloads, keys, guarantee)
        level, _ = self._begin(topic, b"", guarantee)
        run = payloads[: max(0, self._budget)]
        self._budget -= len(run)
        named = keys_of(None, keys) if keys else NO_KEY
        first = self._machine.publish_run(Topic(topic), run, named, level, self._wall_ns)
        if self._bridge.journal is not None:
            for number in range(first, first + len(run)):
                self._record(Topic(topic), number)
        return len(run)

    async def publish_many(
        self, topic: str, payloads: Iterable[bytes], *, key: str | None = None, keys: Iterable[str] = (),
        guarantee: str | Guarantee = "causal", ack: str = SAFE, timeout: float | None = None,
        headers: Mapping[bytes, bytes] | None = None, expires_after: float | None = None, dedup: str = "",
    ) -> list[str]:  # fmt: skip
        """Publish several messages that become visible together: whoever is handed one is handed all, without a gap.

        They are one publication on their way: all of them have the same keys, headers and guarantee, one place in the
        order, and together at most the largest payload's size. Gives their ids.
        """
        payload, extras = packed(payloads)
        whole = await self.publish(
            topic, payload, key=key, keys=keys, guarantee=guarantee, ack=ack, timeout=timeout, headers=headers,
            expires_after=expires_after, dedup=dedup, extras=extras,
        )  # fmt: skip
        return [f"{whole}.{i}" for i in range(1, extras.parts + 1)]

    async def at_edge(self, topic: str) -> None:
        """Wait until the edge has the last publication on the topic, which this client has just made.

        Raises:
            PublishRefused: it will never be delivered.
        """
        number = self._machine.topics[Topic(topic)].counter
        done = self._bridge.waiting_of(Topic(topic)).wait(EDGE, number)
        if done is not None:
            await done

    def _publish_each(
        self, topic: str, payloads: Sequence[bytes], keys: Sequence[str], guarantee: str | Guarantee
    ) -> int:
        """Large ones: the outbox weighs each when the one before is in it."""
        for done, payload in enumerate(payloads):
            try:
                self.publish_soon(topic, payload, keys=keys, guarantee=guarantee)
            except OutboxFull:
                return done
        return len(payloads)

    def _weigh(self, size: int) -> None:
        """A large payload: whether it may be published."""
        if size > self._max_payload:
            raise UsageError(f"payload: {size} bytes are over the limit of {self._max_payload}")
        if size > LARGE_BYTES:
            self._outbox.add_large(size)

    def _name(self, key: str) -> tuple[str, ...]:
        """The keys of a publication with this one, made once: millions of tuples keep the garbage collector busy."""
        named = keys_of(key, ())
        if len(self._named) >= _KEYS_KNOWN:
            self._named.clear()
        self._named[key] = named
        return named

    def _begin(self, topic: str, payload: bytes, guarantee: str | Guarantee) -> tuple[Guarantee, str]:
        """Checks that are made once a turn, or when something is unusual."""
        self._life.check()
        if not isinstance(payload, bytes):
            raise UsageError(f"payload: bytes are needed, not {type(payload).__name__}")
        level = level_of(guarantee)
        prefix = self._prefixes.get(topic)
        if prefix is None:
            check_topic(topic)
            prefix = self._prefixes[topic] = f"{self._machine.origin}/{topic}#"
        if not self._flushing:
            self._flushing = True
            self._wall_ns = time.time_ns()
            self._budget = self._outbox.most * HARD_LIMIT - self.unsettled
            self._host.turn(_nothing)  # Sets the clock of this turn.
            self._loop.call_soon(self._flush_turn)
        return level, prefix

    def _flush_turn(self) -> None:
        """All that was published since the loop last came by leaves together."""
        self._flushing = False
        if self._machine.session.unsent and self._life.works:
            self._host.turn(_nothing)

    def _record(self, topic: Topic, number: int) -> None:
        journal = self._bridge.journal
        if journal is not None:
            journal.publish(self._host.now_ns, entry := self._machine.topics[topic].outbox[number], told_of(entry))

    async def drain(self, timeout: float | None = None) -> None:
        """Let the loop work, and wait while the outbox is full or the broker tree asks for a pause."""
        await asyncio.sleep(0)
        self._life.check()
        if self._outbox.is_full() or self._bridge.closed_flows:
            await within(self._until_room(), timeout, f"{self.unsettled} publications wait for the broker tree")

    async def _until_room(self) -> None:
        enough = self._outbox.enough()
        while self.unsettled >= enough or self._bridge.closed_flows:
            await self._bridge.change()
            self._life.check()

    async def _wait_for_room(self) -> None:
        async with self._gate:
            if self._outbox.is_full():
                await self.drain()

    async def flush(self, ack: str = SAFE, timeout: float | None = None) -> None:
        """Wait until everything published so far has come as far as `ack` says.

        Raises:
            PublishRefused: a publication was refused, and no `publish` was waiting to be told.
        """
        check_ack(ack)
        self._life.check()
        waits = []
        for topic, membership in self._machine.topics.items():
            done = self._bridge.waiting_of(topic).wait_for_all(ack, membership.counter)
            if done is not None:
                waits.append(done)
        if waits:
            await within(asyncio.gather(*waits), timeout, f"{self.unsettled} publications are not {ack}")
        if self._bridge.refusals:
            refusal = self._bridge.refusals[0]
            self._bridge.refusals.clear()
            raise refusal


def _nothing() -> None:
    """An input that only begins a turn."""

"""The partitioned key-value store over TCP: one node of it, for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ordercast.core.errors import UsageError
from ordercast.core.messages import Guarantee, Message
from ordercast.net.nodes.client import MulticastClient
from ordercast.services.partitioned_kv import KeyValueReplica, Partitioning, Posting, Value, without_values

TOPIC = "kv"


class KeyValueStore:
    """Reads and writes of several keys as one step, whichever partitions they are in."""

    def __init__(self, client: MulticastClient, partitioning: Partitioning) -> None:
        self._client = client
        self.replica = KeyValueReplica(client.host.node, partitioning)
        self._awaited: dict[int, asyncio.Future[dict[str, Value]]] = {}
        self._sending: set[asyncio.Future[Message]] = set()
        client.on_delivery(self._delivered)

    async def transact(self, reads: Sequence[str] = (), writes: Mapping[str, Value] | None = None) -> dict[str, Value]:
        """Do all reads, then all writes, as one step; what was read. Returns when every partition has done its part.

        Raises:
            UsageError: there is no key, or an operation or its answer does not fit a message; too large an answer is
                noticed only after the writes were done.
        """
        number, posting = self.replica.begin(reads, writes)
        done: asyncio.Future[dict[str, Value]] = asyncio.get_running_loop().create_future()
        self._awaited[number] = done
        try:
            await self._client.multicast(posting.payload, posting.to, topic=TOPIC)
            return await done
        finally:
            self._awaited.pop(number, None)
            self.replica.waiting.pop(number, None)

    async def get(self, key: str) -> Value:
        return (await self.transact([key]))[key]

    async def put(self, key: str, value: Value) -> None:
        await self.transact(writes={key: value})

    def _delivered(self, message: Message) -> None:
        if message.topic != TOPIC:
            return
        posting, result = self.replica.deliver(message.payload)
        if posting is not None:
            self._answer(posting)
        if result is not None:
            done = self._awaited.get(result.number)
            if done is not None and not done.done():
                if result.problem:
                    done.set_exception(UsageError(result.problem))
                else:
                    done.set_result(result.values)

    def _answer(self, posting: Posting) -> None:
        """Not by `multicast`: a delivery cannot wait for a slot or for room."""
        limit = self._client.host.settings.max_payload_bytes
        if len(posting.payload) > limit:
            posting = without_values(posting, f"reads: the values take more than the {limit} bytes of a message")
        sent = self._client.host.submit(TOPIC, posting.payload, guarantee=Guarantee.ATOMIC, dst=posting.to)
        self._sending.add(sent)
        sent.add_done_callback(self._answered)

    def _answered(self, sent: asyncio.Future[Message]) -> None:
        """A stopped node owes no answer any more; anything else that goes wrong is a bug and must be seen."""
        self._sending.discard(sent)
        if not sent.cancelled() and not isinstance(sent.exception(), ConnectionError):
            sent.result()

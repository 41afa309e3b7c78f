"""What a node records of itself for the trace, if it keeps a journal at all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ordercast.core.ids import NodeId
from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec
from ordercast.net.nodes.frames import OVERHEAD_BYTES
from ordercast.net.nodes.replay import Event
from ordercast.trace.journal import Journal


class Record:
    """A journal that may not be there, and the clock that its times come from."""

    def __init__(self, node: NodeId, journal: Journal | None, codec: Codec, epoch_ns: int) -> None:
        self.packets = journal is not None and journal.packets
        """Whether sends and receives are recorded too."""
        self._node = node
        self._journal = journal
        self._codec = codec
        self._epoch_ns = epoch_ns

    def publish(self, message: Message) -> None:
        if self._journal is not None:
            self._journal.publish(self._now(), message)

    def deliver(self, message: Message) -> None:
        if self._journal is not None:
            self._journal.deliver(self._now(), message)

    def send(self, peer: NodeId, packet: Packet, body_bytes: int) -> None:
        if self._journal is not None and self.packets:
            self._journal.packet("send", self._now(), peer, packet, body_bytes + OVERHEAD_BYTES)

    def receive(self, peer: NodeId, packets: Iterable[Packet]) -> None:
        if self._journal is not None and self.packets:
            now = self._now()
            for packet in packets:
                size = len(self._codec.encode(packet)) + OVERHEAD_BYTES
                self._journal.packet("receive", now, peer, packet, size)

    def event(self, kind: str, info: Mapping[str, str]) -> None:
        if self._journal is not None:
            self._journal.event(kind, self._now(), info)

    def catch_up(self, events: Iterable[Event]) -> None:
        """What had happened in a former life and was not recorded by then."""
        if self._journal is not None:
            for event in events:
                event.record(self._journal, self._now())

    def mark(self) -> int:
        """A place to `rewind` to within this turn."""
        return self._journal.mark() if self._journal is not None else 0

    def rewind(self, mark: int = 0) -> None:
        """What was recorded since, in this turn, never happened."""
        if self._journal is not None:
            self._journal.rewind(mark)

    def flush(self) -> None:
        try:
            if self._journal is not None:
                self._journal.flush()
        except OSError as error:
            raise OSError(f"the journal of {self._node}: {error.strerror or error}") from error

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _now(self) -> int:
        return time.monotonic_ns() - self._epoch_ns

"""Writes a process's own events to its journal for the trace, if it keeps one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ordercast.core.messages import Message, Packet


class TurnJournal(Protocol):
    """A journal of what happened in this process, for the trace; `ordercast.trace.journal.Journal` is one."""

    packets: bool
    """Whether sends and receives are recorded too."""

    def event(self, kind: str, time_ns: int, info: Mapping[str, str] | None = None) -> None: ...

    def packet(self, kind: str, time_ns: int, peer: str, packet: Packet, wire_bytes: int) -> None: ...

    def publish(self, time_ns: int, message: Message) -> None: ...

    def deliver(self, time_ns: int, message: Message) -> None: ...

    def mark(self) -> int: ...

    def rewind(self, mark: int) -> None: ...

    def flush(self) -> None: ...

    def end(self, time_ns: int) -> None:
        """The process ends in good order."""

    def close(self) -> None: ...


class JournalWriter:
    """A journal that may not be there, and the moment that its times count from."""

    def __init__(self, name: str, journal: TurnJournal | None, epoch_ns: int = 0) -> None:
        self.packets = journal is not None and journal.packets
        """Whether sends and receives are recorded too."""
        self._name = name
        self._journal = journal
        self._epoch_ns = epoch_ns

    def publish(self, now_ns: int, message: Message) -> None:
        if self._journal is not None:
            self._journal.publish(now_ns - self._epoch_ns, message)

    def deliver(self, now_ns: int, message: Message) -> None:
        if self._journal is not None:
            self._journal.deliver(now_ns - self._epoch_ns, message)

    def packet(self, kind: str, now_ns: int, peer: str, packet: Packet, wire_bytes: int) -> None:
        """A send or a receive, if the journal wants them."""
        if self._journal is not None and self.packets:
            self._journal.packet(kind, now_ns - self._epoch_ns, peer, packet, wire_bytes)

    def event(self, kind: str, now_ns: int, info: Mapping[str, str] | None = None) -> None:
        if self._journal is not None:
            self._journal.event(kind, now_ns - self._epoch_ns, info)

    def mark(self) -> int:
        """A place to `rewind` to within this turn."""
        return self._journal.mark() if self._journal is not None else 0

    def rewind(self, mark: int = 0) -> None:
        """Drop what was recorded since, in this turn: it never happened."""
        if self._journal is not None:
            self._journal.rewind(mark)

    def flush(self) -> None:
        try:
            if self._journal is not None:
                self._journal.flush()
        except OSError as error:
            raise OSError(f"the journal of {self._name}: {error.strerror or error}") from error

    def end(self, now_ns: int) -> None:
        """The process ends in good order."""
        if self._journal is not None:
            self._journal.end(now_ns - self._epoch_ns)
            self._journal.close()

    def abandon(self) -> None:
        """Let go of the file and write nothing more."""
        if self._journal is not None:
            self._journal.rewind(0)
            self._journal.close()

"""Port to the application of a member of clusters; updates themselves are delivered by the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ordercast.core.messages import Message
from ordercast.protocols.cluster.events import Event, Range
from ordercast.protocols.cluster.tickets.manager import EntryTicket


class ClusterApplication(Protocol):
    """The application's port for its clusters, beyond updates: what it is told, and what it is asked for."""

    def joined(self, cluster: str) -> None:
        """The process knows where the cluster stands; what it delivers from now on is in order, if it keeps one."""

    def update(self, event: Event) -> None:
        """An update is delivered: its message, and how it is stamped."""

    def lost(self, cluster: str, ranges: Sequence[Range]) -> None:
        """Updates in these ranges were skipped and never will be delivered here."""

    def behind(self, cluster: str, ranges: Sequence[Range]) -> None:
        """Others have these updates; they were asked for, and nobody has sent them."""

    def resynced(self, cluster: str, answers: int) -> None:
        """So many members have told their state since it was asked for; it is merged with this one's."""

    def coordinates(self, cluster: str, *, entry: int, caught_up: bool) -> None:
        """The process owns an entry and may make updates from now on.

        `caught_up`: it has delivered, or counts as delivered, all that the managers know of the entry's owners before.
        """

    def coordinates_no_more(self, cluster: str, reason: str) -> None:
        """It owns none any more: given back, or run out."""

    def refused(self, message: Message, reason: str) -> None:
        """An own update will never be made."""

    def no_entry(self, cluster: str, reason: str) -> None:
        """The process asked for an entry and can never own one."""

    def promised(self, cluster: str, entry: int, ticket: EntryTicket) -> None:
        """As a manager of entries the process has promised this: it may not forget it, or has to know that it did."""

    def snapshot(self, cluster: str) -> bytes:
        """The state of the objects after everything that was delivered so far, for a newcomer."""

    def install(self, cluster: str, state: bytes) -> None:
        """The state that a newcomer begins with."""


class Silent:
    """For processes whose application only wants updates."""

    def joined(self, cluster: str) -> None: ...

    def update(self, event: Event) -> None: ...

    def lost(self, cluster: str, ranges: Sequence[Range]) -> None: ...

    def behind(self, cluster: str, ranges: Sequence[Range]) -> None: ...

    def resynced(self, cluster: str, answers: int) -> None: ...

    def coordinates(self, cluster: str, *, entry: int, caught_up: bool) -> None: ...

    def coordinates_no_more(self, cluster: str, reason: str) -> None: ...

    def refused(self, message: Message, reason: str) -> None: ...

    def no_entry(self, cluster: str, reason: str) -> None: ...

    def promised(self, cluster: str, entry: int, ticket: EntryTicket) -> None: ...

    def snapshot(self, cluster: str) -> bytes:  # noqa: ARG002 - it has none
        return b""

    def install(self, cluster: str, state: bytes) -> None: ...

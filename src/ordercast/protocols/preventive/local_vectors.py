"""Local vectors (PRV-9.4): the causal pasts of messages, which no header carries, from what came before on each link.

A process sends over a link all that it delivers, in its order. So before a publisher's own message comes, over the link
from the publisher itself, exactly what it had delivered: the past of that message. Over any other link comes at least
the past, so whatever did not come before the message on some link is not in its past.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.process import Connection
from ordercast.core.state import State

Key = tuple[Origin, int]
Relation = Literal["before", "after", "concurrent", "unknown"]


class KnownPast(State):
    """The known part of a message's past: how much of each origin is in it, at most or exactly."""

    def __init__(self, most: dict[Origin, int], *, exact: bool) -> None:
        self.most = most
        self.exact = exact

    def holds(self, origin: Origin, number: int) -> bool | None:
        """Whether the message is in this past; None: it may be."""
        if self.most.get(origin, 0) < number:
            return False
        return True if self.exact else None


class LocalVectors(State):
    """Vectors of what each incoming link has carried, and the pasts of the latest messages."""

    constant: ClassVar[tuple[str, ...]] = ("keep",)
    ordered: ClassVar[tuple[str, ...]] = ("pasts",)

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.carried: dict[Connection, dict[Origin, int]] = {}
        """By link: what its sender had delivered, at most, when what is next on it was sent."""
        self.whole: set[Connection] = set()
        """Links of which that is known exactly, since they began."""
        self.pasts: dict[Key, KnownPast] = {}

    def open(self, connection: Connection, before: Mapping[Origin, int], *, exact: bool) -> None:
        """A link is in use; its sender had at most, or exactly, `before`."""
        self.carried[connection] = dict(before)
        if exact:
            self.whole.add(connection)

    def close(self, connection: Connection) -> None:
        self.carried.pop(connection, None)
        self.whole.discard(connection)

    def published(self, message: Message, delivered: Mapping[Origin, int]) -> None:
        """An own message: its past is what was delivered here."""
        self._remember((message.origin, message.number), KnownPast(dict(delivered), exact=True))

    def came(self, connection: Connection, peer: Origin, message: Message) -> None:
        """A message came over a link, as the first copy or a later one: each may narrow its past."""
        carried = self.carried[connection]
        key = message.origin, message.number
        known = self.pasts.get(key)
        if peer == message.origin and connection in self.whole:
            self._remember(key, KnownPast(dict(carried), exact=True))
        elif known is None:
            self._remember(key, KnownPast(dict(carried), exact=False))
        elif not known.exact:
            known.most = {origin: min(most, carried.get(origin, 0)) for origin, most in known.most.items()}
        carried[message.origin] = max(carried.get(message.origin, 0), message.number)

    def _remember(self, key: Key, past: KnownPast) -> None:
        self.pasts.pop(key, None)
        self.pasts[key] = past
        if len(self.pasts) > self.keep:
            del self.pasts[next(iter(self.pasts))]

    def relation(self, one: Key, other: Key) -> Relation:
        """The relation of `one` to `other`; unknown if their pasts are forgotten or not narrow enough to tell."""
        first, second = self.pasts.get(one), self.pasts.get(other)
        before = second.holds(*one) if second is not None else None
        after = first.holds(*other) if first is not None else None
        if before or after:
            return "before" if before else "after"
        return "concurrent" if before is False and after is False else "unknown"
